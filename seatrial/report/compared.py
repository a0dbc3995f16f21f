"""`seatrial compare`: what changed between two runs, as tables."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from seatrial.model.result import RunResult
from seatrial.report.console import output, print_line, table
from seatrial.runs.difference import Change, Difference
from seatrial.text import words

MAX_ROWS = 20
_NOISE = 1.0  # sigmas; what moved less did not move

_STYLES = {"better": "green", "worse": "red", "same": "", "": ""}


def show_difference(difference: Difference) -> None:
    """Both runs, then verdicts, software and measurements; a part in which nothing changed says so."""
    console = output()
    for name, run in (("before", difference.before), ("after", difference.after)):
        print_line(console, f"{name}: {_run(run)}")
    if (one := difference.before.cluster) != (other := difference.after.cluster):
        print_line(console, f"two clusters, {one} and {other}: what is of a whole cluster is held against the other's")
    _show(console, "verdicts", ("", "before", "after"), map(_sides, difference.verdicts))
    _show(console, "software and shape", ("", "before", "after"), map(_sides, difference.software))
    beyond = difference.measurements[difference.measurements["sigmas"] >= _NOISE]
    shown = map(_cells, beyond[:MAX_ROWS].itertuples())
    _show(console, "measurements", ("", "before", "after", "change", "sigmas", ""), shown)
    print_line(console, _rest(difference, len(beyond)))


def _rest(difference: Difference, beyond: int) -> str:
    """What the table leaves out, in one line."""
    parts = (
        (beyond - MAX_ROWS, "more moved beyond their noise"),
        (len(difference.measurements) - beyond, "moved no further than their noise"),
        (difference.only_before, "only in the run before"),
        (difference.only_after, "only in the run after"),
    )
    return ", ".join(f"{count} {what}" for count, what in parts if count > 0) or "nothing else was measured in both"


def _run(run: RunResult) -> str:
    started = run.started.strftime("%Y-%m-%d %H:%M %Z")
    return f"{run.run_id} of {run.cluster}, {run.suite}, {started}: {words.label(run.verdict)}: {run.reason}"


def _sides(change: Change) -> tuple[str, str, str]:
    return change.what, change.before or "-", change.after or "-"


def _cells(row: Any) -> tuple[str | Text, ...]:
    change = f"{(row.ratio - 1) * 100:+.1f} %" if row.ratio < 10 else f"x {row.ratio:.3g}"
    before, after = (words.quantity(value, row.unit) for value in (row.before, row.after))
    return row.what, before, after, change, f"{row.sigmas:.1f}", Text(row.direction, _STYLES[row.direction])


def _show(console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    grid = table(columns, rows, console.encoding, folded=columns if len(columns) == 3 else columns[:1])
    console.print()
    print_line(console, title if grid.row_count else f"{title}: nothing changed")
    if grid.row_count:
        console.print(grid)
