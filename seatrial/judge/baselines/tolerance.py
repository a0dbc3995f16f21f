"""How far a healthy number may stray from its centre.

Why these figures: docs/decisions/0002-judging-with-few-samples.md.
"""

import math
from dataclasses import dataclass
from statistics import median

from seatrial.model.measurement import Measurement

# A fail lies this factor beyond the first value that is degraded.
FAIL_FACTOR = 2.0
# Makes the median absolute deviation of normal noise its standard deviation.
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`sigma` is the least run-to-run noise assumed, on natural logs; an interval reaches at most `cap` times from its
    centre, however noisy the past was. A `steady` number is one that counts on its own."""

    sigma: float
    cap: float
    steady: bool = True


STEADY = Tolerance(sigma=0.25, cap=4.0)
SINGLE_SIZE = Tolerance(sigma=0.4, cap=6.0, steady=False)
# Half a second of TCP on a busy machine gets what its processors leave; a link that is throttled or fell back to a
# lower speed loses a factor of ten and more.
_TCP = Tolerance(sigma=0.5, cap=8.0)


def tolerance_of(measurement: Measurement) -> Tolerance:
    """One message size is a few timed iterations; a plateau or a training run averages over many."""
    if measurement.metric in ("tcp_egress", "tcp_ingress"):
        return _TCP
    one_size = measurement.metric == "latency" or "message_bytes" in measurement.conditions
    return SINGLE_SIZE if one_size else STEADY


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
