"""Which numbers of a run are too low, all series at once. Pure: numpy arrays in, numpy arrays out.

Common moves of all peers are subtracted first; the rest of each series is scanned for a change
(seatrial/detection/scan.py). What reads low is read again. docs/verdicts.md follows an example by
hand.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from seatrial.detection.losses import RunReadings
from seatrial.detection.noise import AGREEING, ENOUGH, LEAST_PEERS, median_of
from seatrial.detection.readings import Bools, Floats, Ints
from seatrial.detection.references import Reference
from seatrial.detection.scan import FALSE_ALARMS, LEAST_WATCHED, WATCHED, RunScan, Scan
from seatrial.detection.shifts import CommonMoves, Shift

MOST_READINGS = 24  # of a series in one run: one more narrows the median by 2 %
# Of a series in one run while few are known: they are what its level is learned from
YOUNG_READINGS = 6
# Readings of all peers for each one of a series in doubt: what all lost together is then known far
# better than what it lost itself. The median's variance is pi / 2 of the mean's
# (`MEDIAN_VARIANCE`), a fifth of that of the series.
_PEER_READINGS = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judgement of M series; natural logs.

    `value` is the median of this run's `readings`, `location` their Hodges-Lehmann estimate,
    `expected` the value to expect, and `limit` how far below it is healthy. `loss` is how far below
    `expected` the runs since the change are, which began `start` runs before this one; `moved` is
    the common move of all peers. An `unproven` series reads below the limit too seldom and lower
    than peers did, a `watched` one may become bad. `agreeing` counts this run's readings below the
    limit. `doubtful` series should be read once more, `supporting` ones as well if that costs
    little: few of their runs are known, or they are peers of doubtful ones.
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
    season = reference.season
    readings = readings - season
    # Half for series, half for peers that move together
    level = FALSE_ALARMS / (2 * max(readings.shape[1], 1))
    z = NormalDist().inv_cdf(1 - level)
    common = CommonMoves(reference, readings - reference.expected, z)
    moved = common.moved
    run = RunReadings(reference, readings, moved, common.unsure)
    scan = RunScan(run).scan()
    # A shift of all peers is not held against each of them again
    own = np.ones_like(scan.bad)
    for shift in common.shifts:
        own[shift.members] &= shift.against == "past" or not shift.bad
    bad = scan.bad & (own | (scan.start == 0))
    is_settled = bad & (run.count >= AGREEING)
    doubtful = scan.near & ~is_settled
    for shift in common.shifts:
        doubtful[shift.members] |= shift.doubtful
    doubtful &= _may_be_read(run.count, MOST_READINGS)
    suspected = scan.confidence >= WATCHED
    unproven = scan.unproven & (suspected | ~_is_usual(reference, scan))
    may_be_bad = suspected & (scan.loss >= LEAST_WATCHED)
    watched = may_be_bad & ~bad & ~unproven & own
    below = run.distance < scan.level - scan.limit
    return Outcome(
        value=median_of(readings) + season,
        location=run.location + moved + season,
        readings=run.count,
        expected=scan.level + moved + season,
        limit=scan.limit,
        loss=scan.loss,
        start=scan.start,
        moved=moved,
        agreeing=below.sum(axis=0),
        confidence=scan.confidence,
        bad=bad,
        unproven=unproven,
        watched=watched,
        doubtful=doubtful,
        supporting=_supporting(reference, doubtful, run.count),
        shifts=common.shifts,
    )


def _is_usual(reference: Reference, scan: Scan) -> Bools:
    """Return (M) whether at least three peers once lost nearly as much, while healthy, as an
    unproven series has lost now.
    """
    past = reference.past
    moved = reference.moved[:, reference.group]
    lost = reference.own + moved - past.accepted(past.location)
    most = np.fmax.reduce(lost, initial=0.0)
    least = np.maximum(scan.loss - scan.limit, scan.limit)
    usual = np.zeros_like(scan.unproven)
    for i in np.flatnonzero(scan.unproven).tolist():
        peers = reference.groups[reference.group[i]]
        as_low = most[peers] > least[i]
        usual[i] = as_low.sum() >= AGREEING
    return usual


def _may_be_read(count: Ints, most: int) -> Bools:
    """Return which series have been read, but fewer than `most` times."""
    return (count > 0) & (count < most)


def _supporting(reference: Reference, doubtful: Bools, count: Ints) -> Bools:
    """Return which series to read beside the `doubtful` ones, of `count` (M) readings so far."""
    has_peers = np.isfinite(reference.peers)
    is_young = has_peers & (reference.runs < ENOUGH)
    young = is_young & _may_be_read(count, YOUNG_READINGS)
    return young | _peers_of_doubtful(reference, doubtful, count)


def _peers_of_doubtful(reference: Reference, doubtful: Bools, count: Ints) -> Bools:
    """Return which peers to read beside series that a few readings did not settle."""
    group = reference.group
    sizes = np.bincount(group)
    least = LEAST_PEERS
    since = AGREEING
    if reference.one_machine:  # a load on the machine slows one node now, and may slow all
        least = 2
        since = 1
    most = np.zeros_like(sizes)
    np.maximum.at(most, group, count * doubtful)
    is_asked = (sizes >= least) & (most >= since)
    readings = np.bincount(group, count)
    few = is_asked & (readings < _PEER_READINGS * most)
    may_follow = (count > 0) & (count <= most[group])
    return few[group] & may_follow
