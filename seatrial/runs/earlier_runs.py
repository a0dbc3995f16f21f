"""What the runs of a replay leave for those after them."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from seatrial.detection.noise import AGREEING, accepted_runs
from seatrial.detection.readings import Ints, Past
from seatrial.history.past import chosen_runs
from seatrial.history.rows import RunRow
from seatrial.judge.judged_series import JudgedSeries
from seatrial.judge.series import carried
from seatrial.model.measurement import Measurement
from seatrial.model.verdict import Verdict

# What is kept of each run, with the value for a series that was not measured
_KEPT = {
    "first": np.nan,
    "rest": np.nan,
    "location": np.nan,
    "within": 0.0,
    "count": 0.0,
    "good": 0.0,
}


class EarlierRuns:
    """The T runs that were judged so far, over M series.

    `_rows` has what the runs measured, an array (T, M) for each name in `_KEPT`.
    """

    def __init__(self, series: Sequence[Measurement]) -> None:
        self._series = series
        self._runs: list[RunRow] = []
        self._weekdays: list[int] = []
        no_runs = np.empty((0, len(series)))
        self._rows = dict.fromkeys(_KEPT, no_runs)

    def past(self, places: Ints, weekday: int) -> Past:
        """Return the last runs of the series; for a new one, those over another number of ranks."""
        chosen = chosen_runs(self._runs)
        runs = [int(row.run_id) for row in chosen]
        at = np.array(runs, dtype=np.int64)
        own = np.ix_(at, places)
        sources = self._sources(at, places)
        other = np.ix_(at, sources)
        count = self._rows["count"]
        measured = count[own] > 0
        past = {}
        for name, rows in self._rows.items():
            past[name] = np.where(measured, rows[own], rows[other])
        weekdays = [self._weekdays[i] for i in runs]
        weekdays.append(weekday)
        number: Ints = past.pop("count").astype(np.int64)
        is_good = past.pop("good") > 0
        good = accepted_runs(is_good, number)
        return Past(
            **past,
            count=number,
            good=good,
            weekday=np.array(weekdays, dtype=np.int64),
        )

    def _sources(self, at: Ints, places: Ints) -> Ints:
        """Return the series whose past counts for each series: itself, or if few of its runs `at`
        are good, the same collective over other ranks.
        """
        good = self._rows["good"]
        taught = good[at].sum(axis=0)
        sources = places.copy()
        for i, place in enumerate(places.tolist()):
            if taught[place] < AGREEING:
                sources[i] = carried(place, self._series, taught > 0)
        return sources

    def add(self, places: Ints, judged: JudgedSeries, verdict: Verdict, weekday: int) -> None:
        """Keep what a run measured and its verdict; its place among the runs stands for its
        time.
        """
        readings = judged.readings
        outcome = judged.outcome
        number = outcome.readings
        sums_of_rest = np.nansum(readings[1:], axis=0)
        rest = np.full(number.size, np.nan)
        np.divide(sums_of_rest, number - 1, out=rest, where=number > 1)
        sums = np.nansum(readings, axis=0)
        mean = sums / np.maximum(number, 1)
        distances = readings - mean
        kept = {
            "first": readings[0],
            "rest": rest,
            "location": outcome.location,
            "within": np.nansum(distances**2, axis=0),
            "count": number,
            "good": ~judged.bad & ~judged.unproven,
        }
        for name, values in kept.items():
            shape = (1, len(self._series))
            row = np.full(shape, _KEPT[name])
            row[0, places] = values
            before = self._rows[name]
            self._rows[name] = np.vstack([before, row])
        place = len(self._runs)
        at = datetime.fromtimestamp(place, UTC)
        self._weekdays.append(weekday)
        self._runs.append(
            RunRow(
                run_id=str(place),
                cluster="",
                suite="",
                started=at,
                finished=at,
                verdict=verdict,
                fingerprint={},
                out="",
            )
        )
