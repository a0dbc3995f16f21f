"""From a centre and a width on logs to an interval on the bad side of a measurement."""

import math

from seatrial.judge.baselines.tolerance import FAIL_FACTOR
from seatrial.model.baseline import Baseline, Source
from seatrial.model.measurement import Measurement


def around(
    measurement: Measurement,
    source: Source,
    centre: float,
    width: float,
    samples: int,
    detail: str,
) -> Baseline:
    """The baseline that expects `measurement` no further than `width` (on natural logs) on the bad side of `centre`."""
    if measurement.better == "lower":
        high = centre * math.exp(width)
        return Baseline(source, centre, None, high, FAIL_FACTOR * high, samples, detail)
    low = centre * math.exp(-width)
    return Baseline(source, centre, low, None, low / FAIL_FACTOR, samples, detail)
