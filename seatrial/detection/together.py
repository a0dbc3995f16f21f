"""What the peers of a group do together: by how much they move in a run, how far chance takes that,
and what weekdays add. Pure, numpy arrays.

Values are natural logs with more = better; T runs, M series, G groups.
"""

import numpy as np

from seatrial.detection.noise import (
    AGREEING,
    ENOUGH,
    LEAST_NOISE,
    LEAST_PEERS,
    MEDIAN_VARIANCE,
    finite,
    median_of,
    scatter,
    widening,
)
from seatrial.detection.readings import Bools, Floats, Ints

UNKNOWN_DAY = -1


def shift_of(
    groups: list[Ints], distance: Floats, runs: Ints, *, one_machine: bool = False
) -> Floats:
    """Return (T, G) by how much the known peers of each group moved together, from (T, M); 0 if
    they are too few.

    Of few on `one_machine` it is what all lost.
    """
    shifts = np.zeros((len(distance), len(groups)))
    for number, at in enumerate(groups):
        known = at[runs[at] > 0]
        if known.size < LEAST_PEERS:
            if one_machine:
                shifts[:, number] = lost_by_all(distance[:, known])
            continue
        count = np.isfinite(distance[:, known]).sum(axis=1)
        enough = (count >= LEAST_PEERS) & (2 * count >= known.size)
        shifts[:, number] = np.where(enough, median_of(distance[:, known].T), 0.0)
    return shifts


def lost_by_all(distance: Floats) -> Floats:
    """Return (T) what each of a few peers lost at least, from (T, peers); 0 for a lone one."""
    is_read = np.isfinite(distance)
    least = np.where(is_read, distance, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(is_read.sum(axis=1) > 1, np.minimum(least, 0.0), 0.0)


def beyond_chance(shifts: Floats, errors: Floats | float) -> Floats:
    """Shrink shifts by what chance explains (James and Stein, positive part).

    Those below two standard errors become 0.
    """
    moved = np.where(shifts == 0, np.inf, shifts)
    return np.asarray(shifts * np.maximum(0.0, 1 - (2 * errors / moved) ** 2))


def scatter_of(shifts: Floats, noise: Floats, assumed: Floats, groups: list[Ints]) -> Floats:
    """Return (G) the standard deviation by chance of a group's median from its past, learned from
    earlier runs.
    """
    together = np.empty(len(groups))
    for number, at in enumerate(groups):
        seen = finite(shifts[:, number])
        seen = seen[seen != 0]
        chance = float(np.median(noise[at])) * np.sqrt(MEDIAN_VARIANCE / at.size)
        together[number] = max(chance, LEAST_NOISE)
        if seen.size:
            together[number] = max(together[number], scatter(seen) * widening(seen.size))
        if seen.size < ENOUGH:
            together[number] = max(together[number], float(assumed[at[0]]))
    return together


def drift_of(
    shifts: Floats, count: Ints, noise: Floats, assumed: Floats, groups: list[Ints]
) -> Floats:
    """Return (G) the standard deviation of common moves of peers: the scatter of their medians less
    that of chance.

    By the method of moments, and one standard error more.
    """
    drift = np.empty(len(groups))
    for number, at in enumerate(groups):
        measured = (count[:, at] > 0).sum(axis=1)
        runs = 2 * measured >= at.size
        if at.size < LEAST_PEERS or runs.sum() < ENOUGH:
            drift[number] = float(assumed[at[0]])
            continue
        readings = np.maximum(count[runs][:, at].mean(axis=1), 1)
        of_one = float(np.median(noise[at])) ** 2
        chance = MEDIAN_VARIANCE / at.size * of_one * float(np.mean(1 / readings))
        beyond = scatter(shifts[runs, number]) ** 2 - chance
        error = chance * np.sqrt(2 / runs.sum())
        drift[number] = np.sqrt(max(beyond, 0.0) + error)
    return drift


def seasons_of(location: Floats, good: Bools, weekday: Ints, groups: list[Ints]) -> Floats:
    """Return (T + 1, G) what the weekday of each run, and of this one, adds to readings of peers or
    of a lone series.

    The median of the runs of a weekday less that of all weekdays, as in the seasonal part of STL
    (Cleveland et al., 1990), without what chance makes of it. It takes two runs of the weekday.
    """
    seasons = np.zeros((len(weekday), len(groups)))
    days = np.unique(weekday[:-1])
    if days.size < 2 or UNKNOWN_DAY in days or weekday[-1] == UNKNOWN_DAY:
        return seasons
    accepted = np.where(good, location, np.nan)
    distance = location - median_of(accepted)
    runs = np.isfinite(accepted).sum(axis=0)
    shifts = shift_of(groups, distance, runs)
    for number, at in enumerate(groups):
        own = shifts[:, number] if at.size >= LEAST_PEERS else distance[:, at[0]]
        if at.size in (2, AGREEING) or runs[at].max() < ENOUGH:
            continue
        usual, known = np.full(7, np.nan), np.ones(7)
        for day in days:
            of_day = finite(own[weekday[:-1] == day])
            known[day] = max(of_day.size, 1)
            if of_day.size > 1:
                usual[day] = np.median(of_day)
        if not np.isfinite(usual).any():
            continue
        usual = np.nan_to_num(usual - np.nanmedian(usual))
        left = finite(own - usual[weekday[:-1]])
        error = scatter(left) * np.sqrt(MEDIAN_VARIANCE / known)
        seasons[:, number] = beyond_chance(usual, error)[weekday]
    return seasons
