"""What each number of a run should read, for each start that a change may have. Pure, numpy arrays.

Values are natural logs with more = better, one column a series. The level of a series is a Huber
mean of its accepted runs before the start, drawn to its peers' as far as those runs are few
(empirical Bayes: Efron and Morris, "Data analysis using Stein's estimator and its generalizations",
1975).
"""

import math
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
    count_known,
    finite,
    healthy_readings,
    location_factor,
    location_of,
    median,
    median_of,
    members,
    scatter,
    shared,
    steps_of,
    widening,
)
from seatrial.detection.reading_noise import noise_of
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
    one reading, with `degrees` of freedom, `step` the difference that rounding alone may make.
    `moved` (T, G) is the common move of each group of peers in each run, with the standard error
    `unsure` (G); `together` (G) is the standard deviation of these moves over runs, and `drift` (G)
    the part of it beyond chance. `factor` (G) is the variance of the location of several readings
    relative to that of their mean. `healthy` (G) are accepted readings in standard deviations from
    the expected value, with this run's first ones, `reads` (M), where they are few; the share
    `strays` (G) of them strays. `season` (M) is what this weekday usually adds; it is subtracted
    from all other values.
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


@dataclass(frozen=True, slots=True)
class _Peers:
    """The median and the spread of each series' peers (M); NaN for too few."""

    centre: Floats
    spread: Floats


@dataclass(frozen=True, slots=True)
class _Usual:
    """The expected `centre` (M) of readings, the common move of their peers, `shifted` (T + 1, M),
    and the `noise` of one reading.
    """

    centre: Floats
    shifted: Floats
    noise: Floats

    def scaled(self, rows: Floats) -> Floats:
        """Return readings of all runs, or of earlier ones, in standard deviations from the expected
        value.
        """
        shifted = self.shifted[: len(rows)]
        return (rows - self.centre - shifted) / self.noise


def learn(past: Past, current: ThisRun) -> Reference:
    """Return the references of this run's series."""
    groups = members(current.group)
    by_group = seasons_of(past.location, past.good, past.weekday, groups)
    seasons = by_group[:, current.group]
    season = seasons[-1]
    past = past.without_season(seasons[:-1])
    return _learn(past, current.without_season(season), groups, season)


def _learn(past: Past, current: ThisRun, groups: list[Ints], season: Floats) -> Reference:
    """Return the references of series whose `season` is subtracted."""
    group = current.group
    accepted = past.accepted(past.location)
    own = median_of(accepted)
    runs = count_known(accepted)
    noise, degrees = noise_of(past, own, current.readings, current.assumed, groups)
    mean, error = _own_mean(accepted, past.count, noise)
    location = location_of(current.readings, noise)
    peers = _peers(own, error, noise, current, location, groups)
    is_new = _new_together(runs, group)
    centre = np.select([runs > 0, is_new], [mean, location], peers.centre)
    distance = np.vstack([past.location, current.first]) - centre
    shifts = shift_of(groups, distance, runs, one_machine=current.one_machine)
    errors = _errors_of_moves(runs, noise, groups)
    moved = beyond_chance(shifts[:-1], errors)
    firsts = past.accepted(past.first)
    usual = _Usual(centre, shifts[:, group], noise)
    scaled = usual.scaled(np.vstack([firsts, current.first]))
    shares, told_apart, factor = _shared(past, current, scaled, usual, groups)
    shares[:, is_new] = 0.0  # what their readings share is in their spread
    healthy, strays = healthy_readings(scaled, groups)
    located = past.location - moved[:, group]
    chance = chance_of(past.count * np.isfinite(located), noise, factor[group])
    return Reference(
        past=past,
        group=group,
        groups=groups,
        own=own,
        runs=runs,
        forecast=_forecast(located, past.good, chance, shares * noise**2, told_apart, peers, group),
        peers=peers.centre,
        spread=peers.spread,
        noise=noise,
        degrees=degrees,
        cap=current.cap,
        step=_step(firsts, noise, groups, group),
        moved=moved,
        unsure=errors,
        together=scatter_of(shifts[:-1], noise, current.assumed, groups),
        drift=drift_of(shifts[:-1], past.count, noise, current.assumed, groups),
        factor=factor,
        healthy=healthy,
        strays=strays,
        reads=scaled[-1],
        season=season,
        one_machine=current.one_machine,
    )


def _errors_of_moves(runs: Ints, noise: Floats, groups: list[Ints]) -> Floats:
    """Return (G) the standard error of the median of a group's known peers."""
    errors = list[float]()
    for at in groups:
        known = (runs[at] > 0).sum()
        variance = MEDIAN_VARIANCE / max(known, 1)
        errors.append(median(noise[at]) * math.sqrt(variance))
    return np.array(errors)


def _step(firsts: Floats, noise: Floats, groups: list[Ints], group: Ints) -> Floats:
    """Return (M) the difference that rounding alone may make."""
    steps = steps_of(firsts, groups)[group]
    half = steps / 2
    # Noise of more than half a step averages rounding out
    return np.where(noise < half, steps, half)


def _shared(
    past: Past, current: ThisRun, scaled: Floats, usual: _Usual, groups: list[Ints]
) -> tuple[Floats, Bools, Floats]:
    """Return the share of the noise's variance that readings of a run have in common, for each of
    LASTING_SHARES (H, M), whether two readings of any run tell it from the noise of one (M), and
    the factor of the variance of locations (G).

    `scaled` (T + 1, M) are the first readings in standard deviations from the expected value.
    """
    rests = np.vstack([past.accepted(past.rest), current.second])
    again = usual.scaled(rests)
    twice = np.full_like(current.group, 2)
    count = np.vstack([past.count, twice])
    more = np.maximum(count - 1, 0)
    of_two = (current.first - current.second) ** 2 / 2
    squares = np.vstack([past.accepted(past.within), of_two])
    within = squares / usual.noise**2
    taught = past.count * past.good
    readings = taught.sum(axis=0)
    shares = list[Floats]()
    for lasts in LASTING_SHARES:
        apart = apart_from_mean(taught, lasts)
        share, error = shared(scaled, again, within, more, readings, apart, groups)
        shares.append(beyond_doubt(share, error))
    # What readings of a run share takes it as far from the mean of all, however long it lasts.
    lasting = shares[-1] * apart[:-1]
    around = usual.scaled(past.accepted(past.location))
    return np.array(shares), error < 1, location_factor(around, taught, lasting, groups)


def _own_mean(accepted: Floats, count: Ints, noise: Floats) -> tuple[Floats, Floats]:
    """Return the mean (M) of the accepted runs (T, M) of `count` readings, and its standard
    error.
    """
    weights = np.where(np.isfinite(accepted), count / noise**2, 0.0)
    variance = noise**2 / np.maximum(count, 1)
    mean = _mean(clipped(accepted, variance), weights)
    return mean, 1 / np.sqrt(_total(weights))


def _total(weights: Floats) -> Floats:
    """Return the weight of all runs, never 0."""
    total: Floats = np.maximum(weights.sum(axis=0), 1e-9)
    return total


def _mean(accepted: Floats, weights: Floats) -> Floats:
    """Return the mean of runs.

    A run that read low was read more often. The mean by number of readings stays right for all that
    (Wald, "On cumulative sums of random variables", 1944), as a median of runs does not.
    """
    weighted: Floats = np.nansum(weights * accepted, axis=0)
    return weighted / _total(weights)


def _forecast(
    located: Floats,
    good: Bools,
    chance: Floats,
    shared: Floats,
    told_apart: Bools,
    peers: _Peers,
    group: Ints,
) -> Forecast:
    """Return the forecast of this run; NaN for series without peers that have too few runs before a
    start.
    """
    of_one_run = shared[0]
    accepted = np.where(good, located, np.nan)
    accepted = clipped(accepted, chance + of_one_run)
    known = np.isfinite(accepted)
    runs = known.sum(axis=0)
    weights = np.where(known, 1 / chance, 0.0)
    error = np.sqrt(1 / _total(weights) + of_one_run)
    level, unsure = _prior(_mean(accepted, weights), error, runs, peers)
    result = forecast(level, unsure, accepted, located, chance, shared, told_apart)
    is_alone = ~np.isfinite(peers.centre)
    for nth, start in enumerate(STARTS.tolist()):
        before = known[: max(len(known) - start, 0)]
        unknown = is_alone & (before.sum(axis=0) < AGREEING)
        result.before[nth, unknown] = np.nan
        result.reading[nth, unknown] = np.nan
    return result


def _new_together(runs: Ints, group: Ints) -> Bools:
    """Return which series have no earlier run, as is so for nearly all of at least eight peers."""
    known = np.bincount(group, runs > 0)
    sizes = np.bincount(group)
    are_new = (known < 2) & (sizes >= ENOUGH)
    new_together: Bools = are_new[group] & (runs == 0)
    return new_together


def _prior(own: Floats, error: Floats, runs: Ints, peers: _Peers) -> tuple[Floats, Floats]:
    """Return the level of each series before its first run, and the level's variance.

    The level is that of the peers; without peers, the series' own mean. Limited translation (Efron
    and Morris, 1972): a series that is known to differ from its peers is drawn to them only a
    little.
    """
    few = np.maximum(ENOUGH / np.maximum(runs, 1), 1.0)
    distance = np.abs(own - peers.centre) / (error * few)
    at_least = np.where(runs > 0, error**2 * (distance - 1), 0.0)
    of_peers = np.maximum(peers.spread**2, at_least)
    has_peers = np.isfinite(peers.centre)
    level = np.where(has_peers, peers.centre, own)
    return level, np.where(has_peers, of_peers, _UNKNOWN)


def _peers(
    own: Floats,
    error: Floats,
    noise: Floats,
    current: ThisRun,
    location: Floats,
    groups: list[Ints],
) -> _Peers:
    """Return the median and spread of the peers: of their earlier runs, else of this run's
    readings.

    `own` (M) are the medians of accepted runs, with the standard error `error` (M);
    `location` (M) is that of this run's readings.
    """
    count = np.maximum(count_known(current.readings), 1)
    variance = noise**2 / count
    centre = np.full_like(own, np.nan)
    spread = centre.copy()
    for at in groups:
        values = finite(location[at])
        if values.size < LEAST_PEERS:
            continue
        chance = median(variance[at])
        known = at[np.isfinite(own[at])]
        if known.size > 1:
            values = own[known]
            chance = median(error[known] ** 2)
        seen = scatter(values) * widening(values.size)
        if at.size < ENOUGH:
            seen = max(seen, float(current.assumed[at[0]]))
        least = median(noise[at]) ** 2 / 9
        centre[at] = np.median(values)
        spread[at] = math.sqrt(max(seen**2 - chance, least))
    return _Peers(centre, spread)
