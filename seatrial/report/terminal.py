"""The end of `seatrial run` on a terminal."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from seatrial.model.curves import Curve, busbw_curves, plateau, share
from seatrial.model.result import Check, Expected, RunResult, Suspect
from seatrial.model.sizes import format_size
from seatrial.report.console import table, verdict_cell
from seatrial.runs.explanations import codes_to_explain
from seatrial.text import words

MAX_SUSPECTS = 10

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class TerminalSummary:
    """Renders suspects, checks and the sweep in the characters that the console's encoding has."""

    result: RunResult

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if self.result.suspects:
            yield _suspects(self.result.suspects, options.encoding)
            yield Text()
        yield _checks(self.result.checks, options.encoding)
        curves = [(check, curve) for check in self.result.checks for curve in busbw_curves(check)]
        if curves:
            yield Text()
            yield _sweep(curves, options.encoding)
        if codes := codes_to_explain(self.result):
            yield Text()
            yield Text(f"meaning and next step: seatrial explain {' | '.join(codes)}", "dim")


def summary(result: RunResult) -> TerminalSummary:
    """What `Console.print` shows at the end of a run."""
    return TerminalSummary(result)


def closing_line(result: RunResult, encoding: str | None = None) -> str:
    """`verdict: reason` on one line, in characters that `encoding` (standard output's when None) can print."""
    return words.plain(
        words.verdict_line(result.verdict, result.coverage, result.reason), encoding or sys.stdout.encoding or "ascii"
    )


def _checks(checks: Sequence[Check], encoding: str) -> Table:
    rows = ((check.name, verdict_cell(check.standing), words.duration(check.seconds), check.reason) for check in checks)
    grid = table(("check", "verdict", "time", "reason"), rows, encoding, folded=("time", "reason"))
    grid.columns[2].justify = "right"
    return grid


def _sweep(curves: Sequence[tuple[Check, Curve]], encoding: str) -> Table:
    """One line per operation: its plateau, and its curve from the smallest message to the largest."""
    shares = [share(check, curve.operation) for check, curve in curves]
    known = any(share is not None for share in shares)  # a column of its own only where there is something to say
    headings = ("operation", "busbw", *(("of links",) if known else ()), "curve", "expected")
    rows = (
        (
            curve.operation,
            words.quantity(plateau(check, curve.operation), "GB/s"),
            *(("" if share is None else words.fraction(share),) if known else ()),
            _curve(curve, encoding),
            words.interval(_expected(curve), "GB/s"),
        )
        for (check, curve), share in zip(curves, shares, strict=True)
    )
    return table(headings, rows, encoding, folded=headings)


def _expected(curve: Curve) -> Expected:
    return curve.plateau if curve.plateau != Expected() else curve.points[-1].expected


def _curve(curve: Curve, encoding: str) -> str:
    first, last = (format_size(point.message_bytes) for point in (curve.points[0], curve.points[-1]))
    drawn = sparkline([point.busbw_gb_s for point in curve.points])
    return f"{first} {drawn} {last}" if drawn == words.plain(drawn, encoding) else f"{first} to {last}"


def sparkline(values: Sequence[float]) -> str:
    """A bar per value, from zero to the largest."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(max(0.0, value) / top * (len(_BARS) - 1))] for value in values)


def _suspects(suspects: Sequence[Suspect], encoding: str) -> Table:
    headings = ("suspect", "confidence", "evidence")
    rows: list[Sequence[str | Text]] = [
        (Text(words.plain(f"{s.kind} {s.name}", encoding), "bold"), f"{s.confidence:.0%}", s.evidence)
        for s in suspects[:MAX_SUSPECTS]
    ]
    if len(suspects) > MAX_SUSPECTS:
        rows.append((Text(f"and {len(suspects) - MAX_SUSPECTS:,} more", "dim"), "", ""))
    return table(headings, rows, encoding, folded=headings)
