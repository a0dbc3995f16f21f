"""Prefect's worker, with an end that leaves no nodes up: `prefect worker start` kills its runs when
it is stopped.

python -m seatrial.flows.worker POOL [process|kubernetes]      works for a pool of that type, until
Ctrl-C or SIGTERM
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from seatrial.flows.serving.signals import (
    Stopped,
    end_runs,
    end_with_parent,
    starts_runs,
    stop_on_signals,
)


def main(pool: str, kind: str = "process", step: str = "") -> int:
    """Run the worker; return its exit status, or 0 once it was stopped and its runs have ended."""
    if step == "start":
        end_with_parent(signal.SIGKILL)
        starts_runs()
        python = sys.executable
        # The runs' own `python`
        os.environ["PATH"] = f"{Path(python).parent}:{os.environ.get('PATH', os.defpath)}"
        os.execv(
            python,
            [python, "-P", "-m", "prefect", "worker", "start", "--pool", pool, "--type", kind],
        )
    stop_on_signals()
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "seatrial.flows.worker", pool, kind, "start"],
        start_new_session=True,
    )
    try:
        return worker.wait()
    except Stopped:
        worker.send_signal(signal.SIGSTOP)  # what is due from now on is for the next worker
        end_runs(worker.pid)
        worker.kill()
        worker.wait()
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
