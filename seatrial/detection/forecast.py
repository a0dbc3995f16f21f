"""What this run should read, for each start that a change may have. Pure, numpy arrays.

A run reads the level of its series, what its readings share, and chance. A Kalman filter follows
the level, and what of the shared noise lasts. For each start it goes on with the runs since, which
show by how much the series changed (Willsky and Jones, "A generalized likelihood ratio approach to
the detection and estimation of jumps in linear systems", 1976).
"""

from collections import deque
from typing import NamedTuple, Self

import numpy as np

from seatrial.detection.noise import PERSISTENCE, median_of
from seatrial.detection.readings import Bools, Floats

STARTS = np.arange(14)  # runs before this one that a change may have lasted: two weeks
# Of what a run's readings share: the first, unless another one is clearly likelier
LASTING_SHARES = (0.5, 1.0, 0.0)
# The likelihood ratio on logs that chance exceeds in 5 %: half of chi-square's quantile (Wilks,
# 1938)
_CLEARLY = 1.92
_CLIPPED = 2.5  # standard deviations, of a run's median: Huber's weight of 98 % efficiency
# Of level and lasting noise, from one run to the next
_KEPT = np.array([1.0, PERSISTENCE])[:, None, None]


class Forecast(NamedTuple):
    """What this run should read, by start of a change (S, M); NaN where nothing is known.

    `before` is what the first run since should have read. `reading` is what this one should, known
    to `variance`, without the chance of its own readings. `response` is the part of a change that
    `reading` holds already. `score` and `information` are of the size of the change, from the runs
    since.
    """

    before: Floats
    reading: Floats
    response: Floats
    variance: Floats
    score: Floats
    information: Floats


class _State(NamedTuple):
    """Level and lasting noise of M series before a run, by N shares or starts.

    means: both, and of both the response to a change (2, 2, N, M).
    covariance: of level and lasting noise (2, 2, N, M).
    lasting: the variance of that noise (N, M).
    likelihood: a log, of the runs so far (N, M).
    sums: score and information, see Forecast (2, N, M).
    """

    means: Floats
    covariance: Floats
    lasting: Floats
    likelihood: Floats
    sums: Floats

    def part(self, which: int | slice) -> Self:
        """Return the state of one share or start, without N, or those of several."""
        return type(self)(*(field[..., which, :] for field in self))

    def after(self, reading: Floats, variance: Floats) -> Self:
        """Return the state before the next run, after one that read `reading` (N, M), known to
        `variance`; infinite: none.
        """
        with_reading = self.covariance.sum(axis=1)
        total = with_reading.sum(axis=0) + variance
        gain = with_reading / total
        measured = np.isfinite(variance)
        # The innovation, and how much of a change is unexplained
        shown = np.stack([reading, np.ones_like(reading)])
        news = np.where(measured, shown - self.means.sum(axis=1), 0.0)
        surprise = np.log(total) + news[0] ** 2 / total
        explained = gain[:, None] * with_reading
        covariance = (self.covariance - explained) * _KEPT[:, None] * _KEPT
        covariance[1, 1] += (1 - PERSISTENCE**2) * self.lasting
        return self._replace(
            means=(self.means + gain * news[:, None]) * _KEPT,
            covariance=covariance,
            likelihood=self.likelihood - np.where(measured, surprise, 0.0) / 2,
            sums=self.sums + news[1] * news / total,
        )


def clipped(runs: Floats, variance: Floats) -> Floats:
    """Return runs that are at most so many standard deviations from the median of all (Huber)."""
    middle = median_of(runs)
    width = _CLIPPED * np.sqrt(variance)
    return runs.clip(middle - width, middle + width)


def forecast(
    level: Floats,
    unsure: Floats,
    accepted: Floats,
    measured: Floats,
    chance: Floats,
    shared: Floats,
    told_apart: Bools,
) -> Forecast:
    """Return what this run should read.

    Before all runs the level is `level` (M), known to a variance `unsure`. `accepted` runs (T, M)
    are those before a change, all `measured` those since; `chance` (T, M) is their variance,
    infinite for none. `shared` (H, M) is that of what all readings of a run share, for each of
    LASTING_SHARES. As far as that does not last it is a part of `chance`, unless two readings of a
    run have `told_apart` (M) the two.
    """
    before, of_one_run = _likeliest(level, unsure, accepted, chance, shared, told_apart)
    variances = chance + np.where(told_apart, of_one_run, 0.0)
    result = np.full((len(Forecast._fields), STARTS.size, level.size), np.nan)
    earliest = len(chance) + 1 - len(before.lasting)
    then = [
        clipped(measured[run:], variances[run:] + lasting)
        for run, lasting in enumerate(before.lasting, earliest)
    ]
    # A change of unknown size begins with each start
    means = before.means.copy()
    means[1] = 0
    state = before._replace(means=means, sums=np.zeros_like(before.sums))
    for start in range(len(then)):
        last = state.part(-1)  # has read all runs since its start
        result[:, start] = [
            before.means[0, :, -1 - start].sum(axis=0),
            *last.means.sum(axis=1),
            last.covariance.sum(axis=(0, 1)) + of_one_run,
            *last.sums,
        ]
        state = state.part(slice(-1))
        if readings := [each[start] for each in then if len(each) > start]:
            state = state.after(np.stack(readings), variances[earliest + start :])
    return Forecast(*result)


def _likeliest(
    level: Floats,
    unsure: Floats,
    accepted: Floats,
    chance: Floats,
    shared: Floats,
    told_apart: Bools,
) -> tuple[_State, Floats]:
    """Return the states before the last runs and this one, and the variance that the readings of
    one run share, for the share that lasts which is likeliest.
    """
    lasting = np.array(LASTING_SHARES)[:, None] * shared
    not_lasting = np.where(told_apart, shared - lasting, 0.0)
    variances = chance[:, None] + not_lasting
    known = np.where(np.isfinite(accepted)[:, None], variances, np.inf)
    none = np.zeros_like(lasting)
    neither = np.stack([none, none])
    first = _State(
        means=np.stack([[level + none, none], neither]),
        covariance=np.stack([[unsure + none, none], [none, lasting]]),
        lasting=lasting,
        likelihood=none,
        sums=neither,
    )
    states = deque([first], STARTS.size)
    for reading, variance in zip(accepted[:, None], known, strict=True):
        states.append(states[-1].after(reading, variance))
    likelihoods = states[-1].likelihood
    chosen = 0
    for nth, likelihood in enumerate(likelihoods):
        # The log likelihood ratio of all runs
        if np.nansum(likelihood - likelihoods[chosen]) > _CLEARLY:
            chosen = nth
    before = _State(*(np.stack(field, axis=-3) for field in zip(*states, strict=True)))
    return before.part(chosen), shared[chosen] - lasting[chosen]
