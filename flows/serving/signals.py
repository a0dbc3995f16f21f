"""Signals: where a flow must not be interrupted, and where it must be."""

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and a lost terminal meanwhile: a second one must not cut a teardown in half.

    Only the main thread gets signals, so elsewhere there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when the one that started it dies.

    A runner or worker that is killed leaves its flow runs at work with nobody to watch or to cancel them. Where that is
    not Linux it stays so. That parent also read what Prefect prints here by rich; the broken pipe must not be the end.
    """
    Console.on_broken_pipe = _be_quiet  # type: ignore[assignment, method-assign]
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _be_quiet(console: Console) -> None:
    """Print nothing more. Rich's own answer ends the process, be it while its nodes are being taken down."""
    console.quiet = True
