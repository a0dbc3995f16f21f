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

Cells = Sequence[str | Text]  # of a row
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
        rendered = super().__rich_console__(console, options)
        segments = (each for each in rendered if isinstance(each, Segment))
        for line in Segment.split_lines(segments):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                *others, last = line
                text = last.text.rstrip()
                yield from others
                yield Segment(text, last.style)
            yield Segment.line()


def table(
    headings: Sequence[str], rows: Iterable[Cells], encoding: str, folded: Collection[str] = ()
) -> Table:
    """Return a borderless table; columns named in `folded` may take several lines, all others take
    one.
    """
    grid = _Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        grid.add_column(heading, no_wrap=heading not in folded, overflow="fold")
    for row in rows:
        cells = []
        for cell in row:
            styled = cell
            if isinstance(cell, str):
                styled = Text(words.plain(cell, encoding))
            cells.append(styled)
        grid.add_row(*cells)
    return grid


def verdict_cell(verdict: Verdict, lacks_baseline: bool) -> Text:
    """Return a verdict in its colour; a pass of which something was compared with nothing in
    grey.
    """
    colour = STYLES[verdict]
    if lacks_baseline:
        colour = "bright_black"
    return Text(verdict.value, colour)


def print_line(console: Console, text: str) -> None:
    """Print one line of plain text, never wrapped."""
    plain = words.plain(text, console.encoding)
    console.print(plain, markup=False, highlight=False, soft_wrap=True)


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
    rows = []
    curves = []
    for check in result.checks:
        lacks_baseline = bool(check.coverage.without_baseline)
        row = (
            check.name,
            verdict_cell(check.verdict, lacks_baseline),
            words.duration(check.seconds),
            own_reason(check, result.suspects),
        )
        rows.append(row)
        for curve in busbw_curves(check):
            curves.append((check, curve))
    headings = ("check", "verdict", "time", "reason")
    checks = table(headings, rows, encoding, folded=("time", "reason"))
    checks.columns[2].justify = "right"
    console.print(checks)
    if curves:
        console.print()
        console.print(_sweep(curves, encoding))


def closing_lines(result: RunResult, encoding: str | None = None) -> str:
    """Return since when the run's state lasts, the next steps, and `verdict: reason` last, where
    scripts look for it.

    In characters that `encoding` (standard output's when None) can print.
    """
    verdict, *others = lines(result)
    encoding = encoding or sys.stdout.encoding or "ascii"
    plain = [words.plain(line, encoding) for line in (*others, verdict)]
    return "\n".join(plain)


def _sweep(curves: Sequence[tuple[Check, Curve]], encoding: str) -> Table:
    """Return one line per operation: its plateau, and its curve from the smallest message to the
    largest.
    """
    shares = [share(check, curve.operation) for check, curve in curves]
    # A column of its own only where there is something to say
    has_shares = any(share is not None for share in shares)
    headings = ["operation", "busbw", "curve", "expected"]
    rows = []
    for (check, curve), of_links in zip(curves, shares, strict=True):
        expected = curve.plateau
        if expected == Expected():
            expected = curve.points[-1].expected
        row = [
            curve.operation,
            words.quantity(plateau(check, curve.operation), "GB/s"),
            _curve(curve, encoding),
            words.interval(expected, "GB/s"),
        ]
        if has_shares:
            shown = ""
            if of_links is not None:
                shown = words.fraction(of_links)
            row.insert(2, shown)
        rows.append(row)
    if has_shares:
        headings.insert(2, "of links")
    return table(headings, rows, encoding, folded=headings)


def _curve(curve: Curve, encoding: str) -> str:
    """Draw a curve between its smallest and its largest message, where `encoding` has bars."""
    first = format_size(curve.points[0].message_bytes)
    last = format_size(curve.points[-1].message_bytes)
    rates = [point.busbw_gb_s for point in curve.points]
    drawn = sparkline(rates)
    if drawn != words.plain(drawn, encoding):
        return f"{first} to {last}"
    return f"{first} {drawn} {last}"


def sparkline(values: Sequence[float]) -> str:
    """Draw a bar per value, from zero to the largest."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    highest = len(_BARS) - 1
    bars = ""
    for value in values:
        share_of_top = max(0.0, value) / top
        bars += _BARS[round(share_of_top * highest)]
    return bars


def _suspects(
    suspects: Sequence[Suspect], nodes: Sequence[Mapping[str, Any]], encoding: str
) -> Table:
    headings = ("suspect", "confidence", "evidence")
    rows: list[Cells] = []
    for suspect in suspects[:MAX_SUSPECTS]:
        name = words.plain(words.suspect_name(suspect, nodes), encoding)
        confidence = words.fraction(suspect.confidence)
        rows.append((Text(name, "bold"), confidence, suspect.evidence.sentence))
    more = len(suspects) - MAX_SUSPECTS
    if more > 0:
        note = Text(f"and {more:,} more", "dim")
        rows.append((note, "", ""))
    return table(headings, rows, encoding, folded=headings)


def show_difference(difference: "Difference") -> None:
    """Print both runs, then verdicts, software and measurements; a part in which nothing changed
    says so.
    """
    console = output()
    before = difference.before
    after = difference.after
    for name, run in (("before", before), ("after", after)):
        started = run.started.strftime("%Y-%m-%d %H:%M %Z")
        verdict, *_ = lines(run)
        described = f"{run.run_id} of {run.cluster}, {run.suite}, {started}"
        print_line(console, f"{name}: {described}: {verdict}")
    if before.cluster != after.cluster:
        note = (
            f"two clusters, {before.cluster} and {after.cluster}: what is of a whole cluster is "
            "held against the other's"
        )
        print_line(console, note)
    sides = ("", "before", "after")
    _show(console, "verdicts", sides, map(_sides, difference.verdicts))
    _show(console, "software and shape", sides, map(_sides, difference.software))
    measurements = difference.measurements
    # Smaller moves are noise
    beyond = measurements[measurements["sigmas"] >= 1.0]
    headings = (*sides, "change", "sigmas", "")
    _show(console, "measurements", headings, map(_cells, beyond[:MAX_ROWS].itertuples()))
    left_out = (
        (len(beyond) - MAX_ROWS, "more moved beyond their noise"),
        (len(measurements) - len(beyond), "moved no further than their noise"),
        (difference.only_before, "only in the run before"),
        (difference.only_after, "only in the run after"),
    )
    rest = [f"{count} {text}" for count, text in left_out if count > 0]
    print_line(console, ", ".join(rest) or "nothing else was measured in both")


def _sides(change: "Change") -> tuple[str, str, str]:
    before = change.before or "-"
    after = change.after or "-"
    return change.what, before, after


def _cells(row: Any) -> tuple[str | Text, ...]:
    percent = (row.ratio - 1) * 100
    change = f"{percent:+.1f} %"
    if row.ratio >= 10:
        change = f"x {words.number(row.ratio)}"
    return (
        row.what,
        words.quantity(row.before, row.unit),
        words.quantity(row.after, row.unit),
        change,
        f"{row.sigmas:.1f}",
        Text(row.direction, _STYLES[row.direction]),
    )


def _show(console: Console, title: str, columns: Sequence[str], rows: Iterable[Cells]) -> None:
    """Print a table below its title; of three columns all may take several lines, else the first
    alone.
    """
    folded = columns
    if len(columns) != 3:
        folded = columns[:1]
    grid = table(columns, rows, console.encoding, folded)
    console.print()
    if not grid.row_count:
        print_line(console, f"{title}: nothing changed")
        return
    print_line(console, title)
    console.print(grid)
