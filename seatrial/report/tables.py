"""Judgements and recorded numbers of a check as tables, cut to a length that a browser and a mailbox take. Pure."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seatrial.model.curves import SHARE
from seatrial.model.measurement import Measurement
from seatrial.model.result import Judgement
from seatrial.text import words

OPEN_ROWS = 6  # a longer table of bad rows is folded under its worst row


@dataclass(frozen=True, slots=True)
class JudgementRow:
    """One judgement; `what` is only what its group's title does not say."""

    what: str
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class JudgementGroup:
    """Judgements of one metric under the same conditions but for message size, placement and subject."""

    title: str
    rows: tuple[JudgementRow, ...]

    @property
    def folded(self) -> bool:
        return len(self.rows) > OPEN_ROWS

    @property
    def worst(self) -> JudgementRow:
        return min(self.rows, key=lambda row: (row.judgement.verdict.severity, -abs(row.judgement.deviation or 0.0)))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Measurements of one metric that nothing judged, summed up."""

    title: str
    unit: str
    count: int
    low: Measurement
    median: float
    high: Measurement


def groups(judgements: Sequence[Judgement]) -> tuple[JudgementGroup, ...]:
    """The worst group first."""
    by_title: dict[str, list[JudgementRow]] = {}
    for judgement in judgements:
        m = judgement.measurement
        by_title.setdefault(_title(m), []).append(JudgementRow(_own_words(m), judgement))
    sorted_groups = [JudgementGroup(title, tuple(sorted(rows, key=_row_order))) for title, rows in by_title.items()]
    return tuple(sorted(sorted_groups, key=lambda group: group.worst.judgement.verdict.severity))


def recorded(measurements: Iterable[Measurement]) -> tuple[Recorded, ...]:
    """One line per metric, operation and kind of subject; sweeps and their latencies are drawn instead."""
    by_metric: dict[tuple[str, str], list[Measurement]] = {}
    for m in measurements:
        drawn = m.metric in ("busbw", "latency", SHARE) and m.subject.kind == "cluster"
        if m.finite and not drawn:
            each = f", by {m.subject.kind}" if m.subject.kind != "cluster" else ""
            by_metric.setdefault((_title(m) + each, m.unit), []).append(m)
    return tuple(_summed_up(title, unit, group) for (title, unit), group in by_metric.items())


def _in_row(measurement: Measurement) -> tuple[str, ...]:
    """The conditions that tell rows of one group apart; the others are said once, in the title."""
    return ("message_bytes", "placement") if "message_bytes" in measurement.conditions else ("operation", "arm")


def _title(measurement: Measurement) -> str:
    shared = words.condition_words(measurement, without=_in_row(measurement))
    return words.metric_name(measurement.metric) + (f" · {shared}" if shared else "")


def _own_words(measurement: Measurement) -> str:
    """What distinguishes a row in its group: subject, message size, and the placement if it is in place."""
    usual = ("placement",) if measurement.conditions.get("placement") == "out_of_place" else ()
    others = tuple(key for key in measurement.conditions if key not in _in_row(measurement))
    own = words.condition_words(measurement, without=(*others, *usual))
    return ", ".join(text for text in (words.subject_name(measurement.subject), own) if text)


def _row_order(row: JudgementRow) -> tuple[int, str, int, str]:
    """By message size where rows have one; else the worst first."""
    m = row.judgement.measurement
    size = m.conditions.get("message_bytes")
    placement = str(m.conditions.get("placement", ""))
    at = size if isinstance(size, int) else 0
    return at, "" if placement == "out_of_place" else placement, row.judgement.verdict.severity, m.subject.name


def _summed_up(title: str, unit: str, group: Sequence[Measurement]) -> Recorded:
    ordered = sorted(group, key=lambda m: m.value)
    middle = statistics.median(m.value for m in group)
    return Recorded(title, words.unit_name(unit), len(group), ordered[0], middle, ordered[-1])
