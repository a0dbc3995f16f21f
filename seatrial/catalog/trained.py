"""Published rates of trainings, each with its source: samples/s of small models, tokens/s of each
GPU of `model: llama`. Pure.
"""

from seatrial.catalog import TrainingFigure, trainings
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.setup import Setup, ranks_of

_FAIL_BELOW = 0.5  # of a published rate
# The unit of each rate, and the model of a measurement that names none
_RATES = {"throughput": ("samples/s", "tiny"), "tokens_per_gpu": ("tokens/s", "llama")}
_SIZES = ("heads", "sequence_length", "vocabulary")  # of a transformer, beside layers and width


def from_training(measurement: Measurement, setup: Setup) -> Baseline | None:
    """Return the published figure for the same GPUs, model and options; None if there is none."""
    row, different = _nearest(measurement, setup)
    if row is None or row.low_rate is None or different:
        return None
    return Baseline(
        source="catalog",
        centre=row.rate,
        low=row.low_rate,
        floor=row.rate * _FAIL_BELOW,
        detail=f"the {row.words}",
    )


def nearest_training(measurement: Measurement, setup: Setup) -> Reason | None:
    """Return the nearest published rate and how it differs, for one that no figure judges; None if
    there is none near.
    """
    row, different = _nearest(measurement, setup)
    if row is None:
        return None
    if different:
        return Reason.of("figure-differs", figure=row.words, different=" and ".join(different))
    if row.low_rate is None:
        return Reason.of("figure-without-range", figure=row.words)
    return None  # an equal figure judges the number


def _nearest(m: Measurement, setup: Setup) -> tuple[TrainingFigure | None, list[str]]:
    """Return the figure of the same kind of model and hardware that differs in the fewest ways, and
    in which; the first of equal ones, (None, []) without one.

    A condition that the measurement lacks has its default.
    """
    unit, usual_model = _RATES.get(m.metric, ("", ""))
    given = m.conditions.get
    # With each dimension that is not the usual one of its size
    model = str(given("model", usual_model))
    for name in _SIZES:
        if name in m.conditions:
            model += f", {name.replace('_', ' ')} {given(name)}"
    found = []
    for row in trainings():
        if row.hardware != setup.hardware or _kind(row.model) != _kind(model):
            continue
        if not row.unit == m.unit == unit:
            continue
        different = differences(
            ("number of GPUs", row.gpus, ranks_of(m, setup)),
            ("model", row.model, model),
            ("precision", row.precision, given("precision", "fp32")),
            ("compile", row.compile, given("compile", False)),
            ("sequence", row.sequence, given("sequence", 0)),
            ("batch", row.batch_per_rank, given("batch_per_rank")),
            ("parallel", row.parallel, given("parallel", "")),
            ("image size", 224, given("image_size", 224)),
            ("data", "synthetic", given("data", "synthetic")),
            ("activation checkpointing", "selective", given("recompute", "selective")),
        )
        found.append((row, different))
    return min(found, key=lambda each: len(each[1]), default=(None, []))


def _kind(model: str) -> str:
    """Return the first word of a model, which its sizes follow."""
    kind, _, _ = model.partition(" ")
    return kind


def differences(*compared: tuple[str, object, object]) -> list[str]:
    """Return the names of what a source did in another way, from (name, published, measured)."""
    return [name for name, published, measured in compared if published != measured]
