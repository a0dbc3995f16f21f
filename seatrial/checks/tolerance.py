"""How far a healthy number may stray from its centre.

Why these figures: docs/decisions/0002-judging-with-few-samples.md.
"""

from seatrial.checks.table import CHECKS
from seatrial.model.baseline import SINGLE_SIZE, STEADY, Tolerance
from seatrial.model.measurement import Measurement

_OF_METRIC = {name: m.tolerance for kind in CHECKS for name, m in kind.metrics.items() if m.tolerance}
_WHOLE = {kind.name for kind in CHECKS if kind.repeats_whole}
_OF_GPU = {name: m.of_gpu for kind in CHECKS for name, m in kind.metrics.items() if m.of_gpu}


def tolerance_of(measurement: Measurement) -> Tolerance:
    """The check's own for that metric and kind of subject.

    Else one message size is a few timed iterations, and all else averages many.
    """
    usual = SINGLE_SIZE if "message_bytes" in measurement.conditions else STEADY
    if measurement.subject.kind == "gpu" and measurement.metric in _OF_GPU:
        return _OF_GPU[measurement.metric]
    return _OF_METRIC.get(measurement.metric, usual)


def is_repeated_only_low(measurement: Measurement, check: str) -> bool:
    """Whether a reading that looks well is not worth another one, though few runs are known."""
    return check in _WHOLE or tolerance_of(measurement).coarse
