"""What this run should read, for each start that a change may have. Pure, numpy arrays.

A run reads the level of its series, what its readings share, and chance. A Kalman filter follows
the level, and what of the shared noise lasts. For each start it goes on with the runs since, which
show by how much the series changed (Willsky and Jones, "A generalized likelihood ratio approach to
the detection and estimation of jumps in linear systems", 1976).
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Self

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
_KEPT = np.array([[1.0], [PERSISTENCE]])  # of level and lasting noise, from one run to the next


@dataclass(frozen=True, slots=True)
class Forecast:
    """What this run should read, by start of a change (S, M); NaN where nothing is known.

    `before` is what the first run since should have read. `reading` is what this one should, known
    to `variance`, without the chance of its own readings. `response` is the part of a change that
    `reading` holds already. `score` and `information` are of the size of the change, from the runs
    since.
    """

    before: Floats
    reading: Floats
    variance: Floats
    response: Floats
    score: Floats
    information: Floats


@dataclass(frozen=True, slots=True)
class _State:
    """Level and lasting noise of M series before a run (2, M), their covariance (2, 2, M), and
    `lasting` (M), the variance of that noise. `likelihood` (M), a log, is of the runs so far; for
    the others see Forecast.
    """

    mean: Floats
    covariance: Floats
    lasting: Floats
    likelihood: Floats
    response: Floats
    score: Floats
    information: Floats

    @classmethod
    def before_all(cls, level: Floats, variance: Floats, lasting: Floats) -> Self:
        none = np.zeros(level.size)
        mean = np.stack([level, none])
        return cls(
            mean=mean,
            covariance=np.stack([[variance, none], [none, lasting]]),
            lasting=lasting,
            likelihood=none,
            response=np.zeros_like(mean),
            score=none,
            information=none,
        )

    def after(self, reading: Floats, variance: Floats) -> Self:
        """Return the state before the next run, after one that read `reading`, known to `variance`;
        infinite: none.
        """
        with_reading = self.covariance.sum(axis=1)
        total = with_reading.sum(axis=0) + variance
        gain = with_reading / total
        measured = np.isfinite(variance)
        innovation = reading - self.mean.sum(axis=0)
        innovation = np.where(measured, innovation, 0.0)
        surprise = np.log(total) + innovation**2 / total
        surprise = np.where(measured, surprise, 0.0)
        unexplained = 1 - self.response.sum(axis=0)
        explained = gain[:, None] * with_reading
        covariance = (self.covariance - explained) * _KEPT[:, None] * _KEPT
        covariance[1, 1] += (1 - PERSISTENCE**2) * self.lasting
        return replace(
            self,
            mean=(self.mean + gain * innovation) * _KEPT,
            covariance=covariance,
            likelihood=self.likelihood - surprise / 2,
            response=(self.response + gain * unexplained) * _KEPT,
            score=self.score + unexplained * innovation / total,
            information=self.information + unexplained**2 / total,
        )

    def changing(self) -> Self:
        """Return the state if a change of unknown size begins with the next run."""
        none = np.zeros_like(self.score)
        response = np.zeros_like(self.response)
        return replace(self, response=response, score=none, information=none)


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
    chosen, of_one_run = _likeliest(level, unsure, accepted, chance, shared, told_apart)
    variances = chance + np.where(told_apart, of_one_run, 0.0)
    fields = np.full((len(Forecast.__slots__), STARTS.size, level.size), np.nan)
    result = Forecast(*fields)
    for start, before in enumerate(reversed(chosen)):
        since = slice(len(chance) - start, None)
        then = clipped(measured[since], variances[since] + before.lasting)
        state = before.changing()
        for reading, variance in zip(then, variances[since], strict=True):
            state = state.after(reading, variance)
        result.before[start] = before.mean.sum(axis=0)
        result.reading[start] = state.mean.sum(axis=0)
        result.variance[start] = state.covariance.sum(axis=(0, 1)) + of_one_run
        result.response[start] = state.response.sum(axis=0)
        result.score[start] = state.score
        result.information[start] = state.information
    return result


def _likeliest(
    level: Floats,
    unsure: Floats,
    accepted: Floats,
    chance: Floats,
    shared: Floats,
    told_apart: Bools,
) -> tuple[deque[_State], Floats]:
    """Return the states before the last runs and this one, and the variance that the readings of
    one run share, for the share that lasts which is likeliest.
    """
    chosen = deque[_State]()
    of_one_run = shared[0]
    for share, all_shared in zip(LASTING_SHARES, shared, strict=True):
        lasting = share * all_shared
        not_lasting = np.where(told_apart, all_shared - lasting, 0.0)
        variances = chance + not_lasting
        known = np.where(np.isfinite(accepted), variances, np.inf)
        first = _State.before_all(level, unsure, lasting)
        states = deque([first], STARTS.size)
        for reading, variance in zip(accepted, known, strict=True):
            states.append(states[-1].after(reading, variance))
        if not chosen or _gain(states[-1], chosen[-1]) > _CLEARLY:
            chosen = states
            of_one_run = all_shared - lasting
    return chosen, of_one_run


def _gain(state: _State, other: _State) -> float:
    """Return the log likelihood ratio of all runs."""
    return float(np.nansum(state.likelihood - other.likelihood))
