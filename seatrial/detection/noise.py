"""How far chance takes the readings of series: robust scales, what lasts, strays, steps.

Pure, numpy arrays.

Noise is a robust scale of the steps from run to run; a series that is louder than its peers counts
as loud as its own past shows (moderated variance: Smyth, "Linear models and empirical Bayes
methods", 2004). How much of it all readings of a run share is the mean product of two of them.
"""

import math
from typing import Literal

import numpy as np

from seatrial.detection.readings import Floats, Ints, Past

ENOUGH = 8  # values: a scale that is learned from fewer is off by half and more
PRIOR_VALUES = 4  # of a series' own noise, so many that the noise of its peers counts for
AGREEING = 3  # readings, runs or other peers: of two nobody can tell which one is odd
LEAST_PEERS = AGREEING + 1
# Copies in the memory of one H100 (docs/gpu-results): 3 of 52 readings stray, the others repeat to
# 0.1 to 0.3 %.
LEAST_STRAYS = 0.005  # of readings: how many stray is never taken as none
LEAST_NOISE = 0.003  # on logs
MAD = 1.4826  # the standard deviation of normal values over their median absolute deviation
MEDIAN_VARIANCE = np.pi / 2  # of normal values, over that of the mean
STRAYING = 4.0  # standard deviations: what lies farther off counts as that far, and as a stray
PERSISTENCE = 0.9  # from run to run, of what lasts: as in the AR(1) of docs/error-rates.md
_CLEAN = 0.75  # of runs without a stray: three times as many as the lower quartile of runs needs
_PRIOR_READINGS = 2 * ENOUGH  # of which a quarter of one strays: a Beta prior
# Of the variance of a location: as for Student's t with 4 degrees of freedom at the least
_FACTORS = (0.7, 3.0)
# Readings of a group that losses are tried on: their mean is known to some per cent
_MOST_HEALTHY = 2000
# Times the usual squares of a run, of those of a series' quieter runs: strays are no noise
_MOST_WITHIN = 3.0
_MOST_PRIOR = 16.0 * ENOUGH  # degrees of freedom
_INDEPENDENT = 0.6  # of steps: each reading is part of two
_ALIKE = 1.25  # the ratio of two variances that are taken as the same
_LEAST_RATIO = 1e-3  # of variances, where readings are rounded
_LOUD = 2.5  # standard deviations of a scatter: one of 160 series has more by chance
_UNLIKE = 5.0  # standard deviations of most series
_ROUNDED = 3  # readings for each distinct value, from which on they are rounded


def members(group: Ints) -> list[Ints]:
    """Return the places of the series of each group."""
    if not group.size:
        return []
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    return list(np.split(order, ends[:-1]))


def median_of(rows: Floats) -> Floats:
    """Return the median of each column without its NaN; NaN for a column that has nothing else."""
    count = np.isfinite(rows).sum(axis=0)
    if not count.any():
        return np.full(rows.shape[1], np.nan)
    ordered = np.sort(rows, axis=0)  # NaN last
    low = np.maximum(count - 1, 0) // 2
    high = np.minimum(count // 2, len(rows) - 1)
    below = np.take_along_axis(ordered, low[None], axis=0)[0]
    above = np.take_along_axis(ordered, high[None], axis=0)[0]
    return np.asarray((below + above) / 2)


def hodges_lehmann(readings: Floats) -> Floats:
    """Return the location of each column: the median of the means of all pairs of its values, each
    with itself too.

    Its variance is 5 % above that of the mean for normal noise, and below it for noise with longer
    tails (Hodges and Lehmann, "Estimates of location based on rank tests", 1963).
    """
    if len(readings) == 3:  # one stray of three is more than the means of pairs bear
        return np.asarray(np.median(readings, axis=0))
    one, other = np.triu_indices(len(readings))
    means = (readings[one] + readings[other]) / 2
    return np.asarray(np.median(means, axis=0))


def locations(in_turn: Floats, start: Ints, count: Ints) -> Floats:
    """Return the location of the values of each series, so many from `start` of `in_turn` on; NaN
    of none.
    """
    located = np.full(count.shape, np.nan)
    for readings in np.unique(count[count > 0]).tolist():
        at = np.flatnonzero(count == readings)
        places = start[at] + np.arange(readings)[:, None]
        located[at] = hodges_lehmann(in_turn[places])
    return located


def finite(values: Floats) -> Floats:
    return np.asarray(values[np.isfinite(values)])


def typical(distances: Floats) -> float:
    """Return the standard deviation of distances, winsorized at three by their median (one step of
    Huber's proposal 2).

    If most are equal, readings are rounded, and the farthest tenth gives the scale.
    """
    if not distances.size:
        return 0.0
    scale = MAD * float(np.median(distances))
    if scale:
        winsorized = np.minimum(distances, 3 * scale)
        return math.sqrt(float(np.mean(winsorized**2)))
    # Of few the farthest one may be the fault.
    method: Literal["lower", "linear"] = "lower" if distances.size < ENOUGH else "linear"
    return float(np.quantile(distances, 0.9, method=method)) / 1.645


def scatter(values: Floats) -> float:
    """Return the standard deviation of values around their median, as `typical` has it."""
    return typical(np.abs(values - np.median(values)))


def widening(count: float) -> float:
    """Return the factor by which a limit is wider because its scale is learned from `count`
    distances.

    The quantile of Student's t over the normal one: 1 + (z² + 1) / 4f at z = 4.4, with f = 0.6
    count, because steps share readings (Cornish and Fisher, "Moments and cumulants in the
    specification of distributions", 1937).
    """
    return 1 + 8 / count


def noise_of(
    past: Past, own: Floats, tonight: Floats, assumed: Floats, groups: list[Ints]
) -> tuple[Floats, Floats]:
    """Return the standard deviation of one reading of each series, and the degrees of freedom it is
    known to.

    It is that of its group, and more if the series is noisier. `own` (M) are the medians of
    accepted runs.
    """
    firsts = past.accepted(past.first)
    steps = np.abs(np.diff(np.vstack([firsts, tonight]), axis=0))
    rest = firsts - own
    noise, strays = np.empty(own.size), np.empty(own.size)
    for at in groups:
        scale = _scale(steps[:, at], rest[:, at], tonight[at], float(assumed[at[0]]))
        noise[at] = max(scale, LEAST_NOISE)
        strays[at] = share_of_strays(finite(rest[:, at] / noise[at]))
    squares, degrees = _own_squares(past, rest, noise, strays)
    for at in groups:
        known = int(np.isfinite(steps[:, at]).sum())
        if at.size < LEAST_PEERS or known < ENOUGH:
            continue
        noise[at] *= _narrowing(known, float(squares[at].sum()), float(degrees[at].sum()))
    squares, degrees = _own_squares(past, rest, noise, strays)
    prior = _prior_degrees(squares, degrees, groups)
    louder, degrees = moderated(squares, degrees, prior)
    return noise * louder, degrees


def _narrowing(steps: int, squares: float, degrees: float) -> float:
    """Return the factor by which the noise of a group shrinks because all its readings are
    evidence, not `steps` alone.

    They count if they scatter as much within runs as the first readings do from run to run.
    """
    as_known = squares * widening(steps) ** 2  # in variances of the steps
    if not 1 / _ALIKE < as_known / max(degrees, 1) < _ALIKE:
        return 1.0
    own = _INDEPENDENT * steps
    together = own + degrees
    variance = (own + as_known) / together
    return math.sqrt(variance) * widening(together / _INDEPENDENT) / widening(steps)


def _own_squares(past: Past, rest: Floats, noise: Floats, strays: Floats) -> tuple[Floats, Floats]:
    """Return the sum of squares of each series' readings (M), in standard deviations, and its
    degrees of freedom.

    Runs that are read so often that a quarter of such ones holds one of the share `strays` (M) are
    left out, and what is far above the squares of a series' quieter runs is no noise.
    """
    is_clean = (1 - strays) ** past.count > _CLEAN
    more = np.maximum(past.count - 1, 0) * past.good * is_clean
    squares = past.accepted(past.within) / noise**2
    mean = np.where(more > 0, squares / np.maximum(more, 1), np.nan)
    usual = np.fmax(_lower_quartile(mean), 1.0)
    within = np.minimum(mean, _MOST_WITHIN * usual) * more
    once = past.good & (past.count == 1)
    scaled = np.clip(rest / noise, -STRAYING, STRAYING)
    single = np.where(once, scaled**2, 0.0)
    degrees = more.sum(axis=0) + np.maximum(once.sum(axis=0) - 1, 0)
    return np.nansum(within, axis=0) + single.sum(axis=0), degrees


def _lower_quartile(rows: Floats) -> Floats:
    """Return that of each column without its NaN; NaN for a column of too few to tell which one is
    odd.
    """
    none = np.full((1, rows.shape[1]), np.nan)
    ordered = np.sort(np.vstack([rows, none]), axis=0)  # NaN last
    count = np.isfinite(rows).sum(axis=0)
    quartile = np.take_along_axis(ordered, count[None] // 4, axis=0)[0]
    return np.where(count >= AGREEING, quartile, np.nan)


def _prior_degrees(squares: Floats, degrees: Floats, groups: list[Ints]) -> Floats:
    """Return (M) the degrees of freedom that the noise of peers counts for: the more, the less
    peers differ.

    From the scatter of the logs of variances beyond that of chance, which is 2 / degrees (Smyth,
    2004), winsorised (Phipson et al., "Robust hyperparameter estimation protects against
    hypervariable genes", 2016).
    """
    prior = np.full(degrees.shape, float(PRIOR_VALUES))
    peers = [at for at in groups if at.size >= LEAST_PEERS]
    beyond, chance = list[Floats](), list[Floats]()
    for at in peers:
        some = at[degrees[at] >= AGREEING]
        if not some.size:
            continue
        variances = squares[some] / np.maximum(degrees[some], 1)
        logs = np.log(np.maximum(variances, _LEAST_RATIO))
        beyond.append(logs - np.median(logs))
        chance.append(2 / np.maximum(degrees[some] - 1, 1))
    if sum(logs.size for logs in beyond) < ENOUGH:
        return prior
    distances = np.abs(np.concatenate(beyond))
    more = typical(distances) ** 2 - float(np.mean(np.concatenate(chance)))
    of_peers = np.clip(2 / max(more, 1e-9), PRIOR_VALUES, _MOST_PRIOR)
    for at in peers:
        prior[at] = of_peers
    return prior


def moderated(squares: Floats, degrees: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return by which factor each series is noisier than assumed, and the degrees of freedom; those
    so far are `prior`.

    A series that is noisier than chance allows for any of them counts with the least prior.
    """
    mean = squares / np.maximum(degrees, 1)
    spread = 2 / (9 * np.maximum(degrees, 1))
    odd = np.cbrt(mean) - (1 - spread) > _LOUD * np.sqrt(spread)  # Wilson and Hilferty, 1931
    prior = np.where(odd & (degrees > 0), np.minimum(prior, PRIOR_VALUES), prior)
    louder = np.sqrt((prior + squares) / (prior + degrees))
    return np.maximum(louder, 1.0), prior + degrees


def _scale(steps: Floats, rest: Floats, tonight: Floats, assumed: float) -> float:
    """Return the noise of a group: from its steps between runs, else from its peers in this run,
    else as assumed.
    """
    is_alone = tonight.size < LEAST_PEERS  # then what lasts for runs counts as noise as well
    between_runs = finite(steps)
    if not is_alone and between_runs.size >= ENOUGH:
        return typical(between_runs) / math.sqrt(2) * widening(between_runs.size)
    distances = finite(np.abs(rest if is_alone else tonight - median_of(tonight[:, None])))
    if distances.size < ENOUGH:
        return assumed
    return typical(distances) * widening(distances.size)


def apart_from_mean(count: Ints, lasts: float) -> Floats:
    """Return (T + 1, M) how far what readings of a run share takes each run, and this one, from the
    mean of all.

    That is a variance, in those of what they share, of which a share of `lasts` lasts; `count` (T,
    M) are readings. It is below 1, because what they share moves the mean as well.
    """
    days = np.arange(len(count) + 1)
    kept = PERSISTENCE ** np.abs(days[:, None] - days)
    covariance = lasts * kept + (1 - lasts) * np.eye(days.size)
    weights = count / np.maximum(count.sum(axis=0), 1)
    with_mean = covariance[:, :-1] @ weights
    of_mean = (weights * with_mean[:-1]).sum(axis=0)
    return np.asarray(np.maximum(1 - 2 * with_mean + of_mean, 1 - PERSISTENCE))


def shared(
    first: Floats,
    rest: Floats,
    within: Floats,
    count: Ints,
    readings: Ints,
    apart: Floats,
    groups: list[Ints],
) -> tuple[Floats, Floats]:
    """Return (M) the share of the noise's variance that all readings of a run have in common, and
    its standard error.

    It is the mean product of two readings of a run over `apart` (T, M), of most series together,
    unless their group differs from it by more than chance. Noise alone adds nothing to it, also
    where reading on depends on what was read (optional stopping: Doob, 1953). `first` (T, M) are
    readings and `rest` the means of `count` others of the same runs, in standard deviations from
    the mean of all `readings` (M) of the series, which makes their product less by one over that
    number; `within` is the sum of squares of all around their mean.
    """
    usable = np.isfinite(first) & np.isfinite(rest) & (np.abs(first) < STRAYING)
    usable &= within < _MOST_WITHIN * count + STRAYING**2
    first, rest, within = (np.where(usable, rows, 0.0) for rows in (first, rest, within))
    count = count * usable
    pairs = count * (count + 1) / 2
    mean = (first + count * rest) / (count + 1)
    product = pairs * mean**2 - within / 2 + pairs / np.maximum(readings, 1)
    square = count * first**2 + pairs - count
    weighted = (pairs * apart).sum(axis=0) / np.maximum(pairs.sum(axis=0), 1)
    mean_apart = np.where(usable.any(axis=0), weighted, 1.0)
    products = product.sum(axis=0) * mean_apart
    squares = square.sum(axis=0) * mean_apart**2
    usual, usual_squares = _of_most(products, squares)
    share, error = np.empty(readings.size), np.empty(readings.size)
    for at in groups:
        own, own_squares = _of_most(products[at], squares[at])
        if own - usual <= 3 / math.sqrt(own_squares):
            own, own_squares = usual, usual_squares
        share[at] = max(own, 0.0)
        error[at] = 1 / math.sqrt(own_squares)
    return share, error


def beyond_doubt(share: Floats, doubt: Floats) -> Floats:
    """Return a share of the noise without what its standard error `doubt` explains, but a third of
    that at least.

    By James and Stein, the positive part.
    """
    relative = doubt / np.maximum(share, 1e-9)
    rest = share * np.maximum(0.0, 1 - relative**2)
    return np.asarray(np.minimum(np.maximum(rest, doubt / 3), 1.0))


def _of_most(products: Floats, squares: Floats) -> tuple[float, float]:
    """Return the mean product of two readings, and the weight of all, of the series that are like
    most.

    A series that has lost something is read often and is always low: it is no evidence that healthy
    ones stay low. Those that lie too far from the median, by the median distance, are left out
    (Hampel, "The breakdown points of the mean combined with some rejection rules", 1985).
    """
    measured = np.flatnonzero(squares > 0)
    if not measured.size:
        return 0.0, 1e-9
    own = products[measured] / squares[measured]
    away = np.abs(own - np.median(own)) * np.sqrt(squares[measured])
    usual = max(1.0, MAD * float(np.median(away)))
    like = measured[away <= _UNLIKE * usual]
    number = float(squares[like].sum())
    return float(products[like].sum()) / number, number


def chance_of(count: Ints, noise: Floats, factor: Floats) -> Floats:
    """Return the variance by chance of the location of so many readings; infinite of none."""
    of_one = np.where(count >= AGREEING, factor, 1.0) * noise**2
    return np.where(count > 0, of_one / np.maximum(count, 1), np.inf)


def location_factor(scaled: Floats, count: Ints, lasting: Floats, groups: list[Ints]) -> Floats:
    """Return (G) the variance of the location of several readings, over that of their mean with
    normal noise.

    It is 0.7 for Student's t with 4 degrees of freedom, and above 1 for noise of two humps.
    `scaled` (T, M) are locations of `count` readings in standard deviations of one from the mean of
    all runs; `lasting` (T, M) is what lasting noise adds to their squares.
    """
    runs = np.maximum((count > 0).sum(axis=0), 2)
    squares = np.clip(scaled, -STRAYING, STRAYING) ** 2 * runs / (runs - 1)
    factors = np.ones(len(groups))
    for number, at in enumerate(groups):
        several = (count[:, at] >= AGREEING) & np.isfinite(scaled[:, at])
        if several.sum() < ENOUGH**2:
            continue
        readings = count[:, at][several]
        limit = (STRAYING**2) / readings  # of the square of a location
        seen = np.minimum(squares[:, at][several], limit) * readings
        by_chance = seen - readings * lasting[:, at][several]
        factors[number] = np.clip(by_chance.mean(), *_FACTORS)
    return factors


def healthy_readings(scaled: Floats, groups: list[Ints]) -> tuple[list[Floats], Floats]:
    """Return by group the deviations of healthy readings, in standard deviations, and the share
    that stray.

    Few readings of a group are joined by those of all groups, and of this run, the last row of
    `scaled` (T + 1, M).
    """
    everywhere = finite(scaled)
    healthy, strays = list[Floats](), np.empty(len(groups))
    for number, at in enumerate(groups):
        own = finite(scaled[:-1, at])
        values = own if own.size >= ENOUGH**2 else everywhere
        strays[number] = share_of_strays(values)
        every = max(1, math.ceil(values.size / _MOST_HEALTHY))
        healthy.append(values[::every])
    return healthy, strays


def share_of_strays(healthy: Floats) -> float:
    """Return how many of such readings stray, given in standard deviations from what they should
    be.
    """
    beyond = int((np.abs(healthy) > STRAYING).sum())
    return max((beyond + 0.25) / (healthy.size + _PRIOR_READINGS), LEAST_STRAYS)


def steps_of(rows: Floats, groups: list[Ints]) -> Floats:
    """Return (G) the distance of neighbouring values of rounded readings (T, M), on logs; 0 if they
    are not rounded.
    """
    steps = np.zeros(len(groups))
    for number, at in enumerate(groups):
        values = finite(rows[:, at])
        distinct = np.unique(np.round(values, 6))
        if distinct.size > 1 and values.size >= max(_ROUNDED * distinct.size, ENOUGH):
            steps[number] = float(np.median(np.diff(distinct)))
    return steps
