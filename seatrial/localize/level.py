"""The level of like tests, and their noise around it, from their values alone.

Pure.
"""

from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_FAST_SHARE = 0.05  # least share of like tests that is fast: a slow node slows most tests of groups
SIGMA = 0.03  # prior standard deviation of healthy tests
_SIGMA_FLOOR = 0.01
_PRIOR_TESTS = 4  # number of tests that the prior counts as
_FAR = 6 * SIGMA  # tests this far below the fastest are slow, not noise
_MAD = 1.4826  # ratio of sigma to the median absolute deviation (MAD) of normal values
_EFFICIENCY = 0.37  # statistical efficiency of the MAD
_HALVES = 20  # least number of values to estimate sigma from their shortest half
_SHORTH = 1.15  # correction for the bias of the shortest half


def shortest_half(values: Floats) -> float:
    """Return the width of the shortest interval with half of the values: 1.349 sigma if they are
    normal (the shorth).
    """
    ordered = np.sort(values)
    half = len(ordered) // 2
    starts = ordered[: len(ordered) - half]
    widths = ordered[half:] - starts
    return float(widths.min())


def fast_level(values: Floats) -> float:
    """Return the level of the fast tests: the highest one at which a twentieth of the tests agree.

    With two or three tests it is the highest value. Otherwise it is the highest half-sample mode
    (Bickel and Fruehwirth, 2006) of a twentieth, then the median of the values around it.
    """
    if len(values) < 4:
        return float(values.max())
    ordered = np.sort(values)[::-1]
    width = ceil(_FAST_SHARE * len(ordered))
    least = 2
    if len(ordered) >= 10:
        least = 3
    width = max(least, width)
    ends = ordered[width - 1 :]
    spans = ordered[: len(ends)] - ends
    fast = ordered[ordered >= ends[0] - _FAR]
    sigma = min(SIGMA, max(_SIGMA_FLOOR / 2, _sigma_of_half(fast)))
    gaps = ends[:-1] - ends[1:]
    # Tests above a gap five times as wide as their spread agree, whatever their scatter
    apart = max(gaps, default=0.0) / 5
    widest = max(3 * spans.min(), 2 * sigma, apart)
    first = int(np.argmax(spans <= widest))
    top = ordered[first : first + width]
    level = float(np.median(top))
    scale = max(float(spans[first]) / 2, sigma)
    floor = min(_SIGMA_FLOOR, sigma)
    # Repeat the median of the values nearby until it no longer changes
    for _ in range(5):
        is_near = np.abs(ordered - level) <= 3 * scale
        near = ordered[is_near]
        level = float(np.median(near))
        scale = max(_sigma_by_mad(near - level), floor)
    return level


def _sigma_of_half(values: Floats) -> float:
    """Return sigma estimated from the shortest half of the values; infinite if there are
    too few.
    """
    if len(values) < _HALVES:
        return inf
    return _SHORTH * shortest_half(values) / 1.349


def _sigma_by_mad(deviations: Floats) -> float:
    """Return sigma estimated from the median absolute deviation."""
    median = np.median(np.abs(deviations))
    return _MAD * float(median)


def scale_of(ratios: Floats, least: float) -> float:
    """Return the noise of like tests around their level, estimated by MAD and combined with the
    prior.

    It is at least `least`, and wider for fewer tests, as Student's t is at three times its scale
    (first term of its expansion).
    """
    near = ratios
    scale = least
    for _ in range(5):
        is_near = np.abs(ratios) <= 3 * max(scale, SIGMA)
        near = ratios[is_near]
        scale = SIGMA
        if len(near):
            scale = max(least, _sigma_by_mad(near))
    # If half of the tests are a little slower, that is a fault, not noise
    scale = min(scale, max(least, _sigma_of_half(near)))
    own = len(near) * scale**2
    usual = _PRIOR_TESTS * SIGMA**2
    variance = (own + usual) / (len(near) + _PRIOR_TESTS)
    pooled = float(np.sqrt(variance))
    degrees = _EFFICIENCY * len(near) + _PRIOR_TESTS
    wider = 1 + 2.5 / degrees
    return max(pooled, _SIGMA_FLOOR) * wider
