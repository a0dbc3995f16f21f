"""The process of a lasting Prefect server: API, UI, scheduler, and the runs' folders for a browser.

python -m flows.serving.webserver FD LIFE RUNS HOSTS

HOSTS are the names that it is reached by, with commas. The login that it asks for is in its environment. FD is a socket
that listens already, LIFE the end of a pipe: where it is closed on the other side, `seatrial serve` and
its runner have both ended, and nobody needs this server any more. Not sooner: runs that end with them say so here.
"""

import logging
import os
import signal
import sys
import threading

from flows.serving.auth import ORIGINS, SERVER_AUTH
from flows.serving.garbage import collect_apart

FILES = "/seatrial/runs"  # Prefect's own UI has pages under /runs


class _HeartbeatNoiseFilter(logging.Filter):
    """A heartbeat that arrives after its run's end makes the server look for a zombie, in vain: no word is needed."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "already in terminal state" not in record.getMessage()


def main(fd: int, life: int, runs: str, hosts: str) -> None:
    os.umask(0o077)  # its database holds secrets
    threading.Thread(target=_end_with, args=(life,), name="life", daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    from flows.serving.guard import guarded

    app = create_app()
    logging.getLogger("prefect.server.events.actions").addFilter(_HeartbeatNoiseFilter())
    served = guarded(app, os.environ[SERVER_AUTH], FILES, runs, hosts.split(","), os.environ[ORIGINS].split(","))
    collect_apart()
    uvicorn.run(served, fd=fd, log_level="warning", lifespan="on", timeout_graceful_shutdown=3)


def _end_with(life: int) -> None:
    os.read(life, 1)  # nobody ever writes
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
