"""Robust statistics of readings: location, scale, shared noise, strays and rounding steps.

Pure, numpy arrays. The noise of one reading is learned in seatrial/detection/reading_noise.py. The
share of it that all readings of a run have in common is the mean product of two of them.
"""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from seatrial.detection.readings import Bools, Floats, Ints

ENOUGH = 8  # values: a scale that is learned from fewer is off by half and more
AGREEING = 3  # readings, runs or other peers: of two nobody can tell which one is odd
LEAST_PEERS = AGREEING + 1
# Copies in the memory of one H100 (docs/gpu-results): 3 of 52 readings stray, the others repeat to
# 0.1 to 0.3 %.
LEAST_STRAYS = 0.005  # share of readings: some are always assumed to stray
LEAST_NOISE = 0.003  # on logs
MAD = 1.4826  # the standard deviation of normal values over their median absolute deviation
MEDIAN_VARIANCE = np.pi / 2  # of normal values, over that of the mean
# Standard deviations by the median distance, from which on a value is rejected (Hampel, "The
# breakdown points of the mean combined with some rejection rules", 1985): no noise reaches so far
GROSS = 10.0
STRAYING = 4.0  # standard deviations: what lies farther off counts as that far, and as a stray
PERSISTENCE = 0.9  # from run to run, of what lasts: as in the AR(1) of docs/error-rates.md
_PRIOR_READINGS = 2 * ENOUGH  # of which a quarter of one strays: a Beta prior
# Of the variance of a location: as for Student's t with 4 degrees of freedom at the least
_FACTORS = (0.7, 3.0)
# Readings of a group that losses are tried on: their mean is known to some per cent
_MOST_HEALTHY = 2000
# Times the squares of a series' quieter runs: more than that is strays and not noise
MOST_WITHIN = 3.0
_UNLIKE = 5.0  # standard deviations of most series
_ROUNDED = 3  # readings for each distinct value, from which on they are rounded


def members(group: Ints) -> list[Ints]:
    """Return the indexes of the series of each group."""
    if not group.size:
        return []
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    ends = np.cumsum(sizes)
    return list(np.split(order, ends[:-1]))


def count_known(rows: Floats) -> Ints:
    """Return the number of values in each column that are not NaN."""
    count: Ints = np.isfinite(rows).sum(axis=0)
    return count


def accepted_runs(good: Bools, count: Ints) -> Bools:
    """Return which runs (T, M) a healthy level is learned from: good ones, and a low one between
    two good ones if it has fewer than three readings.
    """
    accepted = good.copy()
    is_single = (count > 0) & (count < AGREEING)
    accepted[1:-1] |= good[:-2] & is_single[1:-1] & good[2:]
    return accepted


def values_at(rows: Floats, places: Ints) -> Floats:
    """Return the value of each column at its row in `places`."""
    series = np.arange(places.size)
    picked: Floats = rows[places, series]
    return picked


def median_of(rows: Floats) -> Floats:
    """Return the median of each column without NaN; NaN for a column of nothing but NaN."""
    count = count_known(rows)
    if not count.any():
        return np.full(rows.shape[1], np.nan)
    if count.min() == len(rows):
        return _middle(rows)
    ordered = np.sort(rows, axis=0)  # NaN last
    low = np.maximum(count - 1, 0) // 2
    high = np.minimum(count // 2, len(rows) - 1)
    below = values_at(ordered, low)
    above = values_at(ordered, high)
    return (below + above) / 2


def _middle(rows: Floats) -> Floats:
    """Return the median of each column; none has NaN. For few rows np.median takes far longer."""
    ordered = np.sort(rows, axis=0)
    below = ordered[(len(rows) - 1) // 2]
    above = ordered[len(rows) // 2]
    middle: Floats = (below + above) / 2
    return middle


def hodges_lehmann(readings: Floats, noise: Floats) -> Floats:
    """Return the location of each column: the median of the means of all pairs of its values,
    including a value with itself.

    Its variance is 5 % above that of the mean for normal noise, and below it for noise with longer
    tails (Hodges and Lehmann, "Estimates of location based on rank tests", 1963). It breaks down
    where three values in ten stray, as two of six do; so gross errors are rejected first. `noise`
    is the standard deviation of a value, or NaN: six values may lie close together by chance.
    """
    middle = _middle(readings)
    if len(readings) <= AGREEING:  # one stray of three is more than the means of pairs bear
        return middle
    distance = np.abs(readings - middle)
    usual = _middle(distance)
    limit = GROSS * np.fmax(MAD * usual, noise)
    is_gross = (limit > 0) & (distance > limit)
    kept = np.where(is_gross, np.nan, readings)
    one, other = np.triu_indices(len(kept))
    means = (kept[one] + kept[other]) / 2
    return median_of(means)


def locations(in_turn: Floats, start: Ints, count: Ints, noise: Floats) -> Floats:
    """Return the location of each series, whose `count` values begin at `start` in `in_turn`.

    NaN for a series without values.
    """
    located = np.full(count.shape, np.nan)
    for at, readings in _of_same_count(in_turn, start, count):
        located[at] = hodges_lehmann(readings, noise[at])
    return located


def location_of(readings: Floats, noise: Floats) -> Floats:
    """Return (M) the location of the `readings` (K, M) of each series, the first of which are
    known.
    """
    rounds, series = readings.shape
    starts = np.arange(series) * rounds
    by_series = readings.T.ravel()
    return locations(by_series, starts, count_known(readings), noise)


def scatters(in_turn: Floats, start: Ints, count: Ints) -> Floats:
    """Return the standard deviation of each series by its median absolute deviation; NaN for up to
    three values.
    """
    scatter = np.full(count.shape, np.nan)
    for at, readings in _of_same_count(in_turn, start, count):
        if len(readings) > AGREEING:
            distance = np.abs(readings - _middle(readings))
            scatter[at] = MAD * _middle(distance)
    return scatter


def _of_same_count(in_turn: Floats, start: Ints, count: Ints) -> Iterator[tuple[Ints, Floats]]:
    """Yield the indexes of series with equally many values, and the values, a column per series."""
    for values in np.unique(count[count > 0]).tolist():
        at = np.flatnonzero(count == values)
        nth = np.arange(values)
        places = start[at] + nth[:, None]
        yield at, in_turn[places]


def finite(values: Floats) -> Floats:
    known: Floats = values[np.isfinite(values)]
    return known


def median(values: Floats) -> float:
    """Return the median of values without NaN."""
    return float(np.median(values))


def without_gross_errors(distances: Floats) -> Floats:
    """Return the distances without those that no noise explains."""
    scale = MAD * median(distances)
    if not scale:  # most are equal
        return distances
    return distances[distances < GROSS * scale]


def typical(distances: Floats) -> float:
    """Return the standard deviation of distances, winsorized at three of their robust scale (one
    step of Huber's proposal 2).

    If most are equal, readings are rounded, and the farthest tenth gives the scale.
    """
    if not distances.size:
        return 0.0
    scale = MAD * median(distances)
    if scale:
        winsorized = np.minimum(distances, 3 * scale)
        mean_square = np.mean(winsorized**2)
        return math.sqrt(mean_square)
    method: Literal["lower", "linear"] = "linear"
    if distances.size < ENOUGH:  # the farthest one may be the fault
        method = "lower"
    quantile = float(np.quantile(distances, 0.9, method=method))
    return quantile / 1.645


def scatter(values: Floats) -> float:
    """Return the standard deviation of values around their median, as `typical` has it."""
    distances = np.abs(values - np.median(values))
    return typical(distances)


def widening(count: float) -> float:
    """Return the factor by which a limit is wider because its scale is learned from `count`
    distances.

    The quantile of Student's t over the normal one: 1 + (z² + 1) / 4f at z = 4.4, with f = 0.6
    count, because steps share readings (Cornish and Fisher, "Moments and cumulants in the
    specification of distributions", 1937).
    """
    return 1 + 8 / count


def apart_from_mean(count: Ints, lasts: float) -> Floats:
    """Return (T + 1, M) the variance of each run's shared noise, and this run's, around the mean of
    all.

    The unit is the variance of the shared noise, of which the share `lasts` persists from run to
    run; `count` (T, M) is the number of readings. The result is below 1 where shared noise moves
    the mean as well.
    """
    days = np.arange(len(count) + 1)
    between = np.abs(days[:, None] - days)
    kept = PERSISTENCE**between
    covariance = lasts * kept + (1 - lasts) * np.eye(days.size)
    total = count.sum(axis=0)
    weights = count / np.maximum(total, 1)
    with_mean = covariance[:, :-1] @ weights
    of_mean = (weights * with_mean[:-1]).sum(axis=0)
    apart = 1 - 2 * with_mean + of_mean
    at_least: Floats = np.maximum(apart, 1 - PERSISTENCE)
    return at_least


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

    It is the mean product of two readings of a run, divided by `apart` (T, M): over most series, or
    over a group that differs from them by more than chance. Independent noise adds nothing, even
    where the number of readings depends on their values (optional stopping: Doob, 1953). `first`
    (T, M) is the first reading of a run and `rest` the mean of its `count` others, in standard
    deviations from the mean of all `readings` (M) of the series, which lowers their product by 1 /
    `readings`; `within` is the sum of squares of a run around its mean.
    """
    usable = np.isfinite(first) & np.isfinite(rest)
    usable &= np.abs(first) < STRAYING
    usable &= within < MOST_WITHIN * count + STRAYING**2
    first = np.where(usable, first, 0.0)
    rest = np.where(usable, rest, 0.0)
    within = np.where(usable, within, 0.0)
    count = count * usable
    pairs = count * (count + 1) / 2
    mean = (first + count * rest) / (count + 1)
    by_mean = pairs / np.maximum(readings, 1)
    product = pairs * mean**2 - within / 2 + by_mean
    square = count * first**2 + pairs - count
    weight = np.maximum(pairs.sum(axis=0), 1)
    weighted = (pairs * apart).sum(axis=0) / weight
    mean_apart = np.where(usable.any(axis=0), weighted, 1.0)
    products = product.sum(axis=0) * mean_apart
    squares = square.sum(axis=0) * mean_apart**2
    return _of_groups(products, squares, groups)


def _of_groups(products: Floats, squares: Floats, groups: list[Ints]) -> tuple[Floats, Floats]:
    """Return (M) the mean product of two readings and its standard error: over most series, or over
    a group whose product is larger by more than chance.
    """
    usual, usual_weight = _of_most(products, squares)
    share = np.empty_like(products)
    error = np.empty_like(products)
    for at in groups:
        own, weight = _of_most(products[at], squares[at])
        if own - usual <= 3 / math.sqrt(weight):
            own = usual
            weight = usual_weight
        share[at] = max(own, 0.0)
        error[at] = 1 / math.sqrt(weight)
    return share, error


def beyond_doubt(share: Floats, doubt: Floats) -> Floats:
    """Return `share` less what its standard error `doubt` explains, but at least a third of
    `doubt`.

    The positive-part estimate of James and Stein.
    """
    relative = doubt / np.maximum(share, 1e-9)
    certain = np.maximum(0.0, 1 - relative**2)
    rest = np.maximum(share * certain, doubt / 3)
    at_most: Floats = np.minimum(rest, 1.0)
    return at_most


def _of_most(products: Floats, squares: Floats) -> tuple[float, float]:
    """Return the mean product of two readings over the series that are like most, and its weight.

    A series with a loss is read often and is always low: it is no evidence that healthy ones stay
    low. Series too far from the median, by the median distance, are left out (Hampel, "The
    breakdown points of the mean combined with some rejection rules", 1985).
    """
    measured = np.flatnonzero(squares > 0)
    if not measured.size:
        return 0.0, 1e-9
    weights = squares[measured]
    own = products[measured] / weights
    distance = np.abs(own - np.median(own))
    away = distance * np.sqrt(weights)
    usual = max(1.0, MAD * median(away))
    like = measured[away <= _UNLIKE * usual]
    weight = squares[like].sum()
    total = products[like].sum()
    return total / weight, weight


def chance_of(count: Ints, noise: Floats, factor: Floats) -> Floats:
    """Return the variance by chance of the location of `count` readings; infinite for none."""
    factors = np.where(count >= AGREEING, factor, 1.0)
    of_one = factors * noise**2
    of_all = of_one / np.maximum(count, 1)
    return np.where(count > 0, of_all, np.inf)


def location_factor(scaled: Floats, count: Ints, lasting: Floats, groups: list[Ints]) -> Floats:
    """Return (G) the variance of the location of several readings, relative to that of their mean
    with normal noise.

    It is 0.7 for Student's t with 4 degrees of freedom, and above 1 for noise of two humps.
    `scaled` (T, M) are locations of `count` readings in standard deviations of one reading from the
    mean of all runs; `lasting` (T, M) is what lasting noise adds to their squares.
    """
    measured = (count > 0).sum(axis=0)
    runs = np.maximum(measured, 2)
    clipped = np.clip(scaled, -STRAYING, STRAYING)
    squares = clipped**2 * runs / (runs - 1)
    are_several = (count >= AGREEING) & np.isfinite(scaled)
    factors = np.ones(len(groups))
    for number, at in enumerate(groups):
        several = are_several[:, at]
        if several.sum() < ENOUGH**2:
            continue
        readings = count[:, at][several]
        limit = STRAYING**2 / readings  # of the square of a location
        square = squares[:, at][several]
        seen = np.minimum(square, limit) * readings
        by_chance = seen - readings * lasting[:, at][several]
        factors[number] = np.clip(by_chance.mean(), *_FACTORS)
    return factors


def healthy_readings(scaled: Floats, groups: list[Ints]) -> tuple[list[Floats], Floats]:
    """Return the deviations of each group's healthy readings, in standard deviations, and the share
    (G) that strays.

    A group with few readings takes those of all groups, with those of this run, the last row of
    `scaled` (T + 1, M).
    """
    everywhere = finite(scaled)
    healthy = list[Floats]()
    strays = list[float]()
    for at in groups:
        values = finite(scaled[:-1, at])
        if values.size < ENOUGH**2:
            values = everywhere
        strays.append(share_of_strays(values))
        every = max(1, math.ceil(values.size / _MOST_HEALTHY))
        healthy.append(values[::every])
    return healthy, np.array(strays)


def share_of_strays(healthy: Floats) -> float:
    """Return the share of `healthy` readings that stray; readings are in standard deviations from
    the expected value.
    """
    beyond = int((np.abs(healthy) > STRAYING).sum())
    share = (beyond + 0.25) / (healthy.size + _PRIOR_READINGS)
    return max(share, LEAST_STRAYS)


def steps_of(rows: Floats, groups: list[Ints]) -> Floats:
    """Return (G) the distance of neighbouring values of rounded readings (T, M), on logs; 0 if they
    are not rounded.
    """
    return np.array([_step(finite(rows[:, at])) for at in groups])


def _step(values: Floats) -> float:
    """Return the distance of neighbouring values, 0 if they are not rounded."""
    distinct = np.unique(np.round(values, 6))
    least = max(_ROUNDED * distinct.size, ENOUGH)
    if distinct.size < 2 or values.size < least:
        return 0.0
    steps = np.diff(distinct)
    return median(steps)
