"""Signals, where a flow must not be interrupted."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
