"""`seatrial history`: earlier runs as a table, or as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seatrial.history.rows import RunRow
from seatrial.model.verdict import Verdict

_STYLES = {
    Verdict.PASS: "green",
    Verdict.DEGRADED: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.CORRUPT: "bold magenta",
    Verdict.INCONCLUSIVE: "cyan",
    Verdict.NOT_RUN: "dim",
}


def show_history(rows: Sequence[RunRow]) -> None:
    """The table; where there is no terminal, there is room for all but a long reason."""
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(history_table(rows))


def history_table(rows: Sequence[RunRow]) -> Table:
    """One line per run, as given: newest first. Times are the reader's own."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for heading in ("run", "cluster", "suite", "started", "took", "verdict"):
        table.add_column(heading, no_wrap=True)
    table.add_column("reason", ratio=1, no_wrap=True, overflow="ellipsis")  # whole in run.json and with --json
    for row in rows:
        table.add_row(*_cells(row))
    return table


def history_json(rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    """The same as one JSON document."""
    return [row.to_dict() for row in rows]


def _cells(row: RunRow) -> tuple[Text, ...]:
    """Text, not markup: a reason may hold brackets."""
    started = row.started.astimezone().strftime("%Y-%m-%d %H:%M")
    seconds = round((row.finished - row.started).total_seconds())
    plain = (row.run_id, row.cluster, row.suite, started, _duration(seconds))
    return (*map(Text, plain), Text(row.verdict.value, _STYLES[row.verdict]), Text(row.reason))


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
