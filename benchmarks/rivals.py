"""How other tools judge the same numbers, as far as one measurement per series and a fixed rule go.

Each rule takes the reference nights (R, M) and tonight (M), natural logs, with the metric of each series, and says
which series it calls bad.
"""

from collections.abc import Callable, Mapping

import numpy as np

from seatrial.judge.fleet.grouped import Bools, Ints
from seatrial.judge.fleet.odds import Floats

Rule = Callable[[Floats, Floats, Ints], Bools]

FLOOR = 0.8  # of what healthy nodes read; published floors lie between 0.2 and 0.95 of it
SUPERBENCH_VARIANCE = -0.05  # the documentation's example: (value - baseline) / baseline below it is defective
REFRAME_BAND = -0.10  # the tutorial's band: the reference value -10 %


def flat_floor(good: Floats, tonight: Floats, metric: Ints) -> Bools:
    """One number for everybody, from a data sheet: the healthy level (log 0), less a margin."""
    return np.less(tonight, np.log(FLOOR))


def superbench(good: Floats, tonight: Floats, metric: Ints) -> Bools:
    """Against the mean over all nodes and reference nights of the metric."""
    return np.less(np.exp(tonight) / _means(good, metric) - 1, SUPERBENCH_VARIANCE)


def reframe(good: Floats, tonight: Floats, metric: Ints) -> Bools:
    """Against a reference value that was written down once: the mean of the first night."""
    return np.less(np.exp(tonight) / _means(good[:1], metric) - 1, REFRAME_BAND)


def _means(nights: Floats, metric: Ints) -> Floats:
    totals = np.bincount(metric, np.exp(nights).mean(axis=0))
    means: Floats = (totals / np.bincount(metric))[metric]
    return means


RULES: Mapping[str, Rule] = {
    "flat floor, 80 %": flat_floor,
    "mean - 5 % (SuperBench)": superbench,
    "fixed band - 10 % (ReFrame)": reframe,
}
