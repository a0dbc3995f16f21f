"""`seatrial history`: earlier runs as a table, as a pandas frame, or as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from seatrial.history.rows import RunRow
from seatrial.report.console import output, table, verdict_cell

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = ("run", "cluster", "suite", "started", "took", "verdict", "reason")


def show_history(rows: Sequence[RunRow]) -> None:
    """Print the table; without a terminal it is wide enough for all but long reasons."""
    console = output()
    console.print(history_table(rows, console.encoding))


def history_table(rows: Sequence[RunRow], encoding: str) -> Table:
    """One line per run, as given: newest first. Times are the reader's own."""
    grid = table(_COLUMNS, map(_cells, rows), encoding)
    grid.expand = True
    grid.columns[-1].ratio, grid.columns[-1].overflow = 1, "ellipsis"  # whole in run.json and with --json
    return grid


def history_frame(rows: Sequence[RunRow]) -> "DataFrame":
    """One row per run, as given, with a column for each version of its software: `fingerprint.driver`."""
    import pandas as pd

    return pd.json_normalize(history_json(rows))


def history_json(rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    """The same as one JSON document, with whole reasons and times in UTC."""
    return [row.to_dict() for row in rows]


def _cells(row: RunRow) -> tuple[str | Text, ...]:
    started = row.started.astimezone().strftime("%Y-%m-%d %H:%M")
    seconds = round((row.finished - row.started).total_seconds())
    plain = (row.run_id, row.cluster, row.suite, started, _duration(seconds))
    return (*plain, verdict_cell(row.verdict), row.reason)


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
