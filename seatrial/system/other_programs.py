"""How much of this machine's processors other programs take, of those that run all the time."""

import os
import time
from contextlib import suppress
from pathlib import Path

from seatrial.system.process import children

_TICKS_PER_S = 100.0  # USER_HZ, the same on every platform


class OtherPrograms:
    """The processes that run now, except this one and its children, and the processor time they
    take from now on.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        own = {os.getpid(), *children(os.getpid())}
        self._used = {key: ticks for key, ticks in _used_ticks().items() if key[0] not in own}

    def cores(self) -> float:
        """Return how many cores the processes have taken on average; ended ones do not count."""
        seconds = time.monotonic() - self._began
        now = _used_ticks()
        ticks = sum(now[key] - before for key, before in self._used.items() if key in now)
        return ticks / _TICKS_PER_S / seconds if seconds > 0 else 0.0


_from_the_start: list[OtherPrograms] = []  # of this process


def watch_from_now() -> None:
    """Have `watched` count from this moment on."""
    _from_the_start[:] = [OtherPrograms()]


def watched() -> OtherPrograms:
    """Return the other processes, watched since `watch_from_now`; later calls watch from now on."""
    return _from_the_start.pop() if _from_the_start else OtherPrograms()


def _used_ticks() -> dict[tuple[int, str], int]:
    """Return the processor time of each process, by its id and when it started, in ticks."""
    used = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            used[int(folder.name), fields[19]] = int(fields[11]) + int(fields[12])
    return used
