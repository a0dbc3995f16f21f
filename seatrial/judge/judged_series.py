"""The judgement of each series of a run by its history or its peers, and the words for it. Pure.

A bad series is degraded; it fails where it lies below the limit by FAIL_FACTOR.
"""

import math
from collections.abc import Container, Iterator

import numpy as np

from seatrial.detection.noise import ENOUGH
from seatrial.detection.outliers import Outcome
from seatrial.detection.readings import Bools, Ints
from seatrial.detection.shifts import Shift
from seatrial.judge.series import SeriesJudge
from seatrial.model.baseline import FAIL_FACTOR
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Expected, Judgement
from seatrial.model.verdict import Verdict
from seatrial.text.words import measured, quantity


class JudgedSeries:
    """The judgement of each series of a run that has a reference, by its index.

    An `unproven` series is no pass, and nothing is learned from it.

    Lists, because single series are looked up: `_centre` is the expected value, the series' own
    median where `_is_median`, and `_low` the limit below it, both as logs like `_value`. `_runs`
    counts earlier runs, and `_sizes` the series of the group. `readings` (K, M) are those of this
    run.
    """

    def __init__(self, judge: SeriesJudge, outcome: Outcome) -> None:
        """Read from the outcome what the judgements say."""
        reference = judge.reference
        self.table = judge.table
        self.outcome = outcome
        self.readings = judge.readings
        group = self.table.group
        sizes = np.bincount(group)[group]
        self._is_median = _has_level(reference.runs, sizes) & (outcome.start == 0)
        own_median = reference.own + outcome.moved
        centre = np.where(self._is_median, own_median, outcome.expected)
        low = outcome.expected - outcome.limit
        self._centre = centre.tolist()
        self._low = low.tolist()
        self._runs = reference.runs.tolist()
        self._value = outcome.value.tolist()
        self._sizes = sizes.tolist()
        self.has_reference: list[bool] = outcome.judged.tolist()
        self.unproven = outcome.unproven

    @property
    def bad(self) -> Bools:
        """Mask of the series that read too low, by themselves or with their peers; nothing is
        learned from them.
        """
        bad = self.outcome.bad.copy()
        for shift in self.outcome.shifts:
            bad[self.moved_with(shift)] |= shift.is_low
        return bad

    def moved_with(self, shift: Shift) -> Ints:
        """Return the members of a shift, without those nearer to their own past by more than
        chance.
        """
        outcome = self.outcome
        by_chance = outcome.limit / 1.5  # about three standard errors
        least = np.maximum(by_chance, -outcome.moved / 2)
        stayed = outcome.value - outcome.expected > least
        lower = shift.members[~stayed[shift.members]]
        if shift.against == "past" and lower.size:
            return lower
        return shift.members

    def judgement(self, i: int) -> Judgement:
        """Return the judgement of a series that has a reference."""
        distance = self._value[i] - self._centre[i]
        ratio = math.exp(self.table.sign[i] * distance)
        return Judgement(
            measurement=self.measurement(i),
            verdict=self.verdict(i),
            reason=self._reason(i),
            source=self.source(i),
            expected=self._expected(i),
            deviation=ratio - 1,
        )

    def _expected(self, i: int) -> Expected:
        """Return the limit of a series, in its unit."""
        limit = self.table.value(i, self._low[i])
        if self.table.first[i].better == "lower":
            return Expected(high=limit)
        return Expected(low=limit)

    def _reason(self, i: int) -> Reason:
        """Return how a series reads against its reference."""
        m = self.table.first[i]
        times = self.outcome.readings[i]
        bad = self.outcome.bad[i]
        unproven = self.unproven[i]
        number = measured(self.measurement(i))
        limit = self._low[i] - self._centre[i]
        words: dict[str, object] = {
            "number": number,
            "against": self._against(i),
            "limit": percent_words(limit, m),
        }
        if bad or unproven:
            words |= self._words_of_low(i)
        elif times > 1:
            words["number"] = f"{number}, the median of {times} measurements"
        if unproven:
            return Reason.of("low-unproven", **words)
        if bad:
            return Reason.of(f"worse-than-{self.source(i)}", **words)
        return Reason.of("within-limit", **words)

    def _words_of_low(self, i: int) -> dict[str, object]:
        """Return by how much a series is too low, and how often it has been so."""
        m = self.table.first[i]
        return {
            "percent": percent_words(self._distance(i), m),
            "side": side_of(m),
            "agreeing": int(self.outcome.agreeing[i]),
            "readings": int(self.outcome.readings[i]),
            "since": self._since(i),
        }

    def measurement(self, i: int) -> Measurement:
        """Return the series with the median of its readings."""
        m = self.table.first[i]
        if self.outcome.readings[i] < 2 and m.finite:
            return m
        return Measurement(
            metric=m.metric,
            value=self.table.value(i, self._value[i]),
            unit=m.unit,
            subject=m.subject,
            conditions=m.conditions,
            samples=m.samples,
            better=m.better,
        )

    def verdict(self, i: int) -> Verdict:
        """Return the verdict of a series that has a reference."""
        if self.unproven[i]:
            return Verdict.INCONCLUSIVE
        if not self.outcome.bad[i]:
            return Verdict.PASS
        least = self._low[i] - math.log(FAIL_FACTOR)
        if self._value[i] < least:
            return Verdict.FAIL
        return Verdict.DEGRADED

    def _distance(self, i: int) -> float:
        """Return how much lower than expected the series has read on average since the change."""
        if self.outcome.start[i]:
            return -float(self.outcome.loss[i])
        distance: float = self._value[i] - self._centre[i]
        return distance

    def _since(self, i: int) -> str:
        """Say since when a series is lower, and how sure that is; "" if it is since this run."""
        start = self.outcome.start[i]
        if not start:
            return ""
        sure = f"{self.confidence(i):.0%} sure".replace("%", " %")
        return f", since {start + 1} runs ({sure})"

    def watches(self, names: Container[str] | None = None) -> Iterator[Reason]:
        """Yield series that look lower but not surely enough to be bad, among `names` or all."""
        for i in np.flatnonzero(self.outcome.watched).tolist():
            m = self.measurement(i)
            if names is None or m.series() in names:
                yield self._watch(i, m)

    def _watch(self, i: int, m: Measurement) -> Reason:
        """Return how much lower a series looks, and how sure that is."""
        since = "in this run"
        if runs := self.outcome.start[i]:
            since = f"since {runs + 1} runs"
        return Reason.of(
            "watched",
            number=measured(m),
            percent=percent_words(self._distance(i), m),
            worse="longer" if m.better == "lower" else "lower",
            since=since,
            sure=round(100 * self.confidence(i)),
        )

    def source(self, i: int) -> str:
        """Return what a series is compared with: its own history, or its peers alone."""
        return "history" if self._runs[i] else "peers"

    def confidence(self, i: int) -> float:
        """Return how sure it is that the series has become lower."""
        confidence = float(self.outcome.confidence[i])
        return round(confidence, 2)

    def _against(self, i: int) -> str:
        """Return what a series is compared with, in words."""
        kinds = kinds_of(self.table.first[i])
        words = self._source_words(i, kinds)
        if abs(self.outcome.moved[i]) > 0.005:
            words += f", less what all {kinds} moved by"
        return words

    def _source_words(self, i: int, kinds: str) -> str:
        """Return what is expected of a series, and where that comes from."""
        unit = self.table.first[i].unit
        centre = quantity(self.table.value(i, self._centre[i]), unit)
        peers = self._sizes[i]
        runs = self._runs[i]
        if self.outcome.start[i]:
            return f"its {centre} before"
        if self._is_median[i] or (runs and peers == 1):
            return f"its median of {centre} in {runs} runs"
        if not runs:
            return f"the median of {centre} of {peers} {kinds}"
        own = f"{runs} runs" if runs > 1 else "1 run"
        return f"the {centre} expected from its {own} and {peers - 1} other {kinds}"


def _has_level(runs: Ints, sizes: Ints) -> Bools:
    """Return which series are known by their own runs, without their peers; `sizes` are those of
    groups.
    """
    is_alone = (sizes == 1) & (runs > 0)
    has_level: Bools = is_alone | (runs >= ENOUGH)
    return has_level


def percent_words(distance: float, m: Measurement) -> str:
    """Format a ratio, given as the distance of logs, as percent lower or, of times, longer."""
    percent = round(100 * abs(deviation_of(distance, m)), 1)
    return f"{percent:g}"


def deviation_of(distance: float, m: Measurement) -> float:
    """Return by which share a value differs, given as the distance of logs; of times it grows."""
    if m.better == "lower":
        distance = -distance
    return math.exp(distance) - 1


def kinds_of(m: Measurement) -> str:
    """Return the kind of subject of a number as a plural: "nodes", "GPUs"."""
    return "GPUs" if m.subject.kind == "gpu" else f"{m.subject.kind}s"


def side_of(m: Measurement) -> str:
    """Return on which side of the expected value a bad number is: "above" or "below"."""
    return "above" if m.better == "lower" else "below"
