"""One section of the report per check: its charts, its judgements, its logs. Pure."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seatrial.checks.table import CHECKS
from seatrial.model.arms import INTRA, arm_of
from seatrial.model.curves import (
    LatencyTable,
    Point,
    bad_judgements,
    busbw_curves,
    latency_table,
    losses,
    plateau,
    readings,
    share,
)
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.report import charts
from seatrial.report.context import NO_CONTEXT, LogFile, ReportContext
from seatrial.report.tables import JudgementGroup, Recorded, groups, recorded
from seatrial.text import words

log = logging.getLogger("seatrial.report")

MAX_BAD_ROWS = 200
MAX_GOOD_ROWS = 300


@dataclass(frozen=True, slots=True)
class Section:
    """One check. A chart that could not be drawn is empty and `problem` says why."""

    check: Check
    busbw: str
    loss: str
    legend: str
    latency: LatencyTable | None
    bad: tuple[JudgementGroup, ...]
    good: tuple[JudgementGroup, ...]
    left_out: int
    recorded: tuple[Recorded, ...]
    problem: str
    plateaus: str
    logs: tuple[LogFile, ...]


def section(check: Check, context: ReportContext = NO_CONTEXT) -> Section:
    """Everything that the report shows of the check."""
    bad = [j for _, j in bad_judgements([check])]
    good = [j for j in check.judgements if j.verdict is Verdict.PASS]
    curves, loss = busbw_curves(check), losses(check)
    problems: list[str] = []

    def last(point: Point) -> float | None:
        return context.past.last_value(point.series)

    return Section(
        check=check,
        busbw=drawn(lambda: charts.busbw_chart(curves, last), problems) if curves else "",
        loss=drawn(lambda: charts.loss_chart(loss), problems) if loss else "",
        legend=charts.busbw_caption(curves, last),
        latency=latency_table(check),
        bad=groups(bad[:MAX_BAD_ROWS]),
        good=groups(good[:MAX_GOOD_ROWS]),
        left_out=max(0, len(bad) - MAX_BAD_ROWS) + max(0, len(good) - MAX_GOOD_ROWS),
        recorded=recorded(r.measurement for r in readings(check) if r.judgement is None),
        problem="; ".join(problems),
        plateaus=_plateaus(check),
        logs=_logs(check, context.logs),
    )


def drawn(draw: Callable[[], str], problems: list[str]) -> str:
    """A chart is worth less than the report it stands in: whatever stops it is said, never raised."""
    try:
        return draw()
    except Exception as error:
        log.warning("a chart of the report could not be drawn: %s: %s", type(error).__name__, error)
        problems.append(f"a chart could not be drawn ({type(error).__name__}: {error}); the numbers are below")
        return ""


def _plateaus(check: Check) -> str:
    """The plateaus whose share of what the links carry is known: "all_reduce 481 GB/s, 107 % of the links"."""
    shares = [(curve.operation, share(check, curve.operation)) for curve in busbw_curves(check)]
    return "; ".join(
        f"{operation} {words.quantity(plateau(check, operation), 'GB/s')}, {words.fraction(part)} of the links"
        for operation, part in shares
        if part is not None
    )


def _logs(check: Check, logs: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """The logs that are named as the check or as an operation of it."""
    names = {check.name, *(name for m in check.measurements for name in _log_names(m))}
    names.update(name for kind in CHECKS if kind.name == check.name for name in kind.logs)
    return tuple(file for file in logs if file.name.removesuffix(".log") in names)


def _log_names(m: Measurement) -> Iterator[str]:
    """Of a sweep: by its operation, its arm and the node, where each was measured by itself."""
    operation, arm = m.conditions.get("operation"), arm_of(m)
    yield "-".join(str(part) for part in (operation, arm, m.subject.name if arm == INTRA else "") if part)
