"""Processes, from /proc: one that cannot be mistaken for a later one with the same id; how to end
it and no other.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_OWN = 64  # of the run itself: its logs, its libraries, its server
_PER_NODE = 4  # a connection, the stream under it and, on Kubernetes, its port-forward


@dataclass(frozen=True, slots=True)
class Process:
    """`started` is in clock ticks since boot."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        status = _status(self.pid)
        return status is not None and status.started == self.started


def this_process() -> Process:
    return process(os.getpid())


def process(pid: int) -> Process:
    """Return the process with that id. Raises ProcessLookupError."""
    status = _status(pid)
    if status is None:
        raise ProcessLookupError(pid)
    return Process(pid, status.started)


def process_age_s() -> float:
    """Return seconds since this process started."""
    # USER_HZ: the kernel shows start times in hundredths on every platform
    return time.clock_gettime(time.CLOCK_BOOTTIME) - this_process().started / 100.0


def children(pid: int) -> set[int]:
    """Return the processes that this one has started and that live."""
    others = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return {other for other in others if (status := _status(other)) and status.parent == pid}


def kill_own(victim: Process, argument: str) -> bool:
    """Send SIGKILL, if it is the process that this user has started with `argument`, in a session
    of its own.

    The descriptor holds on to the process that was checked: none that gets the same id later is
    hit.
    """
    with suppress(ProcessLookupError), _held(victim.pid) as send:
        if _is_own(victim, argument):
            send(signal.SIGKILL)
            return True
    return False


@contextmanager
def _held(pid: int) -> Iterator[Callable[[int], None]]:
    """Hold on to a process; yield a function that sends it a signal. Raises ProcessLookupError."""
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
    folder = Path("/proc", str(victim.pid))
    try:
        lines = (folder / "status").read_text(errors="replace").splitlines()
        arguments = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    status = _status(victim.pid)
    users = next(line.split()[1:] for line in lines if line.startswith("Uid:"))
    of_this_user = set(users) == {str(os.geteuid())}
    leads = status is not None and status.session == victim.pid and status.started == victim.started
    return leads and of_this_user and os.fsencode(argument) in arguments


@dataclass(frozen=True, slots=True)
class _Status:
    parent: int
    session: int
    started: int


def _status(pid: int) -> _Status | None:
    """Read /proc/PID/stat; None if the process is gone or a zombie."""
    try:
        # What follows the command's name, which may hold anything, from field 3 on: state, parent,
        # group, session, ...
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        return (
            None if fields[0] in "ZX" else _Status(int(fields[1]), int(fields[3]), int(fields[19]))
        )
    except (OSError, IndexError, ValueError):
        return None


def open_files_problem(nodes: int) -> str | None:
    """Return how to raise the limit of open files if it is too low for `nodes`, else None."""
    import resource  # of POSIX: `seatrial judge` runs without

    needed = _OWN + _PER_NODE * nodes
    # A run raises its own limit so far by itself
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return None
    command = (
        f"ulimit -n {needed}" if os.geteuid() == 0 else f"sudo prlimit --pid $$ --nofile={needed}"
    )
    return f"{hard} may be open at once, {nodes} nodes need {needed}: {command}"
