"""Which peers of a run moved together, and by how much. Pure, numpy arrays, natural logs.

Peers with earlier runs are compared with their past, new peers with known ones, and all peers with
each other: they may form two groups.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np

from seatrial.detection.noise import (
    AGREEING,
    ENOUGH,
    LEAST_PEERS,
    MEDIAN_VARIANCE,
    count_known,
    finite,
    median,
    median_of,
    typical,
)
from seatrial.detection.readings import Floats, Ints
from seatrial.detection.references import MUST_FIND, Reference
from seatrial.detection.together import beyond_chance, lost_by_all

# Of the peers. Where more are slow, they share a cause that is in none of them: agreement takes two
# thirds (Pease, Shostak and Lamport, "Reaching agreement in the presence of faults", 1980).
MINORITY = 1 / 3
# Least gap between two lots, in standard deviations of a node's median: chance leaves no such gap
_GAP = 4.0
_ABOVE = 0.15  # share of the slow lot's readings that may lie in the other lot

Against = Literal["past", "known", "others"]


@dataclass(frozen=True, slots=True)
class Shift:
    """Peers that all read lower than in their own past, than known peers, or than other peers of
    this run.

    `moved` and `limit` are on logs.
    """

    members: Ints
    against: Against
    moved: float
    limit: float
    bad: bool
    doubtful: bool

    @property
    def is_low(self) -> bool:
        """Whether the peers read below the limit, even if too few readings show it."""
        return self.moved < -self.limit


class CommonMoves:
    """The shifts of a run, the common move of each of M series with its peers, and the move's
    error.

    `distance` (K, M) are this run's readings less the expected values; a shift is bad beyond `z`
    standard deviations.
    """

    def __init__(self, reference: Reference, distance: Floats, z: float) -> None:
        """Compare the peers of each group."""
        self._reference = reference
        self._distance = distance
        self._z = z
        self.shifts = list[Shift]()
        self.moved = np.zeros_like(reference.peers)
        self.unsure = np.zeros_like(reference.peers)
        # Few runs may all have been strays, so that peers are two lots by their past alone.
        own_past = reference.expected - reference.peers
        is_young = reference.runs < ENOUGH
        apart = distance + np.where(is_young, own_past, 0.0)
        for number, at in enumerate(reference.groups):
            known = not is_young[at].any()
            slower = _slower_group(apart, at, known, float(reference.cap[at[0]]))
            if slower is None:
                self._compare_known(number, at)
                self._compare_new(at)
            else:
                self.shifts.append(slower)
                self.moved[slower.members] = slower.moved

    def _compare_known(self, number: int, at: Ints) -> None:
        """Compare the peers that have earlier runs with their past."""
        reference = self._reference
        known = at[reference.runs[at] > 0]
        if known.size >= LEAST_PEERS:
            limit = self._z * float(reference.together[number])
            shift = _shift(reference, self._distance, known, limit, "past")
            if not reference.one_machine:
                self.shifts.append(shift)
            self._move(number, at, shift.moved)
        elif reference.one_machine:
            values = median_of(self._distance[:, known])
            lost = lost_by_all(values[np.newaxis])
            self._move(number, at, lost[0])

    def _move(self, number: int, at: Ints, moved: float) -> None:
        """Store the common move of a group beyond chance, and its error."""
        error = self._reference.unsure[number]
        beyond = beyond_chance(np.array([moved]), error)[0]
        self.moved[at] = beyond
        if beyond:
            self.unsure[at] = error

    def _compare_new(self, at: Ints) -> None:
        """Compare the peers without earlier runs with the known peers."""
        reference = self._reference
        is_known = reference.runs[at] > 0
        known = at[is_known]
        new = at[~is_known]
        if known.size < 2 or new.size <= MINORITY * at.size:
            return
        distance = self._distance - self.moved
        limit = self._z * self._unlike(at, known.size, new.size)
        shift = _shift(reference, distance, new, limit, "known")
        self.shifts.append(shift)
        self.moved[new] += shift.moved if shift.bad else 0.0

    def _unlike(self, at: Ints, known: int, new: int) -> float:
        """Return the standard error of the distance between medians of `known` and `new` peers."""
        noise = median(self._reference.noise[at])
        spread = noise
        if known >= ENOUGH:
            spread = float(self._reference.spread[at[0]])
        of_medians = MEDIAN_VARIANCE * noise**2 * (1 / known + 1 / new)
        error = np.sqrt(spread**2 + of_medians)
        return float(error)


def _slower_group(distance: Floats, at: Ints, known: bool, cap: float) -> Shift | None:
    """Return the slower group if peers form two groups.

    Each has at least a third of the peers, and the gap between them is far wider than readings of
    one series differ by. A median and its scale do not show that, since both break down at a half.
    """
    of_peers = distance[:, at]
    values = median_of(of_peers)
    few = max(AGREEING, ceil(MINORITY * at.size))
    if at.size < 2 * few or len(distance) < 2 or not np.isfinite(values).all():
        return None
    pairs = finite(np.abs(of_peers[1] - of_peers[0]))
    if pairs.size < few:
        return None
    order = np.argsort(values)
    ordered = values[order]
    gaps = np.diff(ordered)
    gaps = gaps[few - 1 : at.size - few]  # which leave enough peers on either side
    limit = min(_least_gap(of_peers, pairs, known), cap)
    if gaps.max() < limit:
        return None
    split = few + np.argmax(gaps)
    moved = median(ordered[:split]) - median(ordered[split:])
    slow = at[order[:split]]
    of_slow = distance[:, slow]
    middle = ordered[split - 1 : split + 1].mean()
    above = (of_slow > middle).sum()
    count = count_known(of_slow)
    # Of two readings a stray makes as much
    if above > _ABOVE * count.sum():
        return None
    bad = bool(count.min() >= AGREEING)
    return Shift(
        members=slow,
        against="others",
        moved=moved,
        limit=limit,
        bad=bad,
        doubtful=not bad,
    )


def _least_gap(of_peers: Floats, pairs: Floats, known: bool) -> float:
    """Return the gap from which on peers are two groups; `pairs` are distances of two readings of a
    series.
    """
    # Known nodes differ by noise alone, new ones permanently by some per cent.
    least = MUST_FIND
    if known:
        least = MUST_FIND / 2
    readings = count_known(of_peers).min()
    by_chance: float = _GAP * typical(pairs) / np.sqrt(max(readings, 2))
    return max(least, by_chance)


def _shift(
    reference: Reference, distance: Floats, members: Ints, limit: float, against: Against
) -> Shift:
    """Return how `members` moved together.

    It is bad if their median is below the limit in enough rounds of readings, or in the run before
    as well.
    """
    limit = min(limit, float(reference.cap[members[0]]))
    of_members = distance[:, members]
    count = np.isfinite(of_members).sum(axis=1)
    are_most = 2 * count >= members.size
    rounds = np.zeros(1)
    if are_most.any():
        rounds = median_of(of_members[are_most].T)
    moved = median(rounds)
    agreeing = (rounds < -limit).sum()
    is_low = moved < -limit
    is_sure = agreeing >= AGREEING or _persists(reference, members, limit)
    bad = bool(is_low and is_sure)
    return Shift(
        members=members,
        against=against,
        moved=moved,
        limit=limit,
        bad=bad,
        doubtful=is_low and not bad and len(rounds) < ENOUGH,
    )


def _persists(reference: Reference, members: Ints, limit: float) -> bool:
    """Return whether the median of `members` was below the limit in the run before as well."""
    before = reference.past.location[-1:, members]
    if not before.size:
        return False
    distance = before - reference.expected[members]
    return bool((median_of(distance.T) < -limit).all())
