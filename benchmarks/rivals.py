"""How other tools judge the same numbers, as far as one measurement per series and a fixed rule go.

Each rule takes the reference nights (R, M) and tonight (M), relative to the healthy level, with the metric of each
series, and says which series it calls bad.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from seatrial.simulate.rows import Floats, Ints

Rule = Callable[[Floats, Floats, Ints], NDArray[np.bool_]]

SUPERBENCH_VARIANCE = -0.05  # the documentation's example: (value - baseline) / baseline below it is defective
REFRAME_BAND = -0.10  # the tutorial's band: the reference value -10 %


def superbench(good: Floats, tonight: Floats, metric: Ints) -> NDArray[np.bool_]:
    """Against the mean over all nodes and reference nights of the metric."""
    return np.less(tonight / _means(good, metric) - 1, SUPERBENCH_VARIANCE)


def reframe(good: Floats, tonight: Floats, metric: Ints) -> NDArray[np.bool_]:
    """Against a reference value that was written down once: the mean of the first night."""
    return np.less(tonight / _means(good[:1], metric) - 1, REFRAME_BAND)


def _means(nights: Floats, metric: Ints) -> Floats:
    totals = np.bincount(metric, nights.mean(axis=0))
    means: Floats = (totals / np.bincount(metric))[metric]
    return means


RULES: Mapping[str, Rule] = {"SuperBench (mean - 5 %)": superbench, "ReFrame (reference - 10 %)": reframe}
