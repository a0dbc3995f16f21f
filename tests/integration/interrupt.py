"""Ctrl-C at the right moment."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupted_when(true: Callable[[], bool]) -> Iterator[None]:
    """Send this process SIGINT once `true` holds; the block must not end before."""

    def interrupt() -> None:
        while not true():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
