"""Common moves of the peers of a group: their size in a run, their scatter by chance, and the
effect of weekdays. Pure, numpy arrays.

Values are natural logs with more = better; T runs, M series, G groups.
"""

import math

import numpy as np

from seatrial.detection.noise import (
    AGREEING,
    ENOUGH,
    LEAST_NOISE,
    LEAST_PEERS,
    MEDIAN_VARIANCE,
    count_known,
    finite,
    median,
    median_of,
    scatter,
    widening,
)
from seatrial.detection.readings import Bools, Floats, Ints

UNKNOWN_DAY = -1


def shift_of(
    groups: list[Ints], distance: Floats, runs: Ints, *, one_machine: bool = False
) -> Floats:
    """Return (T, G) the common move of the known peers of each group, from (T, M); 0 for too few
    peers.

    For few peers on `one_machine`, it is what all of them lost.
    """
    shifts = np.zeros((len(distance), len(groups)))
    for number, at in enumerate(groups):
        known = at[runs[at] > 0]
        of_known = distance[:, known]
        if known.size >= LEAST_PEERS:
            shifts[:, number] = _median_of_most(of_known)
        elif one_machine:
            shifts[:, number] = lost_by_all(of_known)
    return shifts


def _median_of_most(distance: Floats) -> Floats:
    """Return (T) the median of peers, from (T, peers); 0 where less than half of them were read."""
    by_peer = distance.T
    count = count_known(by_peer)
    are_most = 2 * count >= len(by_peer)
    enough = (count >= LEAST_PEERS) & are_most
    return np.where(enough, median_of(by_peer), 0.0)


def lost_by_all(distance: Floats) -> Floats:
    """Return (T) what each of a few peers lost at least, from (T, peers); 0 for a lone one."""
    is_read = np.isfinite(distance)
    count = is_read.sum(axis=1)
    of_read = np.where(is_read, distance, -np.inf)
    least = of_read.max(axis=1, initial=-np.inf)
    lost = np.minimum(least, 0.0)
    return np.where(count > 1, lost, 0.0)


def beyond_chance(shifts: Floats, errors: Floats | float) -> Floats:
    """Shrink shifts by what chance explains (James and Stein, positive part).

    Those below two standard errors become 0.
    """
    moved = np.where(shifts == 0, np.inf, shifts)
    by_chance = (2 * errors / moved) ** 2
    share: Floats = np.maximum(0.0, 1 - by_chance)
    return shifts * share


def scatter_of(shifts: Floats, noise: Floats, assumed: Floats, groups: list[Ints]) -> Floats:
    """Return (G) the standard deviation by chance of a group's median from its past, learned from
    earlier runs.
    """
    by_group = zip(groups, shifts.T, strict=True)
    return np.array([_scatter_of_group(moves, noise[at], assumed[at[0]]) for at, moves in by_group])


def _scatter_of_group(shifts: Floats, noise: Floats, assumed: float) -> float:
    """Return the standard deviation for one group, from its shifts (T) and the noise of its series
    (M).
    """
    known = finite(shifts)
    seen = known[known != 0]
    error = math.sqrt(MEDIAN_VARIANCE / noise.size)
    chance = median(noise) * error
    least = max(chance, LEAST_NOISE)
    if seen.size:
        over_runs = scatter(seen) * widening(seen.size)
        least = max(least, over_runs)
    if seen.size < ENOUGH:
        least = max(least, assumed)
    return least


def drift_of(
    shifts: Floats, count: Ints, noise: Floats, assumed: Floats, groups: list[Ints]
) -> Floats:
    """Return (G) the standard deviation of common moves of peers: the scatter of their medians less
    that of chance.

    By the method of moments, and one standard error more.
    """
    by_group = zip(groups, shifts.T, strict=True)
    return np.array(
        [_drift_of_group(moves, count[:, at], noise[at], assumed[at[0]]) for at, moves in by_group]
    )


def _drift_of_group(shifts: Floats, count: Ints, noise: Floats, assumed: float) -> float:
    """Return the drift of one group, from its shifts (T), the numbers of readings (T, M) and their
    noise (M).
    """
    peers = noise.size
    measured = (count > 0).sum(axis=1)
    are_most = 2 * measured >= peers
    runs = are_most.sum()
    if peers < LEAST_PEERS or runs < ENOUGH:
        return assumed
    mean_count = count[are_most].mean(axis=1)
    share = 1 / np.maximum(mean_count, 1)
    of_one = median(noise) ** 2
    of_median = MEDIAN_VARIANCE / peers * of_one
    chance = of_median * np.mean(share)
    seen = scatter(shifts[are_most])
    beyond = max(seen**2 - chance, 0.0)
    error = chance * np.sqrt(2 / runs)
    return math.sqrt(beyond + error)


def seasons_of(location: Floats, good: Bools, weekday: Ints, groups: list[Ints]) -> Floats:
    """Return (T + 1, G) what the weekday of each run, and of this one, adds to readings of peers or
    of a lone series.

    The median of the runs of a weekday less that of all weekdays, as in the seasonal part of STL
    (Cleveland et al., 1990), without what chance makes of it. It takes two runs of the weekday.
    """
    seasons = np.zeros((len(weekday), len(groups)))
    past_days = weekday[:-1]
    if UNKNOWN_DAY in weekday or np.unique(past_days).size < 2:
        return seasons
    accepted = np.where(good, location, np.nan)
    distance = location - median_of(accepted)
    runs = count_known(accepted)
    shifts = shift_of(groups, distance, runs)
    for number, at in enumerate(groups):
        # Two or three series are neither alone nor enough to tell what they do together
        if at.size in (2, AGREEING) or runs[at].max() < ENOUGH:
            continue
        own = distance[:, at[0]]
        if at.size >= LEAST_PEERS:
            own = shifts[:, number]
        season = _of_weekdays(own, past_days)
        seasons[:, number] = season[weekday]
    return seasons


def _of_weekdays(own: Floats, weekday: Ints) -> Floats:
    """Return (7) what each weekday adds to the values of runs (T).

    A weekday with at least two runs counts, as far as chance does not explain its effect.
    """
    medians = np.full(7, np.nan)
    known = np.ones(7)
    for day in np.unique(weekday):
        of_day = finite(own[weekday == day])
        known[day] = max(of_day.size, 1)
        if of_day.size > 1:
            medians[day] = np.median(of_day)
    if not np.isfinite(medians).any():
        return np.zeros(7)
    apart = medians - np.nanmedian(medians)
    season = np.nan_to_num(apart)
    rest = own - season[weekday]
    of_one = scatter(finite(rest))
    error = of_one * np.sqrt(MEDIAN_VARIANCE / known)
    return beyond_chance(season, error)
