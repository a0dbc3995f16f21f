"""Readings of devices, minute by minute, during a campaign: what rose, the worst minute, and the
numbers to check for drift.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from seatrial.campaign.drift import OtherMachines, PhaseNumbers
from seatrial.campaign.result import check_of
from seatrial.detection.noise import median_of
from seatrial.history.campaigns import CampaignState
from seatrial.history.minutes import MetricMinutes
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Expected, Judgement
from seatrial.model.verdict import Verdict
from seatrial.text.words import count, number, some_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seatrial.history.store import Store

MINUTES = "minutes"
# Metrics that must not rise, with the verdict if one does; a rise of a metric in _NOTED is a note.
_RISES = {"ecc_uncorrected": Verdict.FAIL, "flaps": Verdict.DEGRADED, "slowdown": Verdict.DEGRADED}
_NOTED = ("errors", "losses", "slowdowns", "links_down")
# Units of the metrics that fall when a device slows down
_DRIFTING = {"clock_mhz": "MHz", "power_w": "W"}
_HOUR_S = 3600.0
_BINS = 12  # number of intervals of a campaign with fewer hours


def series_of(
    state: CampaignState, store: "Store", metric: str, others: OtherMachines
) -> MetricMinutes:
    """Join the readings of a metric in all phases, at the time of the campaign.

    The parts of `others` have names of their own, as their counters began elsewhere. Raises
    SeatrialError if the history cannot be read.
    """
    tables = []
    times = []
    for phase in state.counted:
        table = store.minutes(phase.run_id, metric)
        if table is not None:
            replaced = others.get(phase.run_id, ())
            parts = [_part_then(part, replaced) for part in table.parts]
            tables.append(replace(table, parts=parts))
            times += [phase.began_s + at for at in table.times_s]
    parts = sorted(_parts_of(tables))
    place = {part: column for column, part in enumerate(parts)}
    shape = (len(times), len(parts))
    readings = np.full(shape, np.nan, dtype=np.float32)
    first = 0
    for table in tables:
        columns = [place[part] for part in table.parts]
        end = first + len(table.times_s)
        readings[first:end, columns] = table.readings
        first = end
    return MetricMinutes(metric, parts, times, readings)


def _part_then(part: str, replaced: Collection[str]) -> str:
    """Return the name of a part, with a mark at the name of a node that was `replaced` since."""
    node, _, _ = part.partition("/")
    return part.replace(node, f"{node} (replaced)", 1) if node in replaced else part


def _parts_of(tables: Sequence[MetricMinutes]) -> set[str]:
    """Return the parts of all tables."""
    return {part for table in tables for part in table.parts}


def minutes_check(minutes: Sequence[MetricMinutes]) -> tuple[Check, list[Reason]]:
    """Return the check `minutes`, and notes on harmless rises and on the worst minutes."""
    minutes = [series for series in minutes if series.readings.size]
    if not minutes:
        missing = Reason.of("minutes-missing")
        return Check(MINUTES, Verdict.NOT_RUN, missing), []
    judgements = list[Judgement]()
    notes = list[Reason]()
    for series in minutes:
        if series.metric in _RISES:
            judgements += _judged(series)
        notes += _notes(series)
    notes += filter(None, map(_worst_minute, minutes))
    most = max(len(series.times_s) for series in minutes)
    parts = _parts_of(minutes)
    steady = Reason.of(
        "minutes-steady",
        parts=count(len(parts), "part"),
        minutes=count(most, "time"),
    )
    return check_of(MINUTES, judgements, steady, (Verdict.PASS,)), notes


def _judged(series: MetricMinutes) -> Iterator[Judgement]:
    """Yield a judgement of how much each part rose."""
    for part, rose in zip(series.parts, risen(series), strict=True):
        kind, name = _kind_of(part)
        measured = Measurement(
            metric="rise",
            value=float(rose),
            unit="",
            subject=Subject(kind, name),
            conditions={"of": series.metric, "part": part},
            better="lower",
        )
        verdict = Verdict.PASS
        reason = Reason()
        if rose:
            verdict = _RISES[series.metric]
            reason = Reason.of("minutes-rose", metric=series.metric, part=part, by=f"{rose:g}")
        yield Judgement(
            measurement=measured,
            verdict=verdict,
            reason=reason,
            source="first minute",
            expected=Expected(high=0),
        )


def risen(series: MetricMinutes) -> "NDArray[np.float64]":
    """Return how much each part rose: for a counter, the sum of its increases despite resets; for a
    state, the minutes for which it held.
    """
    readings = series.readings.astype(float)
    if series.metric == "slowdown":
        return np.asarray(np.nansum(readings, axis=0))
    import pandas as pd

    known = pd.DataFrame(readings).ffill().to_numpy()  # fills gaps with the last reading before
    steps = np.diff(known, axis=0)
    # A counter that was reset started from 0
    steps = np.where(steps < 0, known[1:], steps)
    return np.asarray(np.nansum(steps, axis=0))


def _notes(series: MetricMinutes) -> Iterator[Reason]:
    """Yield a note with the parts that rose, if the metric's rise is no fault."""
    if series.metric not in _NOTED:
        return
    rose = risen(series)
    worst_first = np.argsort(-rose, kind="stable").tolist()
    noted = []
    for column in worst_first:
        if rose[column]:
            part = series.parts[column]
            noted.append(f"{part} by {rose[column]:g}")
    if noted:
        yield Reason.of("minutes-noted", metric=series.metric, parts=some_of(noted))


def _worst_minute(series: MetricMinutes) -> Reason | None:
    """Return the minute in which a part was hottest, or all parts took most power; None for other
    metrics.
    """
    readings = series.readings
    if series.metric == "temperature_c":
        hottest = np.nanargmax(readings)
        row, column = np.unravel_index(hottest, readings.shape)
        return Reason.of(
            "minutes-hottest",
            reading=f"{readings[row, column]:g}",
            part=series.parts[int(column)],
            hour=_hour(series, int(row)),
        )
    if series.metric == "power_w":
        watts = np.nansum(readings, axis=1)
        row = np.argmax(watts)
        return Reason.of(
            "minutes-most-power",
            kilowatts=number(watts[row] / 1000),
            hour=_hour(series, int(row)),
        )
    return None


def _hour(series: MetricMinutes, row: int) -> str:
    """Format the hour of the campaign of a row of readings."""
    return f"{series.times_s[row] / _HOUR_S:.2f}"


def hourly(series: MetricMinutes) -> PhaseNumbers | None:
    """Return the hourly medians of a metric that falls when a device slows down; None for another
    metric.
    """
    unit = _DRIFTING.get(series.metric)
    if unit is None or not len(series.times_s):
        return None
    began_s = []
    medians = []
    for start_s, readings in by_hour(series):
        began_s.append(start_s)
        medians.append(median_of(readings.astype(float)))
    measurements = [
        Measurement(metric=series.metric, value=0.0, unit=unit, subject=Subject(*_kind_of(part)))
        for part in series.parts
    ]
    return PhaseNumbers(
        suite=MINUTES,
        began_s=np.array(began_s),
        series=measurements,
        readings=np.array(medians),
    )


def by_hour(series: MetricMinutes) -> Iterator[tuple[float, "NDArray[np.float32]"]]:
    """Yield the start (s) and the readings of each hour; of each twelfth of a short campaign."""
    times_s = np.array(series.times_s)
    since_first_s = times_s - times_s[0]
    twelfth = since_first_s[-1] / _BINS
    step = max(1.0, min(_HOUR_S, twelfth))
    bins = (since_first_s // step).astype(int)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    readings = np.split(series.readings, starts[1:])
    yield from zip(times_s[starts].tolist(), readings, strict=True)


def _kind_of(part: str) -> tuple[Literal["node", "gpu"], str]:
    """Return the kind and name of the subject that a part belongs to: a GPU, or the node of a port
    or of processors.
    """
    node, _, rest = part.partition("/")
    if rest.startswith("gpu-"):
        return "gpu", part
    return "node", node
