"""How far a healthy number may stray from its centre.

Why these figures: docs/decisions/0002-judging-with-few-samples.md.
"""

import math
from statistics import median

from seatrial.checks.table import CHECKS
from seatrial.model.measurement import Measurement
from seatrial.model.tolerance import SINGLE_SIZE, STEADY, Tolerance

# A fail lies this factor beyond the first value that is degraded.
FAIL_FACTOR = 2.0
# Makes the median absolute deviation of normal noise its standard deviation.
_MAD_TO_SIGMA = 1.4826


_OF_METRIC = {name: m.tolerance for kind in CHECKS for name, m in kind.metrics.items() if m.tolerance}
_OF_GPU = {name: m.of_gpu for kind in CHECKS for name, m in kind.metrics.items() if m.of_gpu}


def tolerance_of(measurement: Measurement) -> Tolerance:
    """The check's own for that metric and kind of subject.

    Else one message size is a few timed iterations, and all else averages many.
    """
    usual = SINGLE_SIZE if "message_bytes" in measurement.conditions else STEADY
    if measurement.subject.kind == "gpu" and measurement.metric in _OF_GPU:
        return _OF_GPU[measurement.metric]
    return _OF_METRIC.get(measurement.metric, usual)


def log_spread(values: list[float]) -> float:
    """The robust standard deviation of the natural logs of `values`: 1.4826 times their median absolute deviation."""
    logs = [math.log(value) for value in values]
    centre = median(logs)
    return _MAD_TO_SIGMA * median(abs(value - centre) for value in logs)


def log_width(values: list[float], tolerance: Tolerance, k: float) -> float:
    """How far, on logs, a further value may lie from the median of `values`: k standard deviations of that distance."""
    return log_reach(tolerance, log_spread(values), len(values), k)


def log_reach(tolerance: Tolerance, spread: float, samples: int, k: float = 3.0) -> float:
    """The same for a known `spread`.

    The median of n normal values has the variance pi/(2n) of one, which is what the root adds.
    """
    sigma = max(spread, tolerance.sigma)
    return min(k * sigma * math.sqrt(1 + math.pi / (2 * samples)), math.log(tolerance.cap))
