"""A runner that is told to stop ends its runs first. Prefect's own kills them, and their nodes stay up."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from prefect.runner import Runner

PATIENCE_S = 45.0  # a run that is cut off collects for 10 s, takes its nodes down, and uploads for 20 s at most
_LOOK_S = 0.2


class PatientRunner(Runner):
    """Prefect's runner, which on SIGTERM waits for its runs to take their nodes down."""

    _ending = False

    def handle_sigterm(self, *args: Any, **kwargs: Any) -> None:
        """The first is passed on to the runs; once they have ended, or with a second, Prefect does what it does."""
        if self._ending:
            super().handle_sigterm(*args, **kwargs)
        self._ending = True
        threading.Thread(target=_end_runs, name="ending", daemon=True).start()


def _end_runs() -> None:
    """In a thread of its own: runs that end talk to their runner's event loop."""
    left = children(os.getpid())
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while left & children(os.getpid()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


def children(pid: int) -> set[int]:
    """The processes that this one has started and that live."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
            if int(parent) == pid and state not in "ZX":
                found.add(int(stat.parent.name))
    return found
