"""Trends of series: the slope by Theil and Sen, and whether there is one by Mann and Kendall. Pure.

Sen, Journal of the American Statistical Association 63 (1968), 1379; Mann, Econometrica 13 (1945),
245; Kendall, Rank Correlation Methods (1975).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Z95 = 1.96
_AT_ONCE = 4_000_000  # pairs of readings in memory


@dataclass(frozen=True, slots=True)
class Slope:
    """The median of the slopes between all pairs of readings, with its interval of 95 %, in units
    of the time's.
    """

    median: float
    low: float
    high: float


def theil_sen(times: "NDArray[np.float64]", readings: "NDArray[np.float64]") -> Slope:
    """Return the slope of one series; NaN is no reading.

    Raises ValueError for fewer than two readings.
    """
    known = np.isfinite(readings)
    times, readings = times[known], readings[known]
    first, second = np.triu_indices(len(times), 1)
    if not len(first):
        raise ValueError("a slope needs two readings")
    slopes = np.sort((readings[second] - readings[first]) / (times[second] - times[first]))
    reach = _Z95 * math.sqrt(_variance(len(times))) / 2
    middle = (len(slopes) - 1) / 2
    low, high = math.floor(middle - reach), math.ceil(middle + reach)
    bounds = slopes[max(low, 0)], slopes[min(high, len(slopes) - 1)]
    return Slope(float(np.median(slopes)), float(bounds[0]), float(bounds[1]))


def mann_kendall(readings: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return the two-sided p of no trend, for each column of `readings`, whose rows are in the
    order of time.
    """
    first, second = np.triu_indices(len(readings), 1)
    at_once = max(1, _AT_ONCE // max(1, len(first)))
    score = np.zeros(readings.shape[1])
    for begin in range(0, readings.shape[1], at_once):
        some = readings[:, begin : begin + at_once]
        score[begin : begin + at_once] = np.nansum(np.sign(some[second] - some[first]), axis=0)
    p_values = np.ones(readings.shape[1])
    counts = np.isfinite(readings).sum(axis=0)
    for column in np.flatnonzero((counts > 1) & (score != 0)):
        z = (abs(score[column]) - 1) / math.sqrt(_variance(int(counts[column])))
        p_values[column] = math.erfc(z / math.sqrt(2))
    return p_values


def _variance(count: int) -> float:
    """Return the variance of Kendall's score without a trend and without ties."""
    return count * (count - 1) * (2 * count + 5) / 18
