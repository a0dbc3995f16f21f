"""What each number of a run should read, for each start that a change may have. Pure, numpy arrays.

Values are natural logs with more = better, one column a series. The level of a series is a Huber mean of its accepted
runs before the start, drawn to its peers' as far as those runs are few (empirical Bayes: Efron and Morris, "Data
analysis using Stein's estimator and its generalizations", 1975).
"""

from dataclasses import dataclass

import numpy as np

from seatrial.judge.noise import (
    AGREEING,
    ENOUGH,
    LEAST_NOISE,
    LEAST_PEERS,
    MEDIAN_VARIANCE,
    Bools,
    Floats,
    Ints,
    finite,
    healthy_readings,
    location_factor,
    median_of,
    members,
    noise_of,
    shared,
    steps_of,
    typical,
    unsure,
)

MUST_FIND = 0.105  # on logs, 10 %, the band of ReFrame's tutorial
STARTS = np.arange(14)  # runs before this one that a change may have lasted: two weeks
# What lasts for runs moves the level as well: an AR(1) with 0.9 lies 1.6 times as far from the mean of a month in
# variance in the next run as in those that it is the mean of.
_LASTING = 1.6
_CLIPPED = 2.5  # standard deviations, of a run's median: Huber's weight of 98 % efficiency


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier runs measured, oldest first: (T, M), NaN where nothing was.

    It is the first reading of each run, the mean of the others, the location of all and their number.

    `good` marks what was accepted and so teaches what is healthy; the rest is evidence alone.
    """

    first: Floats
    rest: Floats
    location: Floats
    count: Ints
    good: Bools

    def accepted(self, rows: Floats) -> Floats:
        return np.where(self.good, rows, np.nan)


@dataclass(frozen=True, slots=True)
class ThisRun:
    """The M series of a run: the first two readings, which series are peers (`group`, numbered from 0), the noise that
    is `assumed` where data are too few, and how far (`cap`, on logs) a limit may lie from what is expected."""

    first: Floats
    second: Floats
    group: Ints
    assumed: Floats
    cap: Floats


@dataclass(frozen=True, slots=True)
class Reference:
    """What M series should read, learned from `past` and this run's first readings; NaN if nothing is known.

    `own` is the median of the `runs` accepted runs; `levels` (S, M) is what the runs before each of STARTS show, drawn
    to the median of the `peers`, which differ by a standard deviation of `spread`; `doubts` is the standard deviation
    of a healthy level around it, `noise` that of one reading, `step` what rounding may make of nothing. `moved` (T, G)
    is by how much each group of peers moved together in each run, known to `unsure` (G); `together` (G) is the
    standard deviation of that over runs. `factor` (G) is the variance of the location of several readings, over that of
    their mean. `healthy` (G) are accepted readings, of which the share `strays` (G) strays.
    """

    past: Past
    group: Ints
    groups: list[Ints]
    own: Floats
    runs: Ints
    levels: Floats
    doubts: Floats
    peers: Floats
    spread: Floats
    noise: Floats
    cap: Floats
    step: Floats
    moved: Floats
    unsure: Floats
    together: Floats
    factor: Floats
    healthy: list[Floats]
    strays: Floats

    @property
    def expected(self) -> Floats:
        """The level before this run."""
        return np.asarray(self.levels[0])


def learn(past: Past, current: ThisRun) -> Reference:
    """The references of this run's series."""
    groups = members(current.group)
    accepted, firsts = past.accepted(past.location), past.accepted(past.first)
    own, runs = median_of(accepted), np.isfinite(accepted).sum(axis=0)
    noise = noise_of(firsts, own, current.first, current.assumed, groups)
    weights = np.where(np.isfinite(accepted), past.count / noise**2, 0.0)
    peers, spread = _peers(own, 1 / np.sqrt(np.maximum(weights.sum(axis=0), 1e-9)), noise, current, groups)
    centre = np.where(runs > 0, _means(accepted, weights)[0][-1], peers)
    shifts = shift_of(groups, np.vstack([past.location, current.first]) - centre, runs)
    known = np.array([max(int((runs[at] > 0).sum()), 1) for at in groups])
    errors = np.array([float(np.median(noise[at])) for at in groups]) * np.sqrt(MEDIAN_VARIANCE / known)
    moved = beyond_chance(shifts[:-1], errors)
    scaled = (np.vstack([firsts, current.first]) - centre - shifts[:, current.group]) / noise
    again = (np.vstack([past.accepted(past.rest), current.second]) - centre - shifts[:, current.group]) / noise
    more = np.maximum(np.vstack([past.count, np.full((1, own.size), 2)]) - 1, 0)
    share, doubt = shared(scaled, again, more, groups)
    around = (accepted - centre - shifts[:-1, current.group]) / noise
    factor = location_factor(around, past.count * past.good, share, groups)
    weights = weights / np.where(past.count >= AGREEING, factor[current.group], 1.0)
    # The error of a share counts where few runs show how far it takes the level.
    lasting = np.minimum(np.maximum(_LASTING * share, doubt / 2), 1.0)[current.group] * noise**2
    levels, doubts = _levels(accepted - moved[:, current.group], weights, peers, spread, lasting)
    # Where all are new and many, their noise of this run holds already how much they differ.
    if_new = np.where(_has_past(runs, current.group), np.maximum(lasting, spread**2), lasting)
    doubts = np.where(runs > 0, doubts, np.sqrt(if_new))
    healthy, strays = healthy_readings(scaled[:-1], scaled[-1], groups)
    steps = steps_of(firsts, groups)[current.group]
    step = np.where(noise < steps / 2, steps, steps / 2)  # more noise than a step makes it vanish on average
    together = _together(shifts[:-1], noise, current, groups)
    return Reference(
        past, current.group, groups, own, runs, levels, doubts, peers, spread, noise, current.cap, step, moved, errors,
        together, factor, healthy, strays,
    )  # fmt: skip


def _has_past(runs: Ints, group: Ints) -> Bools:
    """Whether the group of each series is small, or more than one of it was measured before."""
    return np.asarray((np.bincount(group, runs > 0) > 1) | (np.bincount(group) < ENOUGH))[group]


def _levels(accepted: Floats, weights: Floats, peers: Floats, spread: Floats, lasting: Floats) -> tuple[Floats, Floats]:
    """(S, M) the level before each start, and the standard deviation of a healthy one around it."""
    means, sums, runs = _means(accepted, weights)
    levels, doubts = np.full((len(STARTS), peers.size), np.nan), np.full((len(STARTS), peers.size), np.nan)
    for nth, start in enumerate(STARTS[len(accepted) >= STARTS].tolist()):
        before = len(accepted) - start
        error = 1 / np.sqrt(np.maximum(sums[before], 1e-9))
        levels[nth], weight = _drawn(means[before], error, runs[before], peers, spread)
        doubts[nth] = np.sqrt(weight * error**2 + lasting)
    return levels, doubts


def _means(accepted: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """(T + 1, M) the Huber mean of the first 0, 1, ... runs, the sum of their weights, and how many they are.

    A run that read low was read more often. The mean by number of readings stays right for all that (Wald, "On
    cumulative sums of random variables", 1944), as a median of runs does not.
    """
    none = np.zeros((1, accepted.shape[1]))
    middle = np.nan_to_num(median_of(accepted))
    width = _CLIPPED / np.sqrt(np.where(weights > 0, weights, 1.0))
    clipped = np.where(weights > 0, np.clip(accepted - middle, -width, width), 0.0)
    sums = np.cumsum(np.vstack([none, weights]), axis=0)
    drifts = np.cumsum(np.vstack([none, weights * clipped]), axis=0)
    runs = np.cumsum(np.vstack([none, np.isfinite(accepted)]), axis=0)
    return middle + drifts / np.maximum(sums, 1e-9), sums, runs


def _drawn(own: Floats, error: Floats, runs: Ints, peers: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """The level drawn to that of the peers, and the part of its own in it; NaN where too little is known."""
    weight = np.where(np.isfinite(spread), spread**2 / (spread**2 + error**2), 1.0)
    # Limited translation (Efron and Morris, 1972): a series that is known to differ from its peers is drawn a little.
    most = np.where(runs >= ENOUGH, error, np.inf)
    own = np.where(np.isfinite(peers), own + np.clip((1 - weight) * (peers - own), -most, most), own)
    level = np.where(runs > 0, own, peers)
    return np.where(np.isfinite(peers) | (runs >= AGREEING), level, np.nan), weight


def shift_of(groups: list[Ints], distance: Floats, runs: Ints) -> Floats:
    """(T, G) from (T, M): by how much the known peers of each group moved together; 0 where they are too few."""
    shifts = np.zeros((len(distance), len(groups)))
    for number, at in enumerate(groups):
        known = at[runs[at] > 0]
        if known.size < LEAST_PEERS:
            continue
        count = np.isfinite(distance[:, known]).sum(axis=1)
        enough = (count >= LEAST_PEERS) & (2 * count >= known.size)
        shifts[:, number] = np.where(enough, median_of(distance[:, known].T), 0.0)
    return shifts


def beyond_chance(shifts: Floats, errors: Floats) -> Floats:
    """The shifts without what chance makes of them: nothing is left of one below two standard errors (James and Stein,
    positive part)."""
    return np.asarray(shifts * np.maximum(0.0, 1 - (2 * errors / np.where(shifts == 0, np.inf, shifts)) ** 2))


def _peers(own: Floats, error: Floats, noise: Floats, current: ThisRun, groups: list[Ints]) -> tuple[Floats, Floats]:
    """Centre and spread of peers, from those with earlier runs, or from this run if no peer has one; else NaN."""
    centre, spread = np.full(own.size, np.nan), np.full(own.size, np.nan)
    for at in groups:
        measured = at[np.isfinite(current.first[at])]
        if measured.size < LEAST_PEERS:
            continue
        known = at[np.isfinite(own[at])]
        from_past = known.size > 1
        values = own[known] if from_past else current.first[measured]
        chance = float(np.mean(error[known] ** 2)) if from_past else 0.0
        seen = typical(np.abs(values - np.median(values))) * unsure(values.size)
        if values.size < ENOUGH:
            seen = max(seen, float(current.assumed[at[0]]))
        centre[at] = np.median(values)
        spread[at] = np.sqrt(max(seen**2 - chance, float(np.median(noise[at])) ** 2 / 9))
    return centre, spread


def _together(shifts: Floats, noise: Floats, current: ThisRun, groups: list[Ints]) -> Floats:
    """(G) how far a group's median lies from its past by chance, one standard deviation; runs teach it."""
    together = np.empty(len(groups))
    for number, at in enumerate(groups):
        seen = finite(np.where(shifts[:, number] != 0, shifts[:, number], np.nan))
        chance = float(np.median(noise[at])) * np.sqrt(MEDIAN_VARIANCE / at.size)
        usual = typical(np.abs(seen - np.median(seen))) * unsure(seen.size) if seen.size else 0.0
        assumed = float(current.assumed[at[0]]) if seen.size < ENOUGH else 0.0
        together[number] = max(chance, usual, LEAST_NOISE, assumed)
    return together
