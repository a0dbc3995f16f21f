"""The Prefect server of a run by hand. Where none is configured, a temporary one on this machine, for this run alone.

Prefect would start one itself, but only after it was imported, and it would outlive a killed run. Started first and
beside the imports it is up when the flow needs it; the kernel ends it when the run's process dies.
"""

import atexit
import os
import socket
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_SERVER_SETTINGS = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",  # leaves out the services that only a lasting server needs
    "PREFECT__SERVER_FINAL": "1",
}

HEARTBEAT_S = 30  # the least that Prefect takes; a lasting server calls dead what is silent for three of them
TEMPORARY = "SEATRIAL_TEMPORARY_SERVER"  # set where the Prefect server is there for one run alone

# PR_SET_PDEATHSIG (1) with SIGKILL (9): the server goes when the run does, even when nothing can be said any more.
_SERVE = """
import ctypes, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
import uvicorn
from flows.garbage import collect_apart
collect_apart()
uvicorn.run("prefect.server.api.server:create_app", factory=True, fd=int(sys.argv[1]), log_level="error", lifespan="on")
"""


@dataclass(frozen=True, slots=True)
class TemporaryServer:
    """A Prefect server of ours; `api_url` answers as soon as it is up, and connections wait until then."""

    api_url: str
    process: "subprocess.Popen[bytes]"

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def provide_prefect_server(log: IO[bytes]) -> None:
    """Make sure that Prefect, imported after this, has a server: the configured one, else a temporary one.

    The temporary server keeps its runs in Prefect's usual database, so a lasting server shows them later. It is
    stopped when this process exits, after Prefect has sent what it still holds.
    """
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", str(HEARTBEAT_S))
    if not configured_api_url():
        server = start_server(log)
        atexit.register(server.stop)
        os.environ["PREFECT_API_URL"] = server.api_url
        os.environ[TEMPORARY] = "1"


def has_lasting_server() -> bool:
    """Whether the server outlives this run, so that others can see what it holds there."""
    return bool(configured_api_url()) and TEMPORARY not in os.environ


def start_server(log: IO[bytes]) -> TemporaryServer:
    """Start a server on a free port of the loopback interface; what it says goes to `log`."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)  # connections queue here until the server is up, so nobody has to ask whether it is
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **_SERVER_SETTINGS},
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C is for the run, which needs its server until the end
        )
        return TemporaryServer(f"http://127.0.0.1:{listener.getsockname()[1]}/api", process)


def configured_api_url() -> str | None:
    """The server that the environment or the active Prefect profile names; read without importing Prefect."""
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
