"""Prefect's worker, with an end that leaves no nodes up: `prefect worker start` kills its runs when it is stopped.

python -m flows.worker POOL [process|kubernetes]      works for a pool of that type, until Ctrl-C or SIGTERM
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from flows.serving.signals import Stopped, end_runs, end_with_parent, stop_on_signals

_START = "start"


def main(pool: str, kind: str = "process", step: str = "") -> int:
    """Run the worker; return its exit status, or 0 once it was stopped and its runs have ended."""
    if step == _START:
        _become_worker(pool, kind)
    stop_on_signals()
    worker = subprocess.Popen([sys.executable, "-P", "-m", "flows.worker", pool, kind, _START], start_new_session=True)
    try:
        return worker.wait()
    except Stopped:
        worker.send_signal(signal.SIGSTOP)  # what is due from now on is for the next worker
        end_runs(worker.pid)
        worker.kill()
        worker.wait()
        return 0


def _become_worker(pool: str, kind: str) -> NoReturn:
    end_with_parent(signal.SIGKILL)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"  # the runs' own `python`
    os.execv(sys.executable, [sys.executable, "-P", "-m", "prefect", "worker", "start", "--pool", pool, "--type", kind])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
