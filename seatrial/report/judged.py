"""What `seatrial judge` prints: a table of sweeps, and the verdict; or one JSON document."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seatrial.judge.efficiency import METRIC
from seatrial.judge.logs import Judged
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check, Expected
from seatrial.model.verdict import Verdict
from seatrial.report.terminal import STYLES
from seatrial.text import words

_COLUMNS = ("log", "operation", "plateau", "of links", "expected", "latency", "verdict")


def to_dict(judged: Judged) -> dict[str, Any]:
    """Verdict, reason, and every judgement as in run.json."""
    return {
        "verdict": judged.verdict.value,
        "reason": judged.reason,
        "judgements": [j.to_dict() for check in judged.checks for j in check.judgements],
    }


def show_judged(judged: Judged) -> None:
    """One line per sweep, why those are not a pass that are none, and `verdict: reason` as the last line."""
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(_table(judged, console.encoding))
    console.print()
    bad = [check for check in judged.checks if check.verdict is not Verdict.PASS]
    lines = [f"{check.name}: {check.reason}" for check in bad] if len(judged.checks) > 1 else []
    for line in (*lines, f"{judged.verdict.value}: {judged.reason}"):
        console.print(words.plain(line, console.encoding), markup=False, highlight=False, soft_wrap=True)


def _table(judged: Judged, encoding: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in _COLUMNS:
        table.add_column(name, no_wrap=name != "log", overflow="fold")
    for check in judged.checks:
        cells = (Text(words.plain(cell, encoding)) for cell in _cells(check))
        table.add_row(*cells, Text(words.label(check.verdict), STYLES[check.verdict]))
    return table


def _cells(check: Check) -> tuple[str, ...]:
    """Log, operation, plateau, share, expected, latency."""
    plateau, share, latency = (_one(check, metric) for metric in ("busbw_plateau", METRIC, "latency"))
    return (
        check.name,
        str(plateau.conditions["operation"]) if plateau else "",
        words.quantity(plateau.value, "GB/s") if plateau else "",
        words.fraction(share.value) if share else "",
        words.interval(_expected(check), "GB/s") if plateau else "",
        words.quantity(latency.value, "us") if latency else "",
    )


def _one(check: Check, metric: str) -> Measurement | None:
    return next((m for m in check.measurements if m.metric == metric), None)


def _expected(check: Check) -> Expected:
    found = (j.expected for j in check.judgements if j.measurement.metric == "busbw_plateau")
    return next(found, Expected())
