"""Which numbers of a run are too low, all series at once. Pure: numpy arrays in, numpy arrays out.

A limit is a normal quantile with Bonferroni's correction for all series of the run. What reads low is read again. It is
blamed when the median of this run's readings is below the limit and more readings are than strays explain: a
beta-binomial test with the strays of healthy readings. The last runs count together (window-limited likelihood ratio:
Lai, "Sequential changepoint detection in quality control", 1995). docs/verdicts.md follows an example by hand.
"""

from dataclasses import dataclass
from math import comb, exp, lgamma
from statistics import NormalDist
from typing import Literal

import numpy as np

from seatrial.history.past import RECENT_RUNS
from seatrial.judge.references import (
    AGREEING,
    ENOUGH,
    LEAST_PEERS,
    LEAST_STRAYS,
    MEDIAN_VARIANCE,
    MUST_FIND,
    Bools,
    Floats,
    Ints,
    Reference,
    beyond_chance,
    median_of,
    typical,
)

FALSE_ALARMS = 0.003  # of healthy runs, so that noise of any shape stays below the 0.5 % of docs/error-rates.md
CHANCE = 3.0  # standard errors: so far the median of more readings may lie from that of these
MOST_READINGS = 24  # of a series in one run: one more narrows the median by 2 %
# Of the peers. Where more are slow, they share a cause that is in none of them: agreement takes two thirds (Pease,
# Shostak and Lamport, "Reaching agreement in the presence of faults", 1980).
MINORITY = 1 / 3


Against = Literal["past", "known", "others"]


@dataclass(frozen=True, slots=True)
class Shift:
    """Peers that read lower all alike than in their own past, than the known ones, or than the others of this run.

    `moved` and `limit` are on logs; `agreeing` of `readings` of their median lie below the limit.
    """

    members: Ints
    against: Against
    moved: float
    limit: float
    agreeing: int
    readings: int
    bad: bool
    doubtful: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judgement of M series; natural logs.

    `value` is the median of this run's `readings`, `expected` what it should be, `limit` how much less is healthy.
    `agreeing` of the readings lie below that, those of `runs` runs together, of which `earlier` are not this run's.
    `strays` is the share of healthy readings that lie below the limit, of bad series. `doubtful` are to be read once
    more.
    """

    value: Floats
    readings: Ints
    expected: Floats
    limit: Floats
    agreeing: Ints
    runs: Ints
    earlier: Ints
    strays: Floats
    bad: Bools
    doubtful: Bools
    shifts: list[Shift]

    @property
    def judged(self) -> Bools:
        """Which series have a reference."""
        return np.asarray(np.isfinite(self.expected - self.limit) & np.isfinite(self.value))


def judge(reference: Reference, readings: Floats) -> Outcome:
    """Judge this run's `readings` (K, M), NaN where a series was read less often."""
    level = FALSE_ALARMS / (2 * max(readings.shape[1], 1))  # half for series, half for peers that move together
    z = NormalDist().inv_cdf(1 - level)
    shifts, moved, unsure = _shifts(reference, readings - reference.expected, z)
    current = _ThisRun(reference, readings - reference.expected - moved, np.hypot(reference.level, unsure), z, level)
    limit, agreeing, bad = current.limit.copy(), current.agreeing.copy(), current.bad()
    runs, earlier = np.ones(moved.size, dtype=np.int64), np.zeros(moved.size, dtype=np.int64)
    own = np.ones(moved.size, dtype=np.bool_)  # what is found of new peers together is not held against each again
    for shift in shifts:
        own[shift.members] &= shift.against == "past" or not shift.bad
    for i in np.flatnonzero(current.low & own & ~bad & np.isfinite(limit)).tolist():
        for more in range(1, min(RECENT_RUNS, len(reference.past.count) + 1)):
            together = current.with_past(i, more)
            if together is not None:
                limit[i], agreeing[i], runs[i], bad[i] = *together, more + 1, True
                earlier[i] = reference.past.count[-more:, i].sum()
                break
    young = np.isfinite(reference.peers) & (reference.runs < ENOUGH) & (current.count == 1)
    doubtful = (
        (current.low & current.decidable | young)
        & ~(bad & (current.count >= AGREEING))
        & (current.count > 0)
        & (current.count < MOST_READINGS)
    )
    for shift in shifts:
        doubtful[shift.members] |= shift.doubtful
    value, expected = median_of(readings), reference.expected + moved
    strays, count = current.strays, current.count
    return Outcome(value, count, expected, limit, agreeing, runs, earlier, strays, bad, doubtful, shifts)


class _ThisRun:
    """This run's readings less what they should be, (K, M), and what follows from them series by series."""

    def __init__(self, reference: Reference, distance: Floats, unsure: Floats, z: float, level: float) -> None:
        self.reference, self.distance, self.unsure, self.z, self.level = reference, distance, unsure, z, level
        self.count, self.value = np.isfinite(distance).sum(axis=0), median_of(distance)
        self.strays = np.zeros(self.count.size)
        self.noise = _with_scatter(reference.noise, distance, self.value, self.count)
        chance = np.sqrt(unsure**2 + _variance(self.noise, self.count))
        self.limit = np.minimum(z * chance, reference.cap)
        self.agreeing = (distance < -self.limit).sum(axis=0)
        self.confirmed = (self.value < -self.limit) & (self.agreeing >= AGREEING)
        self._usual = usual = np.empty(self.noise.size)
        for group, at in enumerate(reference.groups):
            usual[at] = reference.usual[group]
        once = ~self.confirmed  # what reads low again and again is no stray
        self._first = (
            np.where(once, distance[:1] / self.noise, np.nan)[0],
            np.where(once, distance[:1] / usual, np.nan)[0],
        )
        ruled_out = MUST_FIND - NormalDist().inv_cdf(1 - FALSE_ALARMS) * chance
        self.low = self.value < -np.clip(ruled_out, self.limit / 5, self.limit / 4)
        # More readings narrow the noise, not the error of the level.
        deepest = self.value - CHANCE * np.sqrt(_variance(self.noise, self.count))
        self.decidable = deepest < -np.minimum(z * unsure, reference.cap)

    def bad(self) -> Bools:
        """Which are too low by this run's readings alone."""
        bad = self.confirmed.copy()
        for i in np.flatnonzero(bad).tolist():
            bad[i] = self._no_strays(i, self.limit[i], int(self.agreeing[i]), int(self.count[i]))
        return np.asarray(bad)

    def with_past(self, i: int, more: int) -> tuple[float, int] | None:
        """The limit of series `i` and how many readings lie below it, where `more` earlier runs agree; else None."""
        past, group = self.reference.past, self.reference.group[i]
        then = past.median[-more:, i] - self.reference.expected[i] - self.reference.moved[-more:, group]
        then = np.maximum(then, 2 * self.value[i])  # what was repaired meanwhile says little of this run
        counts = past.count[-more:, i]
        if not counts.all():
            return None
        total = int(self.count[i] + counts.sum())
        mean = (self.value[i] * self.count[i] + then @ counts) / total
        shifted = self.reference.unsure[group] * self.reference.moved[-more:, group].any()
        chance = np.sqrt(self.unsure[i] ** 2 + shifted**2 + MEDIAN_VARIANCE * self.noise[i] ** 2 / total)
        limit = min(self.z * chance, self.reference.cap[i])
        low = then < -limit
        agreeing = int((self.distance[:, i] < -limit).sum() + ((counts[low] + 1) // 2).sum())
        agree = agreeing >= AGREEING or bool(low.any() and self.value[i] < -limit)
        if mean < -limit and self.value[i] < -limit / 2 and agree and self._no_strays(i, limit, agreeing, total):
            return limit, agreeing
        return None

    def _no_strays(self, i: int, limit: float, agreeing: int, readings: int) -> bool:
        """Whether so many of so many readings below the limit are more than strays explain in a healthy run."""
        strays = self.reference.strays[self.reference.group[i]]
        own, usual = (first[strays.pool] for first in self._first)
        lots = ((strays.by_own, own, -limit / self.noise[i]), (strays.by_usual, usual, -limit / self._usual[i]))
        known = strays.by_own.size + int(np.isfinite(own).sum()) + 2 * ENOUGH  # a quarter of 16 more: a Beta prior
        below = max(float(np.searchsorted(past, least) + (now < least).sum()) for past, now, least in lots)
        below = max(below + 0.25, LEAST_STRAYS * known)
        self.strays[i] = below / known
        chance = sum(_chance(n, readings, below, known - below) for n in range(agreeing, readings + 1))
        return readings * chance <= self.level  # each further reading is another chance


def _chance(n: int, of: int, below: float, above: float) -> float:
    """The chance of `n` strays, given what is known of their share (beta-binomial distribution)."""
    logs = lgamma(n + below) + lgamma(of - n + above) - lgamma(of + below + above)
    return comb(of, n) * exp(logs + lgamma(below + above) - lgamma(below) - lgamma(above))


def _variance(noise: Floats, count: Ints) -> Floats:
    """Of the median of `count` readings."""
    return np.asarray(np.where(count > 2, MEDIAN_VARIANCE, 1.0) * noise**2 / np.maximum(count, 1))


def _with_scatter(noise: Floats, distance: Floats, value: Floats, count: Ints) -> Floats:
    """The noise, larger where this run's own readings of a series scatter more."""
    many = np.flatnonzero(count >= AGREEING)
    squares = np.nansum((distance[:, many] - value[many]) ** 2, axis=0)
    louder = noise.copy()
    louder[many] = np.maximum(noise[many], np.sqrt((ENOUGH * noise[many] ** 2 + squares) / (ENOUGH + count[many] - 1)))
    return louder


def _shifts(reference: Reference, distance: Floats, z: float) -> tuple[list[Shift], Floats, Floats]:
    """Which peers moved together; by how much each of M series moved with them, and the error of that."""
    shifts, moved, unsure = list[Shift](), np.zeros(distance.shape[1]), np.zeros(distance.shape[1])
    # Few runs may all have been strays, so that peers are two lots by their past alone.
    apart = distance + np.where(reference.runs < ENOUGH, reference.expected - reference.peers, 0.0)
    for number, at in enumerate(reference.groups):
        known, new = at[reference.runs[at] > 0], at[reference.runs[at] == 0]
        noise = float(np.median(reference.noise[at]))
        if (parted := _parted(apart, at, float(reference.cap[at[0]]))) is not None:
            shifts.append(parted)
            moved[parted.members] = parted.moved
            continue
        if known.size >= LEAST_PEERS:
            shift = _shift(reference, distance, known, z * float(reference.together[number]), "past")
            shifts.append(shift)
            moved[at] = beyond_chance(np.array([shift.moved]), reference.unsure[number : number + 1])
            unsure[at] = reference.unsure[number] * (moved[at] != 0)
        if known.size > 1 and new.size > MINORITY * at.size:
            unlike = float(reference.spread[at[0]]) if known.size >= ENOUGH else noise
            chance = np.sqrt(unlike**2 + MEDIAN_VARIANCE * noise**2 * (1 / known.size + 1 / new.size))
            shift = _shift(reference, distance - moved, new, z * float(chance), "known")
            shifts.append(shift)
            moved[new] += shift.moved if shift.bad else 0.0
    return shifts, moved, unsure


def _parted(distance: Floats, at: Ints, cap: float) -> Shift | None:
    """The slower ones of peers that are two lots: a third at least on either side of a gap that is far wider than what
    readings of one series differ by. A median and its scale are no help there, since both break down at a half."""
    values, few = median_of(distance[:, at]), max(AGREEING, int(np.ceil(MINORITY * at.size)))
    if at.size < 2 * few or len(distance) < 2 or not np.isfinite(values).all():
        return None
    order, pairs = np.argsort(values), np.abs(distance[1, at] - distance[0, at])
    gaps, pairs = np.diff(values[order])[few - 1 : at.size - few], pairs[np.isfinite(pairs)]
    if pairs.size < few:
        return None
    limit = min(max(MUST_FIND, 4 * typical(pairs) / np.sqrt(2)), cap)
    if gaps.max() < limit:
        return None
    split = few + int(np.argmax(gaps))
    moved = float(np.median(values[order[:split]]) - np.median(values[order[split:]]))
    slow, middle = at[order[:split]], float(values[order[split - 1 : split + 1]].mean())
    if (distance[:, slow] > middle).any():  # of two readings a stray makes as much
        return None
    readings = int(np.isfinite(distance[:, slow]).sum(axis=0).min())
    bad = readings >= AGREEING
    return Shift(slow, "others", moved, limit, readings, readings, bad, not bad)


def _shift(reference: Reference, distance: Floats, members: Ints, limit: float, against: Against) -> Shift:
    """Whether the median of `members` is below the limit in enough rounds of readings, or in the run before as well."""
    limit = min(limit, float(reference.cap[members[0]]))
    taken = 2 * np.isfinite(distance[:, members]).sum(axis=1) >= members.size
    rounds = median_of(distance[taken][:, members].T) if taken.any() else np.zeros(1)
    moved, agreeing = float(np.median(rounds)), int((rounds < -limit).sum())
    before = reference.past.median[-1:, members] - reference.expected[members]
    persists = bool(before.size and (median_of(before.T) < -limit).all())
    bad = moved < -limit and (agreeing >= AGREEING or persists)
    return Shift(
        members, against, moved, limit, agreeing, len(rounds), bad, moved < -limit and not bad and len(rounds) < ENOUGH
    )
