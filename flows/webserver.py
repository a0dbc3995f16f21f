"""The process of a lasting Prefect server: API, UI, scheduler, and the runs' folders for a browser.

python -m flows.webserver FD LIFE RUNS

FD is a socket that listens already, LIFE the end of a pipe: where it is closed on the other side, `seatrial serve` and
its runner have both ended, and nobody needs this server any more. Not sooner: runs that end with them say so here.
"""

import logging
import os
import signal
import sys
import threading

from flows.garbage import collect_apart

FILES = "/seatrial/runs"  # Prefect's own UI has pages under /runs


class _Noise(logging.Filter):
    """A heartbeat that arrives after its run's end makes the server look for a zombie, in vain: no word is needed."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "already in terminal state" not in record.getMessage()


def main(fd: int, life: int, runs: str) -> None:
    threading.Thread(target=_end_with, args=(life,), name="life", daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    app = create_app()
    logging.getLogger("prefect.server.events.actions").addFilter(_Noise())
    if not asks_for_a_login():  # Prefect would not ask for it here
        files = Mount(FILES, StaticFiles(directory=runs, check_dir=False), name="runs")
        app.router.routes.insert(0, files)  # the UI takes every path that is left
    collect_apart()
    uvicorn.run(app, fd=fd, log_level="warning", lifespan="on", timeout_graceful_shutdown=3)


def asks_for_a_login() -> bool:
    """Whether the environment or Prefect's profile says so."""
    from prefect.settings import get_current_settings

    return bool(get_current_settings().server.api.auth_string)


def _end_with(life: int) -> None:
    os.read(life, 1)  # nobody ever writes
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
