"""What each number of a run should read, and how far chance takes it. Pure: numpy arrays in, numpy arrays out.

Values are natural logs with more = better, one column a series. The reference of a series is the median of its accepted
runs, drawn to its peers' as far as those runs are few (empirical Bayes: Efron and Morris, "Data analysis using Stein's
estimator and its generalizations", 1975). Noise is a robust scale of the steps from run to run; a series that is louder
than its peers counts as loud as its own past shows (moderated variance: Smyth, "Linear models and empirical Bayes
methods", 2004). How much of it all readings of a run share is the slope of the regression of second readings on first
ones, which stays right although mostly what looks low is read twice.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ENOUGH = 8  # values: a scale that is learned from fewer is off by half and more
AGREEING = 3  # readings, runs or other peers: of two nobody can tell which one is odd
LEAST_PEERS = AGREEING + 1
MUST_FIND = 0.105  # on logs, 10 %, the band of ReFrame's tutorial: read again until it is found or ruled out
# Copies in the memory of one H100 (docs/gpu-results): 3 of 52 readings stray, the others repeat to 0.1 to 0.3 %.
LEAST_STRAYS = 0.005  # of readings: how many stray is never taken as none
LEAST_NOISE = 0.003  # on logs
MEDIAN_VARIANCE = np.pi / 2  # of normal values, over that of the mean
_MAD = 1.4826  # the standard deviation of normal values over their median absolute deviation
# What lasts for runs moves the median of the runs as well: an AR(1) with 0.9 lies 1.6 times as far from it in variance
# in the next run as in those that it is the median of.
_LASTING = 1.6
_WINSOR = 4.0  # standard deviations: what lies farther off counts as that


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier runs measured, oldest first: (T, M), NaN where nothing was.

    `good` marks what was accepted and so teaches what is healthy; the rest is evidence alone.
    """

    first: Floats
    second: Floats
    median: Floats
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
class Strays:
    """Accepted readings of some series (`pool`) less what they should be, sorted: in units of the noise of each series,
    and of a usual one of its group."""

    pool: Ints
    by_own: Floats
    by_usual: Floats


@dataclass(frozen=True, slots=True)
class Reference:
    """What M series should read, learned from `past` and this run's first readings; NaN if nothing is known.

    `own` is the median of the `runs` accepted runs; `expected` that drawn to the median of the `peers`, which differ by
    a standard deviation of `spread`; `level` is the standard deviation of a healthy level around it, `noise` that of
    one reading. `moved` (T, G) is by how much each group of peers moved together in each run, known to `unsure` (G);
    `together` (G) is the standard deviation of that over runs. `usual` (G) is the noise of a usual series.
    `strays` (G) are the accepted readings that each group is held against.
    """

    past: Past
    group: Ints
    groups: list[Ints]
    own: Floats
    runs: Ints
    expected: Floats
    level: Floats
    peers: Floats
    spread: Floats
    noise: Floats
    cap: Floats
    moved: Floats
    unsure: Floats
    together: Floats
    usual: Floats
    strays: list[Strays]


def members(group: Ints) -> list[Ints]:
    """The places of the series of each group."""
    order = np.argsort(group, kind="stable")
    return list(np.split(order, np.cumsum(np.bincount(group))[:-1])) if group.size else []


def median_of(rows: Floats) -> Floats:
    """The median of each column without its NaN; NaN for a column that has nothing else."""
    count = np.isfinite(rows).sum(axis=0)
    if not count.any():
        return np.full(rows.shape[1], np.nan)
    ordered = np.sort(rows, axis=0)  # NaN last
    places = (np.maximum(count - 1, 0) // 2, np.minimum(count // 2, len(rows) - 1))
    low, high = (np.take_along_axis(ordered, place[None], axis=0)[0] for place in places)
    return np.asarray((low + high) / 2)


def learn(past: Past, current: ThisRun) -> Reference:
    """The references of this run's series."""
    groups = members(current.group)
    accepted, firsts = past.accepted(past.median), past.accepted(past.first)
    own, runs = median_of(accepted), np.isfinite(accepted).sum(axis=0)
    noise = _noise(firsts, own, runs, current, groups)
    error = _error(accepted, noise, runs, groups)
    peers, spread = _peers(own, error, noise, current, groups)
    weight = np.where(np.isfinite(spread), spread**2 / (spread**2 + error**2), 1.0)
    # Limited translation (Efron and Morris, 1972): a series that is known to differ from its peers is drawn a little.
    most = np.where(runs >= ENOUGH, error, np.inf)
    drawn = np.where(np.isfinite(peers), own + np.clip((1 - weight) * (peers - own), -most, most), own)
    expected = np.where(np.isfinite(peers) | (runs >= AGREEING), np.where(runs > 0, drawn, peers), np.nan)
    shifts = shift_of(groups, np.vstack([past.median, current.first]) - expected, runs)
    first, second = (
        (np.vstack([past.accepted(rows), now]) - expected - shifts[:, current.group]) / noise
        for rows, now in ((past.first, current.first), (past.second, current.second))
    )
    shared, doubt = (share[current.group] for share in _shared(first, second, groups))
    usual = np.array([float(np.median(noise[at])) for at in groups])
    known = np.array([max(int((runs[at] > 0).sum()), 1) for at in groups])
    errors = usual * np.sqrt(MEDIAN_VARIANCE / known)  # of a shift
    # Where all are new and many, their noise of this run holds already how much they differ.
    has_past = (np.bincount(current.group, runs > 0) > 1) | (np.bincount(current.group) < ENOUGH)
    lasting = np.minimum(np.where(runs > 0, np.maximum(_LASTING * shared, doubt), shared + doubt), 1.0) * noise**2
    new = np.maximum(lasting, np.where(has_past[current.group], spread**2, 0.0))
    level = np.sqrt(np.where(runs > 0, weight * error**2 + lasting, new))
    return Reference(
        past, current.group, groups, own, runs, expected, level, peers, spread, noise, current.cap,
        beyond_chance(shifts[:-1], errors), errors,
        _together(shifts[:-1], noise, current, groups), usual, _strays(first[:-1], noise, usual, groups),
    )  # fmt: skip


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


def _noise(firsts: Floats, own: Floats, runs: Ints, current: ThisRun, groups: list[Ints]) -> Floats:
    """The standard deviation of one reading of each series: that of its group, or its own where it is louder."""
    steps, rest = np.abs(np.diff(np.vstack([firsts, current.first]), axis=0)), firsts - own
    noise = np.empty(own.size)
    for at in groups:
        noise[at] = _scale(steps[:, at], rest[:, at], current.first[at], float(current.assumed[at[0]]))
    squares = np.nansum(np.clip(rest, -_WINSOR * noise, _WINSOR * noise) ** 2, axis=0)
    loud = np.sqrt((ENOUGH * noise**2 + squares) / (ENOUGH + np.maximum(runs - 1, 0)))
    return np.asarray(np.maximum(np.maximum(noise, loud), LEAST_NOISE))


def _error(accepted: Floats, noise: Floats, runs: Ints, groups: list[Ints]) -> Floats:
    """The standard error of the median of a series' runs: normal, or what the runs around it show (McKean and Schrader,
    "A comparison of methods for studentizing the sample median", 1984) on average over peers where that is more."""
    ordered, beside = np.sort(accepted, axis=0), (np.maximum(runs - np.sqrt(runs), 0) / 2).astype(int)
    low, high = (
        np.take_along_axis(ordered, np.clip(at, 0, len(ordered) - 1)[None], axis=0)[0] if len(ordered) else accepted
        for at in (beside, runs - 1 - beside)
    )
    error = noise * np.sqrt(MEDIAN_VARIANCE / np.maximum(runs, 1))
    squares = (
        np.where(runs >= LEAST_PEERS, ((high - low) / 2) ** 2, np.nan) if len(ordered) else np.full(runs.size, np.nan)
    )
    for at in groups:
        seen = squares[at][np.isfinite(squares[at])]
        error[at] = np.maximum(error[at], np.sqrt(seen.mean()) if seen.size else 0.0)
    return error


def _scale(steps: Floats, rest: Floats, first: Floats, assumed: float) -> float:
    """The noise of a group: by its steps from run to run, else by what peers differ by in this run, else as assumed."""
    if first.size < LEAST_PEERS:  # alone, what lasts for runs counts as noise as well
        rest = rest[np.isfinite(rest)]
        return typical(np.abs(rest)) * unsure(rest.size) if rest.size >= ENOUGH else assumed
    steps, apart = steps[np.isfinite(steps)], np.abs(first - median_of(first[:, None]))
    if steps.size >= ENOUGH:
        return typical(steps) / math.sqrt(2) * unsure(steps.size)
    apart = apart[np.isfinite(apart)]
    return typical(apart) * unsure(apart.size) if apart.size >= ENOUGH else assumed


def unsure(count: int) -> float:
    """How much wider a limit is because its scale is learned from `count` distances.

    The quantile of Student's t over the normal one: 1 + (z² + 1) / 4f at z = 4.4, with f = 0.6 count, because steps
    share readings (Cornish and Fisher, "Moments and cumulants in the specification of distributions", 1937).
    """
    return 1 + 8 / count


def typical(distances: Floats) -> float:
    """The standard deviation of distances, winsorized at three by their median (one step of Huber's proposal 2).

    If most are equal, readings are rounded, and the farthest tenth gives the scale.
    """
    if not distances.size:
        return 0.0
    scale = _MAD * float(np.median(distances))
    if not scale:
        few = distances.size < ENOUGH  # where the farthest one may be the fault
        return float(np.quantile(distances, 0.9, method="lower" if few else "linear")) / 1.645
    return math.sqrt(float(np.mean(np.minimum(distances, 3 * scale) ** 2)))


def _peers(own: Floats, error: Floats, noise: Floats, current: ThisRun, groups: list[Ints]) -> tuple[Floats, Floats]:
    """Centre and spread of peers, from those with earlier runs, or from this run if no peer has one; else NaN."""
    centre, spread = np.full(own.size, np.nan), np.full(own.size, np.nan)
    for at in groups:
        measured = at[np.isfinite(current.first[at])]
        if measured.size < LEAST_PEERS:
            continue
        known = at[np.isfinite(own[at])]
        values = own[known] if known.size > 1 else current.first[measured]
        chance = float(np.mean(error[known] ** 2)) if known.size > 1 else 0.0
        seen = typical(np.abs(values - np.median(values))) * unsure(values.size)
        if values.size < ENOUGH:
            seen = max(seen, float(current.assumed[at[0]]))
        centre[at] = np.median(values)
        spread[at] = np.sqrt(max(seen**2 - chance, float(np.median(noise[at])) ** 2 / 9))
    return centre, spread


def _shared(first: Floats, second: Floats, groups: list[Ints]) -> tuple[Floats, Floats]:
    """(G) the share of the noise's variance that all readings of a run have in common, and its standard error: that
    of all groups together, but for a group that shows more than chance makes of that."""
    both = np.isfinite(first) & np.isfinite(second) & (np.abs(first) < _WINSOR)
    x, y = np.where(both, first, 0.0), np.where(both, np.clip(second, -_WINSOR, _WINSOR), 0.0)
    product, square = (x * y).sum(axis=0), (x * x).sum(axis=0)
    sums = np.array([(product[at].sum(), square[at].sum()) for at in groups])
    every, weight = sums.sum(axis=0), np.maximum(sums[:, 1], 1e-9)
    own, error, usual = sums[:, 0] / weight, 1 / np.sqrt(weight), every[0] / max(every[1], 1e-9)
    differs = own - usual > 3 * error
    share = np.maximum(np.where(differs, own, usual), 0.0)
    return share, np.where(differs, error, 1 / np.sqrt(max(every[1], 1e-9)))


def _together(shifts: Floats, noise: Floats, current: ThisRun, groups: list[Ints]) -> Floats:
    """(G) how far a group's median lies from its past by chance, one standard deviation; runs teach it."""
    together = np.empty(len(groups))
    for number, at in enumerate(groups):
        seen = shifts[shifts[:, number] != 0, number]
        chance = float(np.median(noise[at])) * np.sqrt(MEDIAN_VARIANCE / at.size)
        usual = typical(np.abs(seen - np.median(seen))) * unsure(seen.size) if seen.size else 0.0
        together[number] = max(chance, usual, LEAST_NOISE, float(current.assumed[at[0]]) if seen.size < ENOUGH else 0.0)
    return together


def _strays(past: Floats, noise: Floats, usual: Floats, groups: list[Ints]) -> list[Strays]:
    """By group the accepted readings of earlier runs; small groups take those of all groups."""
    everywhere = np.concatenate(groups) if groups else np.empty(0, dtype=np.int64)
    by_usual = past * noise / np.repeat(usual, [at.size for at in groups])[np.argsort(everywhere)]
    pools = [at if past[:, at].size >= ENOUGH**2 else everywhere for at in groups]
    return [Strays(at, _sorted(past[:, at]), _sorted(by_usual[:, at])) for at in pools]


def _sorted(values: Floats) -> Floats:
    return np.sort(values[np.isfinite(values)])
