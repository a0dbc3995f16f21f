"""What the HTML page shows, in the order it is read, cut to a length that a browser and a mailbox take. Pure."""

import logging
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.checks.efficiency import METRIC as SHARE
from seatrial.measurement import Measurement
from seatrial.report import charts, words
from seatrial.report.series import (
    Curve,
    LatencyTable,
    bad_judgements,
    busbw_curves,
    latency_table,
    losses,
    plateau,
    readings,
    severity,
    share,
)
from seatrial.result import Check, Judgement, RunResult
from seatrial.verdict import Verdict

log = logging.getLogger("seatrial.report")

MAX_BAD_ROWS = 200
MAX_GOOD_ROWS = 300
MAX_NODES = 128
MAX_SUSPECTS = 40

OPEN_ROWS = 6  # a longer table of bad rows is folded under its worst row


@dataclass(frozen=True, slots=True)
class Row:
    """One judgement; `what` is only what its group's title does not say."""

    what: str
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Group:
    """Judgements of one metric under the same conditions but for message size, placement and subject."""

    title: str
    rows: tuple[Row, ...]

    @property
    def folded(self) -> bool:
        return len(self.rows) > OPEN_ROWS

    @property
    def worst(self) -> Row:
        return min(self.rows, key=lambda row: (severity(row.judgement.verdict), -abs(row.judgement.deviation or 0.0)))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Measurements of one metric that nothing judged, summed up."""

    title: str
    unit: str
    count: int
    low: Measurement
    median: float
    high: Measurement


@dataclass(frozen=True, slots=True)
class Section:
    """One check. A chart that could not be drawn is empty and `problem` says why."""

    check: Check
    busbw: str
    loss: str
    has_expected: bool
    latency: LatencyTable | None
    bad: tuple[Group, ...]
    good: tuple[Group, ...]
    left_out: int
    recorded: tuple[Recorded, ...]
    problem: str
    plateaus: str


def page(result: RunResult, log_tail: Sequence[str] = ()) -> dict[str, Any]:
    """Everything the template needs."""
    sections = [_section(check) for check in result.checks]
    return {
        "result": result,
        "sections": sections,
        "log_tail": list(log_tail),
        "facts": _facts(result),
        "suspects": list(result.suspects)[:MAX_SUSPECTS],
        "nodes": sorted(result.nodes, key=_blamed_first(result))[:MAX_NODES],
        "node_fields": _node_fields(result.nodes),
        "timings": _timings(result.timings),
    }


def _facts(result: RunResult) -> list[tuple[str, str]]:
    judgements = [j for check in result.checks for j in check.judgements]
    passed = sum(check.verdict is Verdict.PASS for check in result.checks)
    good = len(judgements) - len(bad_judgements(result.checks))
    gpus = sum(int(node.get("gpus") or 0) for node in result.nodes if str(node.get("gpus") or 0).isdecimal())
    facts = [
        ("nodes", f"{len(result.nodes):,}"),
        ("GPUs", f"{gpus:,}" if gpus else ""),
        ("checks passed", f"{passed} of {len(result.checks)}"),
        ("judgements passed", f"{good:,} of {len(judgements):,}" if judgements else ""),
        ("took", words.duration((result.finished - result.started).total_seconds())),
    ]
    return [(name, text) for name, text in facts if text]


def _section(check: Check) -> Section:
    bad = [j for _, j in bad_judgements([check])]
    good = [j for j in check.judgements if j.verdict is Verdict.PASS]
    curves, loss = busbw_curves(check), losses(check)
    problems: list[str] = []
    return Section(
        check=check,
        busbw=_chart(lambda: charts.busbw_chart(curves), problems) if curves else "",
        loss=_chart(lambda: charts.loss_chart(loss), problems) if loss else "",
        has_expected=any(_has_expected(curve) for curve in curves),
        latency=latency_table(check),
        bad=_groups(bad[:MAX_BAD_ROWS]),
        good=_groups(good[:MAX_GOOD_ROWS]),
        left_out=max(0, len(bad) - MAX_BAD_ROWS) + max(0, len(good) - MAX_GOOD_ROWS),
        recorded=_recorded(r.measurement for r in readings(check) if r.judgement is None),
        problem="; ".join(problems),
        plateaus=_plateaus(check),
    )


def _plateaus(check: Check) -> str:
    """The plateaus whose share of what the links carry is known: "all_reduce 481 GB/s, 107 % of the links"."""
    found = [(curve.operation, share(check, curve.operation)) for curve in busbw_curves(check)]
    return "; ".join(
        f"{operation} {words.quantity(plateau(check, operation), 'GB/s')}, {words.fraction(part)} of the links"
        for operation, part in found
        if part is not None
    )


def _chart(draw: Any, problems: list[str]) -> str:
    """A chart is worth less than the report it stands in: whatever stops it is said, never raised."""
    try:
        return str(draw())
    except Exception as error:
        log.warning("a chart of the report could not be drawn: %s: %s", type(error).__name__, error)
        problems.append(f"a chart could not be drawn ({type(error).__name__}: {error}); the numbers are below")
        return ""


def _has_expected(curve: Curve) -> bool:
    return any(e.low is not None for e in (*(p.expected for p in curve.points), curve.plateau))


def _groups(judgements: Sequence[Judgement]) -> tuple[Group, ...]:
    groups: dict[str, list[Row]] = {}
    for judgement in judgements:
        m = judgement.measurement
        groups.setdefault(_title(m), []).append(Row(_own_words(m), judgement))
    found = [Group(title, tuple(sorted(rows, key=_row_order))) for title, rows in groups.items()]
    return tuple(sorted(found, key=lambda group: severity(group.worst.judgement.verdict)))


def _in_row(measurement: Measurement) -> tuple[str, ...]:
    """The conditions that tell rows of one group apart; the others are said once, in the title."""
    return ("message_bytes", "placement") if "message_bytes" in measurement.conditions else ("operation",)


def _title(measurement: Measurement) -> str:
    shared = words.condition_words(measurement, without=_in_row(measurement))
    return words.metric_name(measurement.metric) + (f" · {shared}" if shared else "")


def _own_words(measurement: Measurement) -> str:
    """What tells a row from its neighbours: subject, message size, and the placement when it is the unusual one."""
    usual = ("placement",) if measurement.conditions.get("placement") == "out_of_place" else ()
    others = tuple(key for key in measurement.conditions if key not in _in_row(measurement))
    own = words.condition_words(measurement, without=(*others, *usual))
    return ", ".join(text for text in (words.subject_name(measurement.subject), own) if text)


def _row_order(row: Row) -> tuple[int, str, int, str]:
    """By message size where rows have one; else the worst first."""
    m = row.judgement.measurement
    size = m.conditions.get("message_bytes")
    placement = str(m.conditions.get("placement", ""))
    at = size if isinstance(size, int) else 0
    return at, "" if placement == "out_of_place" else placement, severity(row.judgement.verdict), m.subject.name


def _recorded(measurements: Iterable[Measurement]) -> tuple[Recorded, ...]:
    """One line per metric, operation and kind of subject; sweeps and their latencies are drawn instead."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for m in measurements:
        drawn = m.metric in ("busbw", "latency", SHARE) and m.subject.kind == "cluster"
        if m.finite and not drawn:
            each = f", by {m.subject.kind}" if m.subject.kind != "cluster" else ""
            groups.setdefault((_title(m) + each, m.unit), []).append(m)
    return tuple(_summed_up(title, unit, group) for (title, unit), group in groups.items())


def _summed_up(title: str, unit: str, group: Sequence[Measurement]) -> Recorded:
    ordered = sorted(group, key=lambda m: m.value)
    middle = statistics.median(m.value for m in group)
    return Recorded(title, words.unit_name(unit), len(group), ordered[0], middle, ordered[-1])


def _blamed_first(result: RunResult) -> Any:
    blamed = {s.name for s in result.suspects if s.kind == "node"}
    return lambda node: str(node.get("name")) not in blamed


def _node_fields(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(field) for node in nodes[:MAX_NODES] for field in node))


def _timings(timings: Mapping[str, float]) -> list[tuple[str, float, float, float]]:
    """Step, seconds, and where its bar starts and how wide it is, in percent of the whole."""
    whole = sum(timings.values()) or 1.0
    rows, start = [], 0.0
    for step, seconds in timings.items():
        rows.append((step, seconds, 100 * start / whole, 100 * seconds / whole))
        start += seconds
    return rows
