"""A lasting Prefect server for its own host names and pages alone: API, UI, scheduler.

python -m flows.serving.webserver      in a container (deployments/server), on port 4200 of every address
python -m flows.serving.webserver FD LIFE RUNS HOSTS      as `seatrial serve` starts it

In a container SEATRIAL_SERVER_HOSTS lists further host names, with commas, besides localhost and the host of
PREFECT_SERVER_UI_API_URL. The pages of PREFECT_SERVER_CORS_ALLOWED_ORIGINS may talk to it. The login is
PREFECT_SERVER_API_AUTH_STRING; without one it does not start.

FD is a socket that listens already, RUNS the folder that browsers may read, HOSTS the server's names with commas. LIFE
is the end of a pipe: once it is closed on the other side, `seatrial serve` and its runner have both ended, and this
server ends too. Not sooner: runs that end with them report here.
"""

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from flows.serving.auth import ORIGINS, SERVER_AUTH

FILES = "/seatrial/runs"  # Prefect's own UI has pages under /runs
HOSTS = "SEATRIAL_SERVER_HOSTS"
PORT = 4200
_UI_API_URL = "PREFECT_SERVER_UI_API_URL"
_COLLECT_S = 1.0
_OLD, _OF_ALL = 1, 2  # generations of garbage
_ALL_EVERY = 60  # times; old objects are seldom garbage, and there are many


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Listen on a TCP address; port 0 is any free one. Raises OSError, or TypeError for what is no host name.

    Connections inherit TCP_NODELAY. asyncio sets it only on sockets that it knows to be TCP, and uvicorn takes a socket
    by its number for a Unix one: each answer would wait 40 ms for the client's delayed acknowledgement.
    """
    listener = socket.socket()
    try:
        # One that was closed a moment ago does not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def collect_apart() -> None:
    """Collect garbage in a thread for as long as the process lives: on the event loop it can halt a server on SQLite.

    After an error SQLAlchemy leaves a cursor behind, and the collector ends it: it waits for the cursor's connection,
    which another thread may be using to wait for a write. On the event loop that write is then never committed, and the
    server stands still until SQLite gives up, a minute later.
    """
    gc.disable()
    gc.freeze()
    threading.Thread(target=_collect, name="garbage", daemon=True).start()


def _collect() -> None:
    times = 0
    while True:
        time.sleep(_COLLECT_S)
        times += 1
        gc.collect(_OF_ALL if times % _ALL_EVERY == 0 else _OLD)


def own_names(environment: Mapping[str, str]) -> list[str]:
    """List the host names that requests to a container may be for."""
    listed = [name.strip() for name in environment.get(HOSTS, "").split(",")]
    public_host = urlsplit(environment.get(_UI_API_URL, "")).hostname or ""
    return sorted({"127.0.0.1", "localhost", public_host, *listed} - {"", "*"})


class _HeartbeatNoiseFilter(logging.Filter):
    """Drop the line that the server logs when a late heartbeat belongs to a run that has ended."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "already in terminal state" not in record.getMessage()


def main(fd: str = "", life: str = "", runs: str = "", hosts: str = "") -> None:
    if not os.environ.get(SERVER_AUTH):
        sys.exit(f"seatrial: {SERVER_AUTH}: is not set; give USER:PASSWORD")
    os.umask(0o077)  # its database holds secrets
    if life:
        threading.Thread(target=_end_with, args=(int(life),), name="life", daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    from flows.serving.guard import guarded, own_pages_alone

    app: Any = create_app()
    logging.getLogger("prefect.server.events.actions").addFilter(_HeartbeatNoiseFilter())
    origins = [origin for origin in os.environ.get(ORIGINS, "").split(",") if origin]
    if runs:
        app = guarded(app, os.environ[SERVER_AUTH], FILES, runs)
    where: dict[str, Any] = {"fd": int(fd)} if fd else {"host": "0.0.0.0", "port": PORT}
    served = own_pages_alone(app, hosts.split(",") if hosts else own_names(os.environ), origins)
    collect_apart()
    uvicorn.run(served, **where, log_level="warning", lifespan="on", timeout_graceful_shutdown=3)


def _end_with(life: int) -> None:
    os.read(life, 1)  # nothing is ever written
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(*sys.argv[1:])
