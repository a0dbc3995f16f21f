"""What each number of a run should read, for each start that a change may have. Pure, numpy arrays.

Values are natural logs with more = better, one column a series. The level of a series is a Huber
mean of its accepted runs before the start, drawn to its peers' as far as those runs are few
(empirical Bayes: Efron and Morris, "Data analysis using Stein's estimator and its generalizations",
1975).
"""

from dataclasses import dataclass

import numpy as np

from seatrial.detection.forecast import LASTING_SHARES, STARTS, Forecast, clipped, forecast
from seatrial.detection.noise import (
    AGREEING,
    ENOUGH,
    LEAST_PEERS,
    MEDIAN_VARIANCE,
    apart_from_mean,
    beyond_doubt,
    chance_of,
    healthy_readings,
    location_factor,
    median_of,
    members,
    noise_of,
    scatter,
    shared,
    steps_of,
    widening,
)
from seatrial.detection.readings import Bools, Floats, Ints, Past, ThisRun
from seatrial.detection.together import beyond_chance, drift_of, scatter_of, seasons_of, shift_of

MUST_FIND = 0.105  # on logs, 10 %, the band of ReFrame's tutorial
_UNKNOWN = 100.0  # the variance of a level that nothing is known of


@dataclass(frozen=True, slots=True)
class Reference:
    """What M series should read, learned from `past` and this run's first readings; NaN if nothing
    is known.

    `own` is the median of the `runs` accepted runs; the `forecast` is drawn to the median of the
    `peers`, which differ by a standard deviation of `spread`. `noise` is the standard deviation of
    one reading, known to `degrees` of freedom, `step` what rounding may make of nothing. `moved`
    (T, G) is by how much each group of peers moved together in each run, known to `unsure` (G);
    `together` (G) is the standard deviation of that over runs, and `drift` (G) that without what
    chance makes of it. `factor` (G) is the variance of the location of several readings, over that
    of their mean. `healthy` (G) are accepted readings, and where few, this run's first ones `reads`
    (M), in standard deviations from what they should be; the share `strays` (G) of them strays.
    `season` (M) is what this weekday usually adds, which all other values are without.
    """

    past: Past
    group: Ints
    groups: list[Ints]
    own: Floats
    runs: Ints
    forecast: Forecast
    peers: Floats
    spread: Floats
    noise: Floats
    degrees: Floats
    cap: Floats
    step: Floats
    moved: Floats
    unsure: Floats
    together: Floats
    drift: Floats
    factor: Floats
    healthy: list[Floats]
    strays: Floats
    reads: Floats
    season: Floats
    one_machine: bool

    @property
    def expected(self) -> Floats:
        """The level before this run."""
        return np.asarray(self.forecast.before[0])


def learn(past: Past, current: ThisRun) -> Reference:
    """Return the references of this run's series."""
    groups = members(current.group)
    seasons = seasons_of(past.location, past.good, past.weekday, groups)[:, current.group]
    past, current = past.without_season(seasons[:-1]), current.without_season(seasons[-1])
    accepted, firsts = past.accepted(past.location), past.accepted(past.first)
    own, runs = median_of(accepted), np.isfinite(accepted).sum(axis=0)
    noise, degrees = noise_of(past, own, current.first, current.assumed, groups)
    weights = np.where(np.isfinite(accepted), past.count / noise**2, 0.0)
    error = 1 / np.sqrt(np.maximum(weights.sum(axis=0), 1e-9))
    peers, spread = _peers(own, error, noise, current, groups)
    without_strays = clipped(accepted, noise**2 / np.maximum(past.count, 1))
    centre = np.where(runs > 0, _mean(without_strays, weights), peers)
    distance = np.vstack([past.location, current.first]) - centre
    shifts = shift_of(groups, distance, runs, one_machine=current.one_machine)
    errors = _errors_of_moves(runs, noise, groups)
    moved = beyond_chance(shifts[:-1], errors)
    shifted = shifts[:, current.group]
    scaled = (np.vstack([firsts, current.first]) - centre - shifted) / noise
    shares, factor = _shared(past, current, scaled, centre, shifted, noise, groups)
    located = past.location - moved[:, current.group]
    chance = chance_of(past.count * np.isfinite(located), noise, factor[current.group])
    expected = _forecast(
        located, past.good, chance, shares * noise**2, peers, spread, current.group
    )
    healthy, strays = healthy_readings(scaled, groups)
    return Reference(
        past=past,
        group=current.group,
        groups=groups,
        own=own,
        runs=runs,
        forecast=expected,
        peers=peers,
        spread=spread,
        noise=noise,
        degrees=degrees,
        cap=current.cap,
        step=_step(firsts, noise, groups, current.group),
        moved=moved,
        unsure=errors,
        together=scatter_of(shifts[:-1], noise, current.assumed, groups),
        drift=drift_of(shifts[:-1], past.count, noise, current.assumed, groups),
        factor=factor,
        healthy=healthy,
        strays=strays,
        reads=scaled[-1],
        season=seasons[-1],
        one_machine=current.one_machine,
    )


def _errors_of_moves(runs: Ints, noise: Floats, groups: list[Ints]) -> Floats:
    """Return (G) the standard error of the median of a group's known peers."""
    known = np.array([max(int((runs[at] > 0).sum()), 1) for at in groups])
    usual_noise = np.array([float(np.median(noise[at])) for at in groups])
    return np.asarray(usual_noise * np.sqrt(MEDIAN_VARIANCE / known))


def _step(firsts: Floats, noise: Floats, groups: list[Ints], group: Ints) -> Floats:
    """Return (M) what rounding may make of nothing."""
    steps = steps_of(firsts, groups)[group]
    # More noise than a step makes it vanish on average
    return np.where(noise < steps / 2, steps, steps / 2)


def _shared(
    past: Past,
    current: ThisRun,
    scaled: Floats,
    centre: Floats,
    shifted: Floats,
    noise: Floats,
    groups: list[Ints],
) -> tuple[Floats, Floats]:
    """Return the share of the noise's variance that readings of a run have in common, for each of
    LASTING_SHARES (H, M), and the factor of the variance of locations (G).

    `scaled` (T + 1, M) are the first readings in standard deviations from what they should be: the
    `centre` (M) and what their peers `shifted` by.
    """
    rests = np.vstack([past.accepted(past.rest), current.second])
    again = (rests - centre - shifted) / noise
    twice = np.full((1, noise.size), 2)
    more = np.maximum(np.vstack([past.count, twice]) - 1, 0)
    of_two = (current.first - current.second) ** 2 / 2
    within = np.vstack([past.accepted(past.within), of_two]) / noise**2
    taught = past.count * past.good
    readings = taught.sum(axis=0)
    shares = np.empty((len(LASTING_SHARES), noise.size))
    for nth, lasts in enumerate(LASTING_SHARES):
        apart = apart_from_mean(taught, lasts)
        share, error = shared(scaled, again, within, more, readings, apart, groups)
        shares[nth] = beyond_doubt(share, error)
    # What readings of a run share takes it as far from the mean of all, however long it lasts.
    around = (past.accepted(past.location) - centre - shifted[:-1]) / noise
    return shares, location_factor(around, taught, shares[-1] * apart[:-1], groups)


def _mean(accepted: Floats, weights: Floats) -> Floats:
    """Return the mean of runs.

    A run that read low was read more often. The mean by number of readings stays right for all that
    (Wald, "On cumulative sums of random variables", 1944), as a median of runs does not.
    """
    return np.asarray(np.nansum(weights * accepted, axis=0) / np.maximum(weights.sum(axis=0), 1e-9))


def _forecast(
    located: Floats,
    good: Bools,
    chance: Floats,
    shared: Floats,
    peers: Floats,
    spread: Floats,
    group: Ints,
) -> Forecast:
    """Return the forecast of this run; NaN for series without peers that have too few runs before a
    start.
    """
    accepted = clipped(np.where(good, located, np.nan), chance + shared[0])
    known = np.isfinite(accepted)
    runs, weights = known.sum(axis=0), np.where(known, 1 / chance, 0.0)
    error = np.sqrt(1 / np.maximum(weights.sum(axis=0), 1e-9) + shared[0])
    level, unsure = _prior(_mean(accepted, weights), error, runs, peers, spread)
    # Where all are new and many, their noise of this run holds already how much they differ.
    all_new = (np.bincount(group, runs > 0) < 2) & (np.bincount(group) >= ENOUGH)
    unsure = np.where(all_new[group] & (runs == 0), 0.0, unsure)
    result = forecast(level, unsure, accepted, located, chance, shared)
    is_alone = ~np.isfinite(peers)
    for nth, start in enumerate(STARTS.tolist()):
        before = known[: max(len(known) - start, 0)].sum(axis=0)
        unknown = is_alone & (before < AGREEING)
        result.before[nth, unknown] = np.nan
        result.reading[nth, unknown] = np.nan
    return result


def _prior(
    own: Floats, error: Floats, runs: Ints, peers: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """Return the level of each series before its first run, and its variance: of the peers, else
    its own mean.

    Limited translation (Efron and Morris, 1972): a series that is known to differ from its peers is
    drawn a little.
    """
    most = error * np.maximum(ENOUGH / np.maximum(runs, 1), 1.0)
    at_least = np.where(runs > 0, error**2 * (np.abs(own - peers) / most - 1), 0.0)
    has_peers = np.isfinite(peers)
    level = np.where(has_peers, peers, own)
    variance = np.where(has_peers, np.maximum(spread**2, at_least), _UNKNOWN)
    return level, variance


def _peers(
    own: Floats, error: Floats, noise: Floats, current: ThisRun, groups: list[Ints]
) -> tuple[Floats, Floats]:
    """Return centre and spread of the peers with earlier runs, or of this run without any; NaN for
    too few.
    """
    centre, spread = np.full(own.size, np.nan), np.full(own.size, np.nan)
    for at in groups:
        measured = at[np.isfinite(current.first[at])]
        if measured.size < LEAST_PEERS:
            continue
        known = at[np.isfinite(own[at])]
        if known.size > 1:
            values, chance = own[known], float(np.median(error[known] ** 2))
        else:
            values, chance = current.first[measured], 0.0
        seen = scatter(values) * widening(values.size)
        if values.size < ENOUGH:
            seen = max(seen, float(current.assumed[at[0]]))
        centre[at] = np.median(values)
        least = float(np.median(noise[at])) ** 2 / 9
        spread[at] = np.sqrt(max(seen**2 - chance, least))
    return centre, spread
