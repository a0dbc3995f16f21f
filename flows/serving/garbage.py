"""Garbage is collected beside the event loop of a Prefect server, for on SQLite it can bring the loop to a halt.

After an error SQLAlchemy leaves the cursor of its SQLite connection behind, and the garbage collector ends it: it waits
for that connection, which another thread may be using to wait for somebody's write. Where the collector does so on the
event loop, that write is never committed, and nothing goes on until SQLite gives up: a minute, each time.
"""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY_S = 1.0
_OLD, _OF_ALL = 1, 2  # generations
_ALL_EVERY = 60  # times; what has lived for long is seldom garbage, and there is much of it


def collect_apart() -> None:
    """From now on, for as long as the process lives; what there is already is left alone."""
    gc.disable()
    gc.freeze()
    threading.Thread(target=_collect, name="garbage", daemon=True).start()


@contextmanager
def never_collected() -> Iterator[None]:
    """For imports: what they make stays, and the collector would search it again and again while they go on."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _collect() -> None:
    times = 0
    while True:
        time.sleep(_EVERY_S)
        times += 1
        gc.collect(_OF_ALL if times % _ALL_EVERY == 0 else _OLD)
