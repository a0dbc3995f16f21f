"""What a person approved."""

from seatrial.history.rows import Pin
from seatrial.judge.tolerance import FAIL_FACTOR
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.text.numbers import short


def from_pin(measurement: Measurement, pin: Pin) -> Baseline | None:
    """The baseline of `pin`; None where it leaves the bad side open or speaks of another unit."""
    bound = pin.high if measurement.better == "lower" else pin.low
    if bound is None or pin.unit != measurement.unit:
        return None
    floor = bound * FAIL_FACTOR if measurement.better == "lower" else bound / FAIL_FACTOR
    detail = f"the {short(pin.centre)} {pin.unit} that {pin.pinned_by} pinned on {pin.pinned_at:%Y-%m-%d}"
    return Baseline("pinned", pin.centre, pin.low, pin.high, floor, 1, detail)
