"""What earlier runs that passed teach."""

import math
from collections.abc import Sequence
from statistics import median

from seatrial.judge.baselines.interval import around
from seatrial.judge.tolerance import log_width, tolerance_of
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.text.numbers import short

MIN_SAMPLES = 3
_K = 3.0


def from_history(measurement: Measurement, values: Sequence[float]) -> Baseline | None:
    """The baseline that `values`, the same series in passing runs, give; None where they are too few.

    Noise is taken as multiplicative, so a series that was ever zero or negative gives none.
    """
    known = [value for value in values if math.isfinite(value)]
    if len(known) < MIN_SAMPLES or min(known) <= 0:
        return None
    centre = median(known)
    tolerance = tolerance_of(measurement)
    detail = f"the median {short(centre)} {measurement.unit} of {len(known)} passing runs"
    return around(measurement, "history", centre, log_width(known, tolerance, _K), len(known), detail)
