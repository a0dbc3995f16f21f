"""What devices reported minute by minute during a campaign: what rose, the worst minute, and
numbers for the drift.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from seatrial.campaign.drift import PhaseNumbers
from seatrial.detection.noise import median_of
from seatrial.history.campaigns import CampaignState
from seatrial.history.minutes import MetricMinutes
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Expected, Judgement, Suspect
from seatrial.model.verdict import Verdict, worst
from seatrial.text.words import count, number, some_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seatrial.history.store import Store

MINUTES = "minutes"
# What must not rise, by the verdict if it does; of the others a rise is a note.
_RISES = {"ecc_uncorrected": Verdict.FAIL, "flaps": Verdict.DEGRADED, "slowdown": Verdict.DEGRADED}
_NOTED = ("errors", "losses", "slowdowns", "links_down")
_DRIFTING = {"clock_mhz": "MHz", "power_w": "W"}  # that fall where a device slows
_HOUR_S = 3600.0
_BINS = 12  # of a campaign that is shorter than as many hours


def series_of(state: CampaignState, store: "Store", metric: str) -> MetricMinutes:
    """Put the metric's readings in all phases together, at the time of the campaign.

    Raises SeatrialError.
    """
    phases = [(phase.began_s, store.minutes(phase.run_id, metric)) for phase in state.counted]
    known = [(began_s, table) for began_s, table in phases if table is not None]
    parts = sorted({part for _, table in known for part in table.parts})
    place = {part: column for column, part in enumerate(parts)}
    rows = sum(len(table.times_s) for _, table in known)
    readings = np.full((rows, len(parts)), np.nan, dtype=np.float32)
    times: list[float] = []
    for began_s, table in known:
        columns = [place[part] for part in table.parts]
        readings[len(times) : len(times) + len(table.times_s), columns] = table.readings
        times += [began_s + at for at in table.times_s]
    return MetricMinutes(metric, parts, times, readings)


def minutes_check(minutes: Sequence[MetricMinutes]) -> tuple[Check, list[Reason]]:
    """Return the check `minutes`, and notes of what rose without being a fault, and of the worst
    minutes.
    """
    minutes = [series for series in minutes if series.readings.size]
    if not minutes:
        return Check(MINUTES, Verdict.NOT_RUN, Reason.of("minutes-missing")), []
    judgements = [
        judgement for series in minutes if series.metric in _RISES for judgement in _judged(series)
    ]
    bad = [judgement for judgement in judgements if not judgement.passed]
    most = max(len(series.times_s) for series in minutes)
    parts = len({part for series in minutes for part in series.parts})
    steady = Reason.of("minutes-steady", parts=count(parts, "part"), minutes=count(most, "time"))
    suspects = tuple(
        Suspect(*_kind_of(str(j.measurement.conditions["part"])), 0.9, j.reason, j.verdict)
        for j in bad
    )
    check = Check(
        MINUTES,
        worst((Verdict.PASS, *(judgement.verdict for judgement in judgements))),
        join(judgement.reason for judgement in bad) or steady,
        0.0,
        tuple(judgement.measurement for judgement in judgements),
        tuple(judgements),
        suspects,
    )
    notes = [
        *(note for series in minutes for note in _notes(series)),
        *filter(None, map(_worst_minute, minutes)),
    ]
    return check, notes


def _judged(series: MetricMinutes) -> Iterator[Judgement]:
    """Yield how much each part rose."""
    bad = _RISES[series.metric]
    for part, rose in zip(series.parts, risen(series), strict=True):
        kind, name = _kind_of(part)
        measured = Measurement(
            "rise",
            float(rose),
            "",
            Subject(kind, name),
            {"of": series.metric, "part": part},
            better="lower",
        )
        reason = (
            Reason.of("minutes-rose", metric=series.metric, part=part, by=f"{rose:g}")
            if rose
            else Reason()
        )
        yield Judgement(
            measured, bad if rose else Verdict.PASS, reason, "first minute", Expected(high=0)
        )


def risen(series: MetricMinutes) -> "NDArray[np.float64]":
    """Return how much each part rose: a counter in spite of resets, a state by the minutes it
    held.
    """
    readings = series.readings.astype(float)
    if series.metric == "slowdown":
        return np.asarray(np.nansum(readings, axis=0))
    import pandas as pd

    known = pd.DataFrame(readings).ffill().to_numpy()  # of a gap, the last reading before it
    steps = np.diff(known, axis=0)
    steps = np.where(steps < 0, known[1:], steps)
    return np.asarray(np.nansum(steps, axis=0))


def _notes(series: MetricMinutes) -> Iterator[Reason]:
    if series.metric not in _NOTED:
        return
    rose = {part: by for part, by in zip(series.parts, risen(series), strict=True) if by}
    if rose:
        worst_first = sorted(rose, key=lambda part: -rose[part])
        parts = some_of(f"{part} by {rose[part]:g}" for part in worst_first)
        yield Reason.of("minutes-noted", metric=series.metric, parts=parts)


def _worst_minute(series: MetricMinutes) -> Reason | None:
    """Return the minute in which a part was hottest, or all parts took most power; None for other
    metrics.
    """
    if series.metric == "temperature_c":
        row, column = np.unravel_index(np.nanargmax(series.readings), series.readings.shape)
        return Reason.of(
            "minutes-hottest",
            reading=f"{series.readings[row, column]:g}",
            part=series.parts[int(column)],
            hour=_hour(series, int(row)),
        )
    if series.metric == "power_w":
        watts = np.nansum(series.readings, axis=1)
        at = int(np.argmax(watts))
        return Reason.of(
            "minutes-most-power", kilowatts=number(watts[at] / 1000), hour=_hour(series, at)
        )
    return None


def _hour(series: MetricMinutes, row: int) -> str:
    return f"{series.times_s[row] / _HOUR_S:.2f}"


def hourly(series: MetricMinutes) -> PhaseNumbers | None:
    """Return the hourly medians of a metric that falls when a device slows down; None for another
    metric.
    """
    if series.metric not in _DRIFTING or not len(series.times_s):
        return None
    hours = list(by_hour(series))
    medians = [median_of(readings.astype(float)) for _, readings in hours]
    unit = _DRIFTING[series.metric]
    measured = [
        Measurement(series.metric, 0.0, unit, Subject(*_kind_of(part))) for part in series.parts
    ]
    return PhaseNumbers(MINUTES, np.array([at_s for at_s, _ in hours]), measured, np.array(medians))


def by_hour(series: MetricMinutes) -> Iterator[tuple[float, "NDArray[np.float32]"]]:
    """Yield the start and the readings of each hour; of a short campaign, of each twelfth."""
    times_s = np.array(series.times_s)
    step = max(1.0, min(_HOUR_S, (times_s[-1] - times_s[0]) / _BINS))
    bins = ((times_s - times_s[0]) // step).astype(int)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    yield from zip(times_s[starts].tolist(), np.split(series.readings, starts[1:]), strict=True)


def _kind_of(part: str) -> tuple[Literal["node", "gpu"], str]:
    """Return the kind and name of the subject that a part belongs to: a GPU, or the node of a port
    or of processors.
    """
    node, _, rest = part.partition("/")
    return ("gpu", part) if rest.startswith("gpu-") else ("node", node)
