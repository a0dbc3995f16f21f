"""Whether series have a trend, by Mann and Kendall. Pure.

Mann, Econometrica 13 (1945), 245; Kendall, Rank Correlation Methods (1975).
"""

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AT_ONCE = 4_000_000  # pairs of readings in memory


def mann_kendall(readings: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return the two-sided p of no trend, for each column of `readings`, whose rows are in the
    order of time.
    """
    rows, columns = readings.shape
    first, second = np.triu_indices(rows, 1)
    at_once = max(1, _AT_ONCE // max(1, len(first)))
    score = np.zeros(columns)
    for begin in range(0, columns, at_once):
        some = slice(begin, begin + at_once)
        rises = np.sign(readings[second, some] - readings[first, some])
        score[some] = np.nansum(rises, axis=0)
    p_values = np.ones(columns)
    counts = np.isfinite(readings).sum(axis=0)
    for column in np.flatnonzero((counts > 1) & (score != 0)):
        deviation = math.sqrt(_variance(int(counts[column])))
        z = (abs(score[column]) - 1) / deviation
        p_values[column] = math.erfc(z / math.sqrt(2))
    return p_values


def _variance(count: int) -> float:
    """Return the variance of Kendall's score without a trend and without ties."""
    return count * (count - 1) * (2 * count + 5) / 18
