"""The history: runs, measurements, suspects, incidents and pinned baselines in a database.

Importing this package is cheap; SQLAlchemy is loaded by `open_store`.
"""

import os
from typing import TYPE_CHECKING

from seatrial.history.rows import Pin, RunRow

if TYPE_CHECKING:
    from seatrial.history.store import Store

__all__ = ["Pin", "RunRow", "check_history", "open_store"]


def open_store(url: str | None = None) -> "Store":
    """Open the store at `url`, else at $SEATRIAL_HISTORY, else SQLite under the user's state
    directory.

    Creates or upgrades the schema where needed. Use it as a context manager, or call `close`.
    Raises InputError for a URL that is nonsense, MissingError when the database's driver is not
    installed, SeatrialError when the store is broken, locked or unreachable.
    """
    from seatrial.history.engine import connect
    from seatrial.history.store import Store

    return Store(connect(url))


def check_history() -> None:
    """Raise InputError if SEATRIAL_HISTORY cannot work."""
    if text := os.environ.get("SEATRIAL_HISTORY"):
        from seatrial.history.engine import make_usable, parse_url

        make_usable(parse_url(text))
