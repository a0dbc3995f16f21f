"""The noise of one reading of each series. Pure, numpy arrays.

It is a robust scale of the steps from run to run; a series that is louder than its peers counts as
loud as its own past shows (moderated variance: Smyth, "Linear models and empirical Bayes methods",
2004).
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from seatrial.detection.noise import (
    AGREEING,
    ENOUGH,
    LEAST_NOISE,
    LEAST_PEERS,
    MOST_WITHIN,
    STRAYING,
    count_known,
    finite,
    median_of,
    share_of_strays,
    typical,
    values_at,
    widening,
    without_gross_errors,
)
from seatrial.detection.readings import Floats, Ints, Past

PRIOR_VALUES = 4.0  # the noise of peers counts like so many values of a series' own
_CLEAN = 0.75  # least chance of a run without strays: three times what a lower quartile needs
_MOST_PRIOR = 16.0 * ENOUGH  # degrees of freedom
_INDEPENDENT = 0.6  # of steps: each reading is part of two
_ALIKE = 1.25  # the ratio of two variances that are taken as the same
_LEAST_RATIO = 1e-3  # of variances, where readings are rounded
_LOUD = 2.5  # standard deviations of a scatter: one of 160 series has more by chance


@dataclass(frozen=True, slots=True)
class Squares:
    """The sum of squares of each series' readings (M), in standard deviations, and its degrees of
    freedom.
    """

    total: Floats
    degrees: Floats

    @property
    def least_degrees(self) -> Floats:
        """The degrees of freedom as a divisor: at least 1."""
        return np.maximum(self.degrees, 1)

    def of(self, at: Ints) -> Self:
        """Return the squares of the series with the indexes `at`."""
        return type(self)(self.total[at], self.degrees[at])


def noise_of(
    past: Past, own: Floats, tonight: Floats, assumed: Floats, groups: list[Ints]
) -> tuple[Floats, Floats]:
    """Return the standard deviation of one reading of each series, and its degrees of freedom.

    The noise of a series is that of its group, or more if the series is noisier. `own` (M) are the
    medians of accepted runs, `tonight` (K, M) this run's readings.
    """
    firsts = past.accepted(past.first)
    in_turn = np.vstack([firsts, tonight[0]])
    steps = np.abs(np.diff(in_turn, axis=0))
    rest = firsts - own
    noise = np.empty_like(own)
    for at in groups:
        scale = _scale(steps[:, at], rest[:, at], tonight[:, at], assumed[at[0]])
        noise[at] = max(scale, LEAST_NOISE)
    strays = _strays(rest / noise, groups)
    squares = _own_squares(past, steps, noise, strays)
    noise = noise * _narrowings(steps, squares, groups)
    squares = _own_squares(past, steps, noise, strays)
    prior = _prior_degrees(squares, groups)
    louder, degrees = moderated(squares, prior)
    return noise * louder, degrees


def _scale(steps: Floats, rest: Floats, tonight: Floats, assumed: float) -> float:
    """Return the noise of a group: from its steps between runs; where these are few, from those
    between this run's readings; else from its peers in this run; else as assumed.

    A lone series has no peers: `rest` (T, M) is how far its runs are from their median.
    """
    peers = tonight.shape[1]
    is_alone = peers < LEAST_PEERS  # then what lasts for runs counts as noise as well
    in_turn = finite(steps)
    if in_turn.size < ENOUGH <= peers:
        within_run = np.abs(np.diff(tonight, axis=0))
        in_turn = finite(within_run)
    if not is_alone and in_turn.size >= ENOUGH:
        of_readings = without_gross_errors(in_turn)
        of_step = typical(of_readings)
        of_one = of_step / math.sqrt(2)
        return of_one * widening(of_readings.size)
    apart = rest
    if not is_alone:
        first = tonight[:1]
        apart = first - median_of(first.T)
    distance = np.abs(apart)
    distances = finite(distance)
    if distances.size < ENOUGH:
        return assumed
    return typical(distances) * widening(distances.size)


def _strays(scaled: Floats, groups: list[Ints]) -> Floats:
    """Return (M) the share of the readings (T, M) of a group that strays."""
    strays = np.empty(scaled.shape[1])
    for at in groups:
        strays[at] = share_of_strays(finite(scaled[:, at]))
    return strays


def _narrowings(steps: Floats, squares: Squares, groups: list[Ints]) -> Floats:
    """Return (M) the factor by which the noise of a group shrinks; 1 where little is known of it.

    `steps` (T, M) are the differences from run to run.
    """
    narrowing = np.ones_like(squares.total)
    for at in groups:
        known = finite(steps[:, at])
        if at.size >= LEAST_PEERS and known.size >= ENOUGH:
            narrowing[at] = _narrowing(known.size, squares.of(at))
    return narrowing


def _narrowing(steps: int, own: Squares) -> float:
    """Return the factor by which the noise of a group shrinks because all its readings are
    evidence, not `steps` alone.

    The readings count if they scatter as much within runs as the first readings do from run to run.
    """
    squares = own.total.sum()
    degrees = own.degrees.sum()
    as_known = squares * widening(steps) ** 2  # in variances of the steps
    ratio = as_known / max(degrees, 1)
    if not 1 / _ALIKE < ratio < _ALIKE:
        return 1.0
    independent = _INDEPENDENT * steps
    together = independent + degrees
    variance = (independent + as_known) / together
    widened = widening(together / _INDEPENDENT)
    return math.sqrt(variance) * widened / widening(steps)


def _own_squares(past: Past, steps: Floats, noise: Floats, strays: Floats) -> Squares:
    """Return the squares of each series within and between runs; `strays` (M) is the share of
    strays.
    """
    within = _within_runs(past, noise, strays)
    between = _between_runs(past, steps / noise)
    return Squares(
        total=within.total + between.total,
        degrees=within.degrees + between.degrees,
    )


def _within_runs(past: Past, noise: Floats, strays: Floats) -> Squares:
    """Return the squares of runs with several readings, around the mean of each run.

    A run is left out if a quarter of the runs with as many readings hold a stray. Squares far above
    those of a series' quieter runs are cut: they are no noise.
    """
    is_clean = (1 - strays) ** past.count > _CLEAN
    others = np.maximum(past.count - 1, 0)
    degrees = others * past.good * is_clean
    squares = past.accepted(past.within) / noise**2
    by_degree = squares / np.maximum(degrees, 1)
    mean = np.where(degrees > 0, by_degree, np.nan)
    quiet = _lower_quartile(mean)
    usual = np.fmax(quiet, 1.0)
    within = np.minimum(mean, MOST_WITHIN * usual) * degrees
    return Squares(np.nansum(within, axis=0), degrees.sum(axis=0))


def _between_runs(past: Past, steps: Floats) -> Squares:
    """Return the squares of runs with one reading, from the steps between two of them.

    Steps, because a loss of earlier runs is in one of them alone (von Neumann, "Distribution of the
    ratio of the mean square successive difference to the variance", 1941).
    """
    once = past.good & (past.count == 1)
    both = once[1:] & once[:-1]
    clipped = np.minimum(steps[:-1] / math.sqrt(2), STRAYING)
    squares = np.where(both, clipped**2, 0.0)
    total = _INDEPENDENT * squares.sum(axis=0)
    return Squares(total, _INDEPENDENT * both.sum(axis=0))


def _lower_quartile(rows: Floats) -> Floats:
    """Return the lower quartile of each column without NaN; NaN for fewer than three values."""
    none = np.full((1, rows.shape[1]), np.nan)
    padded = np.vstack([rows, none])
    ordered = np.sort(padded, axis=0)  # NaN last
    count = count_known(rows)
    quartile = values_at(ordered, count // 4)
    return np.where(count >= AGREEING, quartile, np.nan)


def _prior_degrees(squares: Squares, groups: list[Ints]) -> Floats:
    """Return (M) the degrees of freedom that the noise of peers counts for: the more, the less
    peers differ.

    From the scatter of the logs of variances beyond that of chance, which is 2 / degrees (Smyth,
    2004), winsorised (Phipson et al., "Robust hyperparameter estimation protects against
    hypervariable genes", 2016).
    """
    prior = np.full(squares.degrees.shape, PRIOR_VALUES)
    peers = [at for at in groups if at.size >= LEAST_PEERS]
    beyond = list[Floats]()
    chance = list[Floats]()
    for at in peers:
        some = at[squares.degrees[at] >= AGREEING]
        if not some.size:
            continue
        own = squares.of(some)
        variances = own.total / own.least_degrees
        logs = np.log(np.maximum(variances, _LEAST_RATIO))
        beyond.append(logs - np.median(logs))
        chance.append(2 / np.maximum(own.degrees - 1, 1))
    if sum(map(len, beyond)) < ENOUGH:
        return prior
    distances = np.abs(np.concatenate(beyond))
    by_chance = float(np.mean(np.concatenate(chance)))
    more = typical(distances) ** 2 - by_chance
    of_peers = np.clip(2 / max(more, 1e-9), PRIOR_VALUES, _MOST_PRIOR)
    for at in peers:
        prior[at] = of_peers
    return prior


def moderated(squares: Squares, prior: Floats) -> tuple[Floats, Floats]:
    """Return the factor by which each series is noisier than assumed, and its degrees of freedom.

    `prior` are the degrees that the assumed noise counts for; the least prior is used for a series
    that is noisier than chance allows.
    """
    degrees = squares.degrees
    mean = squares.total / squares.least_degrees
    spread = 2 / (9 * squares.least_degrees)
    # Wilson and Hilferty, 1931
    beyond = np.cbrt(mean) - (1 - spread)
    is_odd = (beyond > _LOUD * np.sqrt(spread)) & (degrees > 0)
    least = np.minimum(prior, PRIOR_VALUES)
    prior = np.where(is_odd, least, prior)
    louder = np.sqrt((prior + squares.total) / (prior + degrees))
    return np.maximum(louder, 1.0), prior + degrees
