"""Results on a terminal: the end of a run, judgements of logs, and the difference of two runs."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from seatrial.model.curves import Curve, busbw_curves, plateau, share
from seatrial.model.result import Check, Expected, RunResult, Suspect
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.text import words
from seatrial.text.headline import lines, own_reason

if TYPE_CHECKING:
    from seatrial.runs.difference import Change, Difference

STYLES: dict[str, str] = {
    Verdict.PASS: "bold green",
    Verdict.DEGRADED: "bold yellow",
    Verdict.FAIL: "bold red",
    Verdict.CORRUPT: "bold magenta",
    Verdict.INCONCLUSIVE: "bold blue",
    Verdict.NOT_RUN: "bold bright_black",
}
MAX_SUSPECTS = 10
_BARS = "▁▂▃▄▅▆▇█"
MAX_ROWS = 20
_STYLES = {"better": "green", "worse": "red", "same": "", "": ""}


def output() -> Console:
    """Return standard output, on which a table wraps only on a terminal."""
    return unwrapped(Console(emoji=False))  # node-1:1234:56 of a log is no emoji


def unwrapped(console: Console) -> Console:
    """Return `console`, on which a table wraps only if it is a terminal."""
    if not console.is_terminal:
        console.width = 10_000  # a row is a line, for grep
    return console


class _Grid(Table):
    """A table whose lines end with their text: rich pads each to the width of the widest."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        rendered = (
            each for each in super().__rich_console__(console, options) if isinstance(each, Segment)
        )
        for line in Segment.split_lines(rendered):
            while line and not line[-1].text.strip():
                line.pop()
            yield from line[:-1]
            if line:
                yield Segment(line[-1].text.rstrip(), line[-1].style)
            yield Segment.line()


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    encoding: str,
    folded: Collection[str] = (),
) -> Table:
    """Return a borderless table; columns named in `folded` may take several lines, all others take
    one.
    """
    grid = _Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        grid.add_column(heading, no_wrap=heading not in folded, overflow="fold")
    for row in rows:
        grid.add_row(
            *(cell if isinstance(cell, Text) else Text(words.plain(cell, encoding)) for cell in row)
        )
    return grid


def verdict_cell(verdict: Verdict, lacks_baseline: bool) -> Text:
    """Return a verdict in its colour; a pass of which something was compared with nothing in
    grey.
    """
    return Text(verdict.value, "bright_black" if lacks_baseline else STYLES[verdict])


def print_line(console: Console, text: str) -> None:
    """Print one line of plain text, never wrapped."""
    console.print(
        words.plain(text, console.encoding), markup=False, highlight=False, soft_wrap=True
    )


def print_rows(console: Console, lines: Sequence[str]) -> None:
    """Print lines of a picture in characters, whose spaces are kept."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def show_summary(result: RunResult, console: Console) -> None:
    """Print the evidence at the end of a run: suspects, checks and the sweep; `closing_lines` come
    after it.
    """
    encoding = console.encoding
    if result.suspects:
        console.print(_suspects(result.suspects, result.nodes, encoding))
        console.print()
    rows = (
        (
            check.name,
            verdict_cell(check.verdict, bool(check.coverage.without_baseline)),
            words.duration(check.seconds),
            own_reason(check, result.suspects),
        )
        for check in result.checks
    )
    checks = table(
        ("check", "verdict", "time", "reason"), rows, encoding, folded=("time", "reason")
    )
    checks.columns[2].justify = "right"
    console.print(checks)
    curves = [(check, curve) for check in result.checks for curve in busbw_curves(check)]
    if curves:
        console.print()
        console.print(_sweep(curves, encoding))


def closing_lines(result: RunResult, encoding: str | None = None) -> str:
    """Return since when the run's state lasts, the next steps, and `verdict: reason` last, where
    scripts look for it.

    In characters that `encoding` (standard output's when None) can print.
    """
    verdict, *others = lines(result)
    return "\n".join(
        words.plain(line, encoding or sys.stdout.encoding or "ascii") for line in (*others, verdict)
    )


def _sweep(curves: Sequence[tuple[Check, Curve]], encoding: str) -> Table:
    """Return one line per operation: its plateau, and its curve from the smallest message to the
    largest.
    """
    shares = [share(check, curve.operation) for check, curve in curves]
    # A column of its own only where there is something to say
    has_shares = any(share is not None for share in shares)
    headings = ("operation", "busbw", *(("of links",) if has_shares else ()), "curve", "expected")
    rows = (
        (
            curve.operation,
            words.quantity(plateau(check, curve.operation), "GB/s"),
            *(("" if share is None else words.fraction(share),) if has_shares else ()),
            _curve(curve, encoding),
            words.interval(
                curve.plateau if curve.plateau != Expected() else curve.points[-1].expected, "GB/s"
            ),
        )
        for (check, curve), share in zip(curves, shares, strict=True)
    )
    return table(headings, rows, encoding, folded=headings)


def _curve(curve: Curve, encoding: str) -> str:
    first, last = (
        format_size(point.message_bytes) for point in (curve.points[0], curve.points[-1])
    )
    drawn = sparkline([point.busbw_gb_s for point in curve.points])
    return (
        f"{first} {drawn} {last}" if drawn == words.plain(drawn, encoding) else f"{first} to {last}"
    )


def sparkline(values: Sequence[float]) -> str:
    """Draw a bar per value, from zero to the largest."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(max(0.0, value) / top * (len(_BARS) - 1))] for value in values)


def _suspects(
    suspects: Sequence[Suspect], nodes: Sequence[Mapping[str, Any]], encoding: str
) -> Table:
    headings = ("suspect", "confidence", "evidence")
    rows: list[Sequence[str | Text]] = [
        (
            Text(words.plain(words.suspect_name(s, nodes), encoding), "bold"),
            words.fraction(s.confidence),
            s.evidence.sentence,
        )
        for s in suspects[:MAX_SUSPECTS]
    ]
    if len(suspects) > MAX_SUSPECTS:
        rows.append((Text(f"and {len(suspects) - MAX_SUSPECTS:,} more", "dim"), "", ""))
    return table(headings, rows, encoding, folded=headings)


def show_difference(difference: "Difference") -> None:
    """Print both runs, then verdicts, software and measurements; a part in which nothing changed
    says so.
    """
    console = output()
    for name, run in (("before", difference.before), ("after", difference.after)):
        started = run.started.strftime("%Y-%m-%d %H:%M %Z")
        print_line(
            console,
            f"{name}: {run.run_id} of {run.cluster}, {run.suite}, {started}: {lines(run)[0]}",
        )
    if (one := difference.before.cluster) != (other := difference.after.cluster):
        print_line(
            console,
            (
                f"two clusters, {one} and {other}: what is of a whole cluster is held against "
                "the other's"
            ),
        )
    _show(console, "verdicts", ("", "before", "after"), map(_sides, difference.verdicts))
    _show(console, "software and shape", ("", "before", "after"), map(_sides, difference.software))
    # What moved less did not move
    beyond = difference.measurements[difference.measurements["sigmas"] >= 1.0]
    shown = map(_cells, beyond[:MAX_ROWS].itertuples())
    _show(console, "measurements", ("", "before", "after", "change", "sigmas", ""), shown)
    left_out = (
        (len(beyond) - MAX_ROWS, "more moved beyond their noise"),
        (len(difference.measurements) - len(beyond), "moved no further than their noise"),
        (difference.only_before, "only in the run before"),
        (difference.only_after, "only in the run after"),
    )
    rest = ", ".join(f"{count} {text}" for count, text in left_out if count > 0)
    print_line(console, rest or "nothing else was measured in both")


def _sides(change: "Change") -> tuple[str, str, str]:
    return change.what, change.before or "-", change.after or "-"


def _cells(row: Any) -> tuple[str | Text, ...]:
    change = f"{(row.ratio - 1) * 100:+.1f} %" if row.ratio < 10 else f"x {words.number(row.ratio)}"
    before, after = (words.quantity(value, row.unit) for value in (row.before, row.after))
    return (
        row.what,
        before,
        after,
        change,
        f"{row.sigmas:.1f}",
        Text(row.direction, _STYLES[row.direction]),
    )


def _show(
    console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]
) -> None:
    grid = table(
        columns, rows, console.encoding, folded=columns if len(columns) == 3 else columns[:1]
    )
    console.print()
    print_line(console, title if grid.row_count else f"{title}: nothing changed")
    if grid.row_count:
        console.print(grid)
