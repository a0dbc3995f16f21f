"""How much better "slower by delta" explains a number than "healthy" does, on logs.

Noise is taken as Student's t with four degrees of freedom: its tails are so heavy that one value hardly ever proves
anything, and several that agree soon do. All z are in units of the t's scale s, below the expectation negative.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Odds = NDArray[np.float32]  # logs of odds need no more digits, and there are many

FREEDOM = 4
# Of the nodes, GPUs and links that nobody has looked at yet, so many have a fault. "The Llama 3 Herd of Models"
# (2024), section 3.3.4, counts 419 unexpected interruptions of 16,384 GPUs in 54 days: 0.5 in 1,000 GPUs a day.
PRIOR = 0.001
SUREST = 0.99  # healthy runs with an alarm are measured no finer than that
# What makes these statistics of t noise its scale s.
SCALE_PER_MAD = 1 / 0.7407
SCALE_PER_STEP = 1 / 1.1384  # the median of the distance between two nights
VARIANCE_OF_MEDIAN = 1.78  # of n values, times s squared / n
VARIANCE_OF_MIDMEAN = 1.5
VARIANCE_OF_PAIRS = 0.58  # of the midmean of means of two, over that of single values; their tails are lighter already


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """Slowdowns to look for: `delta` (above 0, in s as z), and what their log odds need; all of one shape.

    The odds are held constant beyond their extremes, at `low` and `high`, so that a worse value never weighs less, and
    lowered by the `debt` that this adds, so that under healthy noise they still average at most 1: products of them
    need no further correction, however often and for whatever reason one measures again.
    """

    delta: Odds
    low: Odds
    high: Odds
    debt: Odds

    @classmethod
    def of(cls, delta: Floats) -> Self:
        low, high = _extremes(delta)
        debt = np.log(_mean_ratio(delta, low, high))
        return cls(*(part.astype(np.float32) for part in (delta, low, high, debt)))

    def at(self, columns: NDArray[np.int64]) -> "Slowdowns":
        """Those of some series only; the last axis is series."""
        return Slowdowns(*(part.take(columns, axis=-1) for part in (self.delta, self.low, self.high, self.debt)))

    def log_odds(self, z: Floats | Odds) -> Odds:
        """The log likelihood ratio of a shift by -delta against none; NaN, not measured, says nothing."""
        odds: Odds = _raw(np.clip(z, self.low, self.high, dtype=np.float32, casting="same_kind"), self.delta)
        odds -= self.debt
        missing = np.isnan(odds)
        return np.where(missing, 0.0, odds) if missing.any() else odds


def posterior(log_odds: float) -> float:
    """The probability of a fault, 0 to SUREST, from the log odds against a series and PRIOR."""
    log_posterior = log_odds + np.log(PRIOR / (1 - PRIOR))
    return float(min(SUREST, 1 / (1 + np.exp(-np.clip(log_posterior, -500, 500)))))


def _extremes(delta: Floats) -> tuple[Floats, Floats]:
    """Where the ratio is largest and smallest."""
    root = np.sqrt(delta * delta + 4 * FREEDOM)
    return (-delta - root) / 2, (-delta + root) / 2


def _raw(z: Any, delta: Any) -> Any:
    shifted = z + delta
    shifted *= shifted
    shifted += FREEDOM
    ratio = z * z
    ratio += FREEDOM
    ratio /= shifted
    log_odds = np.log(ratio, out=ratio)
    log_odds *= (FREEDOM + 1) / 2
    return log_odds


def _mean_ratio(delta: Floats, low: Floats, high: Floats) -> Floats:
    """What the ratio averages under healthy noise once it is held constant beyond `low` and `high`."""
    between = below(high + delta) - below(low + delta)
    tails = np.exp(_raw(low, delta)) * below(low) + np.exp(_raw(high, delta)) * below(-high)
    mean: Floats = between + tails
    return mean


def below(t: Floats) -> Floats:
    """The distribution function of Student's t with four degrees of freedom."""
    square = t * t / (FREEDOM + t * t)
    probability: Floats = 0.5 + 0.375 * np.sign(t) * np.sqrt(square) * 2 * (1 - square / 3)
    return probability


def quantile(probability: Floats) -> Floats:
    """The inverse of `below`."""
    root = np.sqrt(4 * probability * (1 - probability))
    square = 4 * (np.cos(np.arccos(root) / 3) / root - 1)
    t: Floats = np.sign(probability - 0.5) * np.sqrt(square)
    return t
