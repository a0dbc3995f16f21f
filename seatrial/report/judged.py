"""What `seatrial judge` prints: a table of sweeps, and the verdict; or one JSON document."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from seatrial.judge.logs import LogsJudgement
from seatrial.model.curves import SHARE
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check, Expected
from seatrial.model.verdict import Verdict
from seatrial.report.console import output, print_line, table, verdict_cell
from seatrial.text import words

_COLUMNS = ("log", "operation", "plateau", "of links", "expected", "latency", "verdict")


def to_dict(judged: LogsJudgement) -> dict[str, Any]:
    """Verdict, reason, and every judgement as in run.json."""
    return {
        "verdict": judged.verdict.value,
        "reason": judged.reason,
        "judged": judged.coverage.extent or "none",
        "numbers": judged.coverage.to_dict(),
        "judgements": [j.to_dict() for check in judged.checks for j in check.judgements],
    }


def show_judged(judged: LogsJudgement) -> None:
    """One line per sweep, why those are not a pass that are none, and `verdict: reason` as the last line."""
    console = output()
    rows: list[Sequence[str | Text]] = [(*_cells(check), verdict_cell(check.standing)) for check in judged.checks]
    console.print(table(_COLUMNS, rows, console.encoding, folded=("log",)))
    console.print()
    bad = [check for check in judged.checks if check.verdict is not Verdict.PASS]
    lines = [f"{check.name}: {check.reason}" for check in bad] if len(judged.checks) > 1 else []
    for line in (*lines, words.verdict_line(judged.verdict, judged.coverage, judged.reason)):
        print_line(console, line)


def _cells(check: Check) -> tuple[str, ...]:
    """Log, operation, plateau, share, expected, latency."""
    plateau, share, latency = (_one(check, metric) for metric in ("busbw_plateau", SHARE, "latency"))
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
    intervals = (j.expected for j in check.judgements if j.measurement.metric == "busbw_plateau")
    return next(intervals, Expected())
