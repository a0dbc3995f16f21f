"""A runner or worker that is told to stop ends its runs first. Prefect's own kill them, and their nodes stay up."""

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any

from prefect.runner import Runner

from seatrial.system.process import children

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
        self.stopping = self._scheduled_run_poller.stopping = True  # what is due now is for the next one
        threading.Thread(target=_end_runs_and_stop, name="ending", daemon=True).start()


def _end_runs_and_stop() -> None:
    end_runs()
    os.kill(os.getpid(), signal.SIGTERM)


def end_runs() -> None:
    """Have this process's runs end. In a thread of its own: runs that end talk to their runner's event loop."""
    signalled: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while (left := children(os.getpid())) and time.monotonic() < deadline:
        for pid in left - signalled:  # also one that was being started this moment
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        signalled |= left
        time.sleep(_LOOK_S)
