"""The process of a lasting Prefect server: API, UI, scheduler, and the runs' folders for a browser.

python -m flows.webserver FD RUNS      FD is a socket that listens already
"""

import os
import sys

from flows.signals import end_with_parent

FILES = "/seatrial/runs"  # Prefect's own UI has pages under /runs


def main(fd: int, runs: str) -> None:
    end_with_parent()
    import uvicorn
    from prefect.server.api.server import create_app
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    app = create_app()
    if not os.environ.get("PREFECT_SERVER_API_AUTH_STRING"):  # Prefect would not ask for it here
        files = Mount(FILES, StaticFiles(directory=runs, check_dir=False), name="runs")
        app.router.routes.insert(0, files)  # the UI takes every path that is left
    uvicorn.run(app, fd=fd, log_level="warning", lifespan="on", timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
