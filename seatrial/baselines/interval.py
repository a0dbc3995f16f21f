"""From a centre and a width on logs to an interval on the bad side of a measurement."""

import math

from seatrial.baselines.baseline import Baseline, Source
from seatrial.baselines.tolerance import FAIL_FACTOR, Tolerance
from seatrial.measurement import Measurement


def around(
    measurement: Measurement,
    source: Source,
    centre: float,
    width: float,
    tolerance: Tolerance,
    samples: int,
    detail: str,
) -> Baseline:
    """The baseline that expects `measurement` no further than `width` (on natural logs) on the bad side of `centre`."""
    if measurement.better == "lower":
        high = max(centre * math.exp(width), centre + tolerance.slack)
        return Baseline(source, centre, None, high, FAIL_FACTOR * high, samples, detail)
    low = min(centre * math.exp(-width), centre - tolerance.slack)
    return Baseline(source, centre, low, None, low / FAIL_FACTOR, samples, detail)
