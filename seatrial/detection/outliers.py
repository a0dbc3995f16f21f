"""Which numbers of a run are too low, all series at once. Pure: numpy arrays in, numpy arrays out.

What moved together with all peers is taken off first; what is left of each series is scanned for a
change (seatrial/detection/scan.py). What reads low is read again. docs/verdicts.md follows an
example by hand.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from seatrial.detection.losses import RunReadings
from seatrial.detection.noise import (
    AGREEING,
    ENOUGH,
    LEAST_PEERS,
    MEDIAN_VARIANCE,
    median_of,
    typical,
)
from seatrial.detection.readings import Bools, Floats, Ints
from seatrial.detection.references import MUST_FIND, Reference
from seatrial.detection.scan import FALSE_ALARMS, LEAST_WATCHED, WATCHED, RunScan
from seatrial.detection.together import beyond_chance, lost_by_all

MOST_READINGS = 24  # of a series in one run: one more narrows the median by 2 %
# Of a series in one run while few are known: they are what its level is learned from
YOUNG_READINGS = 6
# Readings of all peers for each one of a series in doubt: what all lost together is then known far
# better than what it lost itself. The median's variance is pi / 2 of the mean's
# (`MEDIAN_VARIANCE`), a fifth of that of the series.
_PEER_READINGS = 8
# Of the peers. Where more are slow, they share a cause that is in none of them: agreement takes two
# thirds (Pease, Shostak and Lamport, "Reaching agreement in the presence of faults", 1980).
MINORITY = 1 / 3
# Standard deviations of a node's median between two lots, which no neighbours are apart by chance
_GAP = 4.0
_ABOVE = 0.15  # of the readings of the slow lot may lie in the other


Against = Literal["past", "known", "others"]


@dataclass(frozen=True, slots=True)
class Shift:
    """Peers that read lower all alike than in their own past, than the known ones, or than the
    others of this run.

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

    `value` is the median of this run's `readings`, `location` their Hodges-Lehmann estimate,
    `expected` what it should be, `limit` how much less is healthy. `loss` is how much lower than
    expected the runs since the change are, which began `start` runs before this one; `moved` is
    what all peers moved by. What is `unproven` reads below the limit too seldom, what is `watched`
    may become bad. `agreeing` of this run's readings lie below the limit. `doubtful` are to be read
    once more, `supporting` as well if that costs little: few of their runs are known, or they are
    peers of doubtful ones.
    """

    value: Floats
    location: Floats
    readings: Ints
    expected: Floats
    limit: Floats
    loss: Floats
    start: Ints
    moved: Floats
    agreeing: Ints
    confidence: Floats
    bad: Bools
    unproven: Bools
    watched: Bools
    doubtful: Bools
    supporting: Bools
    shifts: list[Shift]

    @property
    def judged(self) -> Bools:
        """Which series have a reference."""
        return np.asarray(np.isfinite(self.expected - self.limit) & np.isfinite(self.value))


def judge(reference: Reference, readings: Floats) -> Outcome:
    """Judge this run's `readings` (K, M), NaN where a series was read less often."""
    season, readings = reference.season, readings - reference.season
    # Half for series, half for peers that move together
    level = FALSE_ALARMS / (2 * max(readings.shape[1], 1))
    z = NormalDist().inv_cdf(1 - level)
    shifts, moved, unsure = _shifts(reference, readings - reference.expected, z)
    tonight = RunReadings(reference, readings, moved, unsure)
    scan = RunScan(tonight).scan()
    # What is found of peers together is not held against each again
    own = np.ones(moved.size, dtype=np.bool_)
    for shift in shifts:
        own[shift.members] &= shift.against == "past" or not shift.bad
    bad, count = scan.bad & (own | (scan.start == 0)), tonight.count
    young = (
        np.isfinite(reference.peers)
        & (reference.runs < ENOUGH)
        & (count > 0)
        & (count < YOUNG_READINGS)
    )
    doubtful = scan.near & ~(bad & (count >= AGREEING)) & (count > 0) & (count < MOST_READINGS)
    for shift in shifts:
        doubtful[shift.members] |= shift.doubtful
    supporting = young | _peers_of_doubtful(reference, doubtful, count)
    watched = (
        (scan.confidence >= WATCHED) & (scan.loss >= LEAST_WATCHED) & ~bad & ~scan.unproven & own
    )
    below = tonight.distance < scan.level - scan.limit
    return Outcome(
        value=median_of(readings) + season,
        location=tonight.location + moved + season,
        readings=count,
        expected=scan.level + moved + season,
        limit=scan.limit,
        loss=scan.loss,
        start=scan.start,
        moved=moved,
        agreeing=below.sum(axis=0),
        confidence=scan.confidence,
        bad=bad,
        unproven=scan.unproven,
        watched=watched,
        doubtful=doubtful,
        supporting=supporting,
        shifts=shifts,
    )


def _peers_of_doubtful(reference: Reference, doubtful: Bools, count: Ints) -> Bools:
    """Return which series to read beside peers that a few readings did not settle; `count` (M) are
    readings so far.
    """
    group = reference.group
    size = np.bincount(group)
    least = LEAST_PEERS
    since = AGREEING
    if reference.one_machine:  # what it takes from one node now, it may take from all
        least = 2
        since = 1
    most = np.zeros_like(size)
    np.maximum.at(most, group, count * doubtful)
    few = (size >= least) & (most >= since) & (np.bincount(group, count) < _PEER_READINGS * most)
    return np.asarray(few[group] & (count > 0) & (count <= most[group]))


def _shifts(reference: Reference, distance: Floats, z: float) -> tuple[list[Shift], Floats, Floats]:
    """Return which peers moved together; by how much each of M series moved with them, and the
    error of that.
    """
    shifts, moved, unsure = list[Shift](), np.zeros(distance.shape[1]), np.zeros(distance.shape[1])
    # Few runs may all have been strays, so that peers are two lots by their past alone.
    apart = distance + np.where(reference.runs < ENOUGH, reference.expected - reference.peers, 0.0)
    for number, at in enumerate(reference.groups):
        known, new = at[reference.runs[at] > 0], at[reference.runs[at] == 0]
        noise = float(np.median(reference.noise[at]))
        if (
            parted := _slower_group(
                apart, at, bool((reference.runs[at] >= ENOUGH).all()), float(reference.cap[at[0]])
            )
        ) is not None:
            shifts.append(parted)
            moved[parted.members] = parted.moved
            continue
        if known.size >= LEAST_PEERS:
            shift = _shift(
                reference, distance, known, z * float(reference.together[number]), "past"
            )
            if not reference.one_machine:
                shifts.append(shift)
            moved[at], unsure[at] = _beyond_chance(reference, number, shift.moved)
        elif reference.one_machine:
            lost = lost_by_all(median_of(distance[:, known])[np.newaxis])
            moved[at], unsure[at] = _beyond_chance(reference, number, float(lost[0]))
        if known.size > 1 and new.size > MINORITY * at.size:
            unlike = float(reference.spread[at[0]]) if known.size >= ENOUGH else noise
            chance = np.sqrt(
                unlike**2 + MEDIAN_VARIANCE * noise**2 * (1 / known.size + 1 / new.size)
            )
            shift = _shift(reference, distance - moved, new, z * float(chance), "known")
            shifts.append(shift)
            moved[new] += shift.moved if shift.bad else 0.0
    return shifts, moved, unsure


def _beyond_chance(reference: Reference, group: int, moved: float) -> tuple[float, float]:
    """Return by how much the peers of a group moved beyond chance, and the error of that."""
    error = reference.unsure[group]
    beyond = float(beyond_chance(np.array([moved]), error)[0])
    return beyond, float(error) if beyond else 0.0


def _slower_group(distance: Floats, at: Ints, known: bool, cap: float) -> Shift | None:
    """Return the slower group if peers form two groups.

    Each has at least a third of the peers, and the gap between them is far wider than readings of
    one series differ by. A median and its scale do not show that, since both break down at a half.
    """
    values, few = median_of(distance[:, at]), max(AGREEING, int(np.ceil(MINORITY * at.size)))
    if at.size < 2 * few or len(distance) < 2 or not np.isfinite(values).all():
        return None
    order, pairs = np.argsort(values), np.abs(distance[1, at] - distance[0, at])
    gaps, pairs = np.diff(values[order])[few - 1 : at.size - few], pairs[np.isfinite(pairs)]
    if pairs.size < few:
        return None
    # Nodes that are known differ by noise alone, others for ever by some per cent.
    least, readings = (
        MUST_FIND / 2 if known else MUST_FIND,
        int(np.isfinite(distance[:, at]).sum(axis=0).min()),
    )
    limit = min(max(least, _GAP * typical(pairs) / np.sqrt(max(readings, 2))), cap)
    if gaps.max() < limit:
        return None
    split = few + int(np.argmax(gaps))
    moved = float(np.median(values[order[:split]]) - np.median(values[order[split:]]))
    slow, middle = at[order[:split]], float(values[order[split - 1 : split + 1]].mean())
    above = int((distance[:, slow] > middle).sum())
    # Of two readings a stray makes as much
    if above > _ABOVE * np.isfinite(distance[:, slow]).sum():
        return None
    readings = int(np.isfinite(distance[:, slow]).sum(axis=0).min())
    bad = readings >= AGREEING
    return Shift(slow, "others", moved, limit, readings, readings, bad, not bad)


def _shift(
    reference: Reference, distance: Floats, members: Ints, limit: float, against: Against
) -> Shift:
    """Return how `members` moved together.

    It is bad if their median is below the limit in enough rounds of readings, or in the run before
    as well.
    """
    limit = min(limit, float(reference.cap[members[0]]))
    taken = 2 * np.isfinite(distance[:, members]).sum(axis=1) >= members.size
    rounds = median_of(distance[taken][:, members].T) if taken.any() else np.zeros(1)
    moved, agreeing = float(np.median(rounds)), int((rounds < -limit).sum())
    before = reference.past.location[-1:, members] - reference.expected[members]
    persists = bool(before.size and (median_of(before.T) < -limit).all())
    bad = moved < -limit and (agreeing >= AGREEING or persists)
    return Shift(
        members,
        against,
        moved,
        limit,
        agreeing,
        len(rounds),
        bad,
        moved < -limit and not bad and len(rounds) < ENOUGH,
    )
