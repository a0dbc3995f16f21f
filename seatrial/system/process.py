"""A process that cannot be mistaken for a later one with the same id, and how to end it and no other."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """`started` is in clock ticks since boot."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return _start_ticks(self.pid) == self.started


def this_process() -> Process:
    return process(os.getpid())


def process(pid: int) -> Process:
    """Raises ProcessLookupError when there is none."""
    started = _start_ticks(pid)
    if started is None:
        raise ProcessLookupError(pid)
    return Process(pid, started)


def kill_own(victim: Process, argument: str) -> bool:
    """Send SIGKILL, if it is the process that this user has started with `argument`, in a session of its own.

    The descriptor holds on to the process that was checked: none that gets the same id later is hit.
    """
    with suppress(ProcessLookupError), _held(victim.pid) as send:
        if _is_own(victim, argument):
            send(signal.SIGKILL)
            return True
    return False


@contextmanager
def _held(pid: int) -> Iterator[Callable[[int], None]]:
    """How to send that process a signal. Raises ProcessLookupError when there is none."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError) as error:
        if isinstance(error, ProcessLookupError):
            raise
        yield partial(os.kill, pid)  # a kernel before 5.3
        return
    try:
        yield partial(signal.pidfd_send_signal, descriptor)
    finally:
        os.close(descriptor)


def _is_own(victim: Process, argument: str) -> bool:
    try:
        folder = Path("/proc", str(victim.pid))
        status = (folder / "status").read_text(errors="replace")
        arguments = (folder / "cmdline").read_bytes().split(b"\0")
        session = int(_stat(victim.pid)[3])
    except (OSError, ValueError, IndexError):
        return False
    user = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    of_this_user = set(user) == {str(os.geteuid())}
    return victim.alive and of_this_user and session == victim.pid and os.fsencode(argument) in arguments


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None when the process is gone or a zombie."""
    try:
        fields = _stat(pid)
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError):
        return None


def _stat(pid: int) -> list[str]:
    """What follows the command's name, which may hold anything: state, parent, group, session, ..."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
