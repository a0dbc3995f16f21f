"""Signals: where a flow must not be interrupted, and how it ends with the process that started
it.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

from rich.console import Console

from seatrial.system.process import children

# A run that is cut off collects for 10 s, takes its nodes down, and uploads for 20 s at most
PATIENCE_S = 45.0
_REPORT_S = 30  # to say to the server how a run was cut off, whole seconds
_LOOK_S = 0.2
_STARTER = "SEATRIAL_STARTED_BY"  # process id of the runner or worker
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], object] | signal.Handlers


class Stopped(BaseException):
    """A signal that stops `seatrial serve` or the worker."""


def stop_on_signals() -> None:
    """Have SIGINT, SIGTERM and SIGHUP raise Stopped."""

    def stop(number: int, frame: object) -> None:
        raise Stopped

    for number in _SIGNALS:
        signal.signal(number, stop)


@contextmanager
def _handled(handlers: Mapping[signal.Signals, _Handler]) -> Iterator[None]:
    """Install `handlers` within the context; restore the earlier ones after it.

    Only the main thread gets signals: in other threads, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def uninterrupted() -> AbstractContextManager[None]:
    """Ignore Ctrl-C, SIGTERM and a lost terminal within the context: a second one must not cut a
    teardown in half.
    """
    return _handled(dict.fromkeys(_SIGNALS, signal.SIG_IGN))


def first_signal_alone(is_served: bool = False) -> AbstractContextManager[None]:
    """Pass one signal on to its handler within the context, and ignore repeated ones.

    People press Ctrl-C twice, and `kill` reaches a process group. A served run keeps Prefect's
    handler of SIGTERM, without which Prefect takes a cancelled run for a crashed one.
    """
    numbers = (number for number in _SIGNALS if not (is_served and number is signal.SIGTERM))
    before = {
        number: handler for number in numbers if callable(handler := signal.getsignal(number))
    }
    received = threading.Event()

    def pass_on(number: int, frame: FrameType | None) -> None:
        if not received.is_set():
            received.set()
            before[signal.Signals(number)](number, frame)

    return _handled(dict.fromkeys(before, pass_on))


def starts_runs() -> None:
    """Set the variable by which child processes know this process, for `end_with_parent`."""
    os.environ[_STARTER] = str(os.getpid())


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send a signal to this process when its parent dies; outside Linux do nothing.

    A runner or worker that is killed would leave its flow runs at work, and no one could cancel
    them. If the parent died while this process was still importing, send the signal here. The
    parent also reads what Prefect prints through rich: a broken pipe must not end this process.
    """
    Console.on_broken_pipe = _be_quiet  # type: ignore[assignment, method-assign]
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(number), 0, 0, 0)  # PR_SET_PDEATHSIG
    starter = os.environ.get(_STARTER, "")
    if starter.isdecimal() and int(starter) not in (os.getppid(), os.getpid()):
        os.kill(os.getpid(), number)


def end_soon() -> None:
    """Have the kernel end this process soon: Prefect's client retries for minutes if the server is
    gone.

    The server itself marks a run as crashed whose heartbeat stops.
    """
    signal.alarm(_REPORT_S)


def _be_quiet(console: Console) -> None:
    """Print nothing more after a broken pipe, on which rich would end the process while nodes are
    being taken down.

    Point the file descriptor to /dev/null: otherwise the flush at exit would fail and the exit
    status be 120.
    """
    console.quiet = True
    with suppress(OSError, ValueError):  # a stream without a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, console.file.fileno())
        os.close(nowhere)


def end_runs(starter: int) -> None:
    """Send SIGTERM to the runs that a runner or worker has started, and wait until they have taken
    their nodes down.
    """
    signalled: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while (left := children(starter)) and time.monotonic() < deadline:
        for pid in left - signalled:  # also one that was being started this moment
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        signalled |= left
        time.sleep(_LOOK_S)
