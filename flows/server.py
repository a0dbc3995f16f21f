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
from pathlib import Path

_QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "seatrial",  # what the steps say is kept with the flow run
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
}

# PR_SET_PDEATHSIG (1) with SIGKILL (9): the server goes when the run does, even when nothing can be said any more.
_SERVE = """
import ctypes, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
import uvicorn
uvicorn.run("prefect.server.api.server:create_app", factory=True, fd=int(sys.argv[1]), log_level="error", lifespan="on")
"""


def provide_prefect_server(log_path: Path) -> None:
    """Make sure that Prefect, imported after this, has a server: the configured one, else a temporary one.

    The temporary server keeps its runs in Prefect's usual database, so a lasting server shows them later. It is
    stopped when this process exits, after Prefect has sent what it still holds.
    """
    for key, value in _QUIET.items():
        os.environ.setdefault(key, value)
    if configured_api_url():
        return
    with socket.socket() as listener, log_path.open("ab") as log:
        # Connections queue here until the server is up, so nobody has to ask whether it is.
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        atexit.register(_stop, _start(listener.fileno(), log.fileno()))


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


def _start(listener_fd: int, log_fd: int) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ,
        "PREFECT_UI_ENABLED": "0",
        "PREFECT__SERVER_EPHEMERAL": "1",  # leaves out the services that only a lasting server needs
        "PREFECT__SERVER_FINAL": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(listener_fd)],
        stdin=subprocess.DEVNULL,
        stdout=log_fd,
        stderr=log_fd,
        env=environment,
        pass_fds=[listener_fd],
        start_new_session=True,  # Ctrl-C is for the run, which needs its server until the end
    )


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(timeout=5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
