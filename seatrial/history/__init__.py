"""The history: runs, measurements, suspects, incidents and pinned baselines in a database.

Importing this package is cheap; SQLAlchemy is loaded by `open_store`.
"""

import os
from typing import TYPE_CHECKING

from seatrial.history.rows import Pin, RunRow
from seatrial.model.reason import Explanation, register

if TYPE_CHECKING:
    from seatrial.history.store import Store

__all__ = ["REASONS", "Pin", "RunRow", "check_history", "open_store"]


def open_store(url: str | None = None) -> "Store":
    """Open the store at `url`, else at $SEATRIAL_HISTORY, else SQLite under the user's state directory.

    Creates or upgrades the schema where needed. Use it as a context manager, or call `close`. Raises InputError for a
    URL that is nonsense, MissingError when the database's driver is not installed, SeatrialError when the store is
    broken, locked or unreachable.
    """
    from seatrial.history.engine import connect
    from seatrial.history.store import Store

    return Store(connect(url))


def check_history() -> None:
    """Raise InputError if SEATRIAL_HISTORY cannot work."""
    if text := os.environ.get("SEATRIAL_HISTORY"):
        from seatrial.history.engine import make_usable, parse_url

        make_usable(parse_url(text))


REASONS = {
    "history-failed": Explanation(
        "history {place}: {action}: {problem}{next_step}",
        "The store of earlier runs cannot be read or written.",
        "Follow the end of the line: another process holds the file, the path, the server, or `SEATRIAL_HISTORY`.",
    ),
    "history-driver-missing": Explanation(
        "history {place}: {action}: {problem}; install seatrial with its extra `postgres`",
        "The PostgreSQL driver is not installed.",
        "Install seatrial with its extra `postgres`: `uv tool install 'seatrial[postgres] @ WHEEL'`.",
    ),
    "history-too-new": Explanation(
        "history {place}: a newer seatrial wrote it ({problem}); upgrade seatrial",
        "A newer version of seatrial changed the tables of the store.",
        "Upgrade seatrial on this machine.",
    ),
    "run-overdue": Explanation(
        "{late}; check its schedule and its worker",
        "The flow `watch` found no run of the suite on this cluster within the time that is allowed.",
        "Check the schedule, the worker and `SEATRIAL_HISTORY`, and whether an earlier run still holds the cluster.",
        formerly=("run-never-recorded",),
    ),
}

register(REASONS)
