"""`seatrial compare`: what changed between two runs, as tables."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from seatrial.judge.difference import Difference, MeasurementChange
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.console import output, print_line, table
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
    turned = ((t.what, _verdict(t.before), _verdict(t.after)) for t in difference.verdicts)
    _show(console, "verdicts", ("", "before", "after"), turned)
    replaced = ((r.what, r.before or "-", r.after or "-") for r in difference.software)
    _show(console, "software and shape", ("", "before", "after"), replaced)
    beyond = [m for m in difference.measurements if m.sigmas >= _NOISE]
    shown = [[*_cells(m), Text(m.direction, _STYLES[m.direction])] for m in beyond[:MAX_ROWS]]
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


def _verdict(verdict: Verdict | None) -> str:
    return words.label(verdict) if verdict else "-"


def _cells(moved: MeasurementChange) -> list[str | Text]:
    m = moved.after
    change = f"{(moved.ratio - 1) * 100:+.1f} %" if moved.ratio < 10 else f"x {moved.ratio:.3g}"
    before, after = (words.quantity(value, m.unit) for value in (moved.before.value, m.value))
    return [words.what(m), before, after, change, f"{moved.sigmas:.1f}"]


def _show(console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    grid = table(columns, rows, console.encoding, folded=columns if len(columns) == 3 else columns[:1])
    console.print()
    print_line(console, title if grid.row_count else f"{title}: nothing changed")
    if grid.row_count:
        console.print(grid)
