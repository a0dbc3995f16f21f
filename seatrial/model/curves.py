"""Curves and tables of a check's measurements. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.model.measurement import Measurement, once
from seatrial.model.result import Check, Expected, Judgement
from seatrial.model.verdict import Verdict

SHARE = "busbw_share"  # the metric of a plateau's share of what the links carry
LATENCY_MAX_BYTES = 1 << 20  # time follows from busbw for larger messages


@dataclass(frozen=True, slots=True)
class Reading:
    """A measurement and the worst judgement on it; None without a judgement."""

    measurement: Measurement
    judgement: Judgement | None


@dataclass(frozen=True, slots=True)
class Point:
    """One busbw of a sweep, in GB/s; `source` says who expects what, `series` is the measurement's
    own.

    `verdict` is None without a judgement.
    """

    message_bytes: int
    busbw_gb_s: float
    expected: Expected
    verdict: Verdict | None
    source: str = ""
    series: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """The busbw of one operation over message sizes, smallest first, and what its plateau should be
    (GB/s).

    It has two points or more.
    """

    operation: str
    points: tuple[Point, ...]
    plateau: Expected


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """Microseconds by message size (rows) and operation (columns); None where nothing was measured.

    A row is a size in bytes, and a value for each of `operations`.
    """

    operations: tuple[str, ...]
    rows: tuple[tuple[int, tuple[float | None, ...]], ...]


def readings(check: Check) -> list[Reading]:
    """Return each series of the check, judged or not, with the median of its repeats."""
    return _held_together(check, once(check.measurements))


def worst_first(judgement: Judgement) -> tuple[int, bool]:
    """Return a sort key: the worst verdict first, then judgements with a baseline before those
    without.

    Equal ones keep their order.
    """
    return judgement.verdict.severity, not judgement.compared


def every_reading(check: Check) -> list[Reading]:
    """Return each measurement of the check, repeats included."""
    return _held_together(check, check.measurements)


def _held_together(check: Check, measurements: Sequence[Measurement]) -> list[Reading]:
    """Return each measurement with the worst judgement of its series, then judged numbers that the
    check did not record.
    """
    judged: dict[str, Judgement] = {}
    for judgement in check.judgements:
        key = judgement.measurement.series()
        judged[key] = min(judged.get(key, judgement), judgement, key=worst_first)
    # The judgements of a check may be of numbers that it derived, and did not record
    recorded = {measurement.series() for measurement in measurements}
    only_judged = [j.measurement for key, j in judged.items() if key not in recorded]
    return [Reading(m, judged.get(m.series())) for m in (*measurements, *only_judged)]


def busbw_curves(check: Check) -> list[Curve]:
    """Return one curve per operation, over the whole cluster, out of place where that was
    measured.
    """
    all_readings = readings(check)
    plateaus = {}
    for reading in all_readings:
        if reading.judgement and _is_plateau(reading):
            plateaus[_operation(reading.measurement)] = reading.judgement.expected
    by_operation = _by_operation(r for r in all_readings if r.measurement.metric == "busbw")
    curves = []
    for operation, group in by_operation.items():
        by_size = _one_placement(group)
        points = tuple(_point(size, reading) for size, reading in by_size.items() if size > 0)
        if len(points) > 1:
            curves.append(Curve(operation, points, plateaus.get(operation, Expected())))
    return curves


def latency_table(check: Check) -> LatencyTable | None:
    """Return latencies of small messages, up to `LATENCY_MAX_BYTES`; None if none was measured."""
    by_operation = _by_operation(r for r in readings(check) if r.measurement.metric == "latency")
    columns = {}
    sizes = set[int]()
    for operation, group in by_operation.items():
        by_size = _one_placement(group)
        columns[operation] = {size: r.measurement.value for size, r in by_size.items()}
        sizes.update(size for size in by_size if size <= LATENCY_MAX_BYTES)
    rows = []
    for size in sorted(sizes):
        values = tuple(column.get(size) for column in columns.values())
        rows.append((size, values))
    if not rows:
        return None
    return LatencyTable(tuple(columns), tuple(rows))


def losses(check: Check) -> tuple[float, ...]:
    """Return the loss of every training step in order; empty if it was not recorded.

    A single loss is no curve.
    """
    for reading in readings(check):
        m = reading.measurement
        if m.metric == "loss" and len(m.samples) > 1:
            return m.samples
    return ()


def plateau(check: Check, operation: str) -> float | None:
    """Return the busbw of large messages in GB/s: the measured plateau, else the best of the curve.

    None where the operation has neither.
    """
    for reading in readings(check):
        if _is_plateau(reading) and _operation(reading.measurement) == operation:
            return reading.measurement.value
    for curve in busbw_curves(check):
        if curve.operation == operation:
            return max(p.busbw_gb_s for p in curve.points)
    return None


def share(check: Check, operation: str) -> float | None:
    """Return the plateau as a fraction of what the links carry; None if the links are not known.

    1 is all that they carry.
    """
    for m in once(check.measurements):
        if m.metric == SHARE and m.subject.kind == "cluster" and _operation(m) == operation:
            return m.value
    return None


def bad_judgements(checks: Iterable[Check]) -> list[tuple[Check, Judgement]]:
    """Return judgements that are not a pass: worst verdict, whole sweeps before single sizes, then
    furthest off.

    Each comes with its check.
    """
    bad = [(check, j) for check in checks for j in check.judgements if not j.passed]
    return sorted(bad, key=lambda pair: _badness(pair[1]))


def _badness(judgement: Judgement) -> tuple[int, bool, float]:
    """Return a sort key: the worst verdict, then whole sweeps, then the furthest off."""
    off = round(abs(judgement.deviation or 0.0), 2)  # what differs by less keeps its order
    return judgement.verdict.severity, "message_bytes" in judgement.measurement.conditions, -off


def _is_plateau(reading: Reading) -> bool:
    """Return whether a reading is the busbw of large messages over the whole cluster."""
    return (
        reading.measurement.metric == "busbw_plateau"
        and reading.measurement.subject.kind == "cluster"
    )


def _operation(measurement: Measurement) -> str:
    """Return the operation of a measurement, else its metric."""
    return measurement.operation or measurement.metric


def _by_operation(readings: Iterable[Reading]) -> dict[str, list[Reading]]:
    """Return readings of the whole cluster at a message size, by operation."""
    groups: dict[str, list[Reading]] = {}
    for reading in readings:
        m = reading.measurement
        has_size = isinstance(m.conditions.get("message_bytes"), int)
        if has_size and m.finite and m.subject.kind == "cluster":
            groups.setdefault(_operation(m), []).append(reading)
    return groups


def _one_placement(group: Sequence[Reading]) -> Mapping[int, Reading]:
    """Return readings by message size; out of place wins, as published rates are out of place."""
    by_size: dict[int, Reading] = {}
    for reading in group:
        size = int(reading.measurement.conditions["message_bytes"])
        if size not in by_size or reading.measurement.conditions.get("placement") != "in_place":
            by_size[size] = reading
    return dict(sorted(by_size.items()))


def _point(message_bytes: int, reading: Reading) -> Point:
    """Return the point of a curve; without a judgement nothing is expected of it."""
    m = reading.measurement
    judgement = reading.judgement
    if judgement is None:
        return Point(message_bytes, m.value, Expected(), None, series=m.series())
    return Point(
        message_bytes, m.value, judgement.expected, judgement.verdict, judgement.source, m.series()
    )
