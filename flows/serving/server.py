"""Prefect servers: their login, their socket, and the temporary one of a run by hand.

A run by hand uses the configured server, else a temporary one on this machine. Prefect would start
one itself, but only after it was imported, without a login, and it would outlive a killed run.
Started first and beside the imports it is up when the flow needs it; the kernel ends it when the
run's process dies.

A login is `user:password`, which Prefect calls an auth string. It is handed on by the environment
alone, which other users of the machine cannot read; a command line they can.
"""

import atexit
import gc
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO

from seatrial.model.errors import InputError, os_errors_named
from seatrial.system.private import private_opener, read_private
from seatrial.text.lines import last_line

SERVER_AUTH = "PREFECT_SERVER_API_AUTH_STRING"  # what a server asks for
CLIENT_AUTH = "PREFECT_API_AUTH_STRING"  # what a client gives
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
_USER_AND_PASSWORD = re.compile(r"[^\s:]+:\S+")
log = logging.getLogger("seatrial")
_SERVER_SETTINGS = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    # A lasting server, and a client that saves a block, register its type. Looking for types takes
    # a second.
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "0",
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "0",
    # Events are for automations. Deleting old ones delays first requests on SQLite by two seconds.
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "0",
    # Automations are of a lasting server. Their consumer makes the whole app twice more: a fifth of
    # the start.
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "0",
    # A store of the server's task queue would check its own types for 0.2 s
    "PY_KEY_VALUE_DISABLE_BEARTYPE": "true",
}
# The least that Prefect takes; a lasting server calls dead what is silent for three of them
HEARTBEAT_S = 30
TEMPORARY = "SEATRIAL_TEMPORARY_SERVER"  # set where the Prefect server is there for one run alone
_IN_MEMORY = {
    "PREFECT_SERVER_DATABASE_CONNECTION_URL": (
        "sqlite+aiosqlite:///file::memory:?cache=shared&uri=true&check_same_thread=false"
    )
}
_DATABASE_BYTES = 4 << 20  # what a run adds at most, and SQLite's journal
# PR_SET_PDEATHSIG (1) with SIGKILL (9): the server ends with the run, even where that is killed.
_SERVE = """
import ctypes, gc, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
gc.disable()  # as collect_apart does: imports make no garbage, and to look for it takes a fifth of the start
import uvicorn
from prefect.server.api.server import create_app
from seatrial.flows.serving.server import collect_apart
from seatrial.flows.serving.webserver import own_pages_alone
app = create_app(ephemeral=True, final=True)  # without the services that only a lasting server needs
collect_apart()
own = own_pages_alone(app, ["127.0.0.1"], [])
uvicorn.run(own, fd=int(sys.argv[1]), log_level="error", lifespan="on")
"""


def random_auth_string() -> str:
    return f"seatrial:{secrets.token_urlsafe(24)}"


def prefect_home() -> Path:
    """Return Prefect's folder, made if need be, with a database that other users cannot read: it
    holds secrets.

    A folder that is there keeps its mode: it may be the system's. Raises InputError.
    """
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    with os_errors_named(f"PREFECT_HOME {home}", "; name a folder that can be written to"):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for database in home.glob("prefect.db*"):
            if not database.is_symlink() and database.stat().st_uid == os.geteuid():
                database.chmod(0o600)
    return home


def auth_file(home: Path) -> Path:
    return home / "seatrial-serve.auth"


def kept_auth_string(home: Path) -> tuple[str, bool]:
    """Return the auth string that is kept in `home`, and whether it is new. Raises InputError."""
    path = auth_file(home)
    try:
        with open(path, "x", opener=private_opener) as file:
            made = random_auth_string()
            file.write(f"{made}\n")
        return made, True
    except FileExistsError:
        pass
    with os_errors_named(str(path), "; remove it for a new login"):
        text = read_private(path, 512).decode(errors="replace").strip()
        is_open = bool(path.stat().st_mode & 0o077)
    if is_open:
        raise InputError(
            f"{path}: other users may have read it, its mode must be 0600; remove it for "
            "a new login"
        )
    if not _USER_AND_PASSWORD.fullmatch(text):
        raise InputError(f"{path}: must be one line user:password; remove it for a new login")
    return text, False


def configured_auth_string() -> str | None:
    """Return the login set in the environment or Prefect's profile.

    Raises InputError if that is no login.
    """
    from prefect.settings import get_current_settings

    setting = get_current_settings().server.api.auth_string
    if setting is None:
        return None
    text = setting.get_secret_value()
    if not _USER_AND_PASSWORD.fullmatch(text):
        raise InputError(
            f"{SERVER_AUTH}: must be user:password without spaces; unset it for a random login"
        )
    return text


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Listen on a TCP address; port 0 is any free one.

    Raises OSError, or TypeError for what is no host name.

    Connections inherit TCP_NODELAY. asyncio sets it only on sockets that it knows to be TCP, and
    uvicorn takes a socket by its number for a Unix one: each answer would wait 40 ms for the
    client's delayed acknowledgement.
    """
    listener = socket.socket()
    try:
        # A socket on this address that was closed a moment ago does not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def collect_apart() -> None:
    """Collect garbage in a thread for as long as the process lives: on the event loop it can halt a
    server on SQLite.

    After an error SQLAlchemy leaves a cursor behind, and the collector ends it: it waits for the
    cursor's connection, which another thread may be using to wait for a write. On the event loop
    that write is then never committed, and the server stands still until SQLite gives up, a minute
    later.
    """
    gc.disable()
    gc.freeze()
    threading.Thread(target=_collect, name="garbage", daemon=True).start()


def _collect() -> None:
    for second in count(1):
        time.sleep(1.0)
        gc.collect(1 if second % 60 else 2)  # old objects are seldom garbage, and there are many


class TemporaryServer:
    """A Prefect server on the loopback interface, with a random login.

    `api_url` answers as soon as the server is up; connections queue until then. Once it has ended,
    calls fail at once.
    """

    def __init__(self, log: IO[bytes], settings: Mapping[str, str] = {}) -> None:
        self.auth_string = random_auth_string()
        self._stopped = False
        self._listener = listen("127.0.0.1", 0, backlog=128)
        self.api_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/api"
        own = {SERVER_AUTH: self.auth_string, ORIGINS: self.api_url.removesuffix("/api")}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, str(self._listener.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **_SERVER_SETTINGS, **own, **settings},
            pass_fds=[self._listener.fileno()],
            start_new_session=True,  # Ctrl-C is for the run, which needs its server until the end
            umask=0o077,  # its database holds secrets
        )
        threading.Thread(target=self._watch, name="server", daemon=True).start()

    def _watch(self) -> None:
        """Have calls fail at once when the server has ended, and send no more logs."""
        self._process.wait()
        if self._stopped:
            return
        self._listener.close()
        log.warning("the Prefect server ended; the run goes on without it")
        from prefect.settings import get_current_settings

        settings = get_current_settings()
        settings.logging.to_api.enabled = False
        settings.client.max_retries = 0

    def stop(self) -> None:
        self._stopped = True
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.close()


@cache
def _server_log() -> IO[bytes]:
    """Open the file for the output of this process's temporary server."""
    return tempfile.TemporaryFile()


def provide_prefect_server() -> None:
    """Make sure that Prefect, imported after this, has a server: the configured one, else a
    temporary one.

    The temporary server keeps its runs in Prefect's usual database, so a lasting server shows them
    later; where that has no room, in memory. It is stopped when this process exits, after Prefect
    has sent what it still holds. Raises InputError where Prefect's folder cannot be used.
    """
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", str(HEARTBEAT_S))
    # Not pickle, where a result is kept at all
    os.environ.setdefault("PREFECT_RESULTS_DEFAULT_SERIALIZER", "json")
    if not configured_api_url():
        if problem := database_problem(prefect_home()):
            log.warning("%s: Prefect keeps nothing of this run", problem)
        server = TemporaryServer(_server_log(), _IN_MEMORY if problem else {})
        atexit.register(server.stop)
        # Otherwise a line is logged for each event that is lost
        os.environ.setdefault("PREFECT_INTERNAL_LOGGING_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "3")  # 14 s
        os.environ |= {
            "PREFECT_API_URL": server.api_url,
            CLIENT_AUTH: server.auth_string,
            TEMPORARY: "1",
        }


def database_problem(home: Path) -> str | None:
    """Return why the temporary server's database cannot grow in PREFECT_HOME; None if it can."""
    try:
        size = max((path.stat().st_size for path in home.glob("prefect.db*")), default=0)
        with tempfile.TemporaryFile(dir=home) as file:
            os.posix_fallocate(file.fileno(), 0, _DATABASE_BYTES)
            # A limit of the size of files (ulimit -f)
            os.ftruncate(file.fileno(), size + _DATABASE_BYTES)
    except OSError as error:
        return f"PREFECT_HOME {home}: {error.strerror}"
    return None


def last_words() -> str:
    """Return the last line that this process's temporary server has printed, or an empty string."""
    log = _server_log()
    log.seek(0)
    return last_line(log.read().decode(errors="replace"))


def has_lasting_server() -> bool:
    """Return whether the server outlives this run, so that other runs can see its limits and
    labels.
    """
    return bool(configured_api_url()) and TEMPORARY not in os.environ


def configured_api_url() -> str | None:
    """Read the server's address from the environment or the active Prefect profile, without
    importing Prefect.
    """
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    try:
        profiles = tomllib.loads((home / "profiles.toml").read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return None
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active", "")
    url = profiles.get("profiles", {}).get(active, {}).get("PREFECT_API_URL")
    return str(url) if url else None
