"""From a centre and a width on logs to an interval on the bad side of a measurement."""

import math

from seatrial.judge.tolerance import FAIL_FACTOR
from seatrial.judge.fleet.detectable import DEVIATIONS
from seatrial.model.baseline import Baseline, Source
from seatrial.model.measurement import Measurement


def around(
    measurement: Measurement,
    source: Source,
    centre: float,
    width: float,
    samples: int,
    detail: str,
    detectable: float | None = None,
) -> Baseline:
    """The baseline that expects `measurement` no further than `width` (on natural logs) on the bad side of `centre`.

    `detectable` is the loss, on logs, that is found four times in five. Where it is not given, a number that is off by
    `width` is found in half of the runs, and `width` is three standard deviations.
    """
    loss = (1 + DEVIATIONS / 3) * width if detectable is None else detectable
    share = None if math.isnan(loss) else 1 - math.exp(-loss)
    if measurement.better == "lower":
        high = centre * math.exp(width)
        return Baseline(source, centre, None, high, FAIL_FACTOR * high, samples, detail, share)
    low = centre * math.exp(-width)
    return Baseline(source, centre, low, None, low / FAIL_FACTOR, samples, detail, share)
