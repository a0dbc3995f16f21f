"""Published training figures for a measured throughput, and the nearest ones."""

from collections.abc import Iterator

from seatrial.catalog import DeviceFigure, TrainingFigure, devices, trainings
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check
from seatrial.model.setup import Setup, ranks_of
from seatrial.text.numbers import short

_FAIL_BELOW = 0.5
_SIZES = ("heads", "sequence_length", "vocabulary")  # of a transformer, beside layers and width
_TRAINED: dict[str, object] = {
    "image_size": 224,
    "data": "synthetic",
    "compile": False,
}  # as every figure has it


def from_training(measurement: Measurement, setup: Setup) -> Baseline | None:
    """Return the published figure for the same GPUs, model, precision and batch; None if there is none."""
    if not _is_throughput(measurement):
        return None
    row = next((row for row in trainings() if not list(_differences(row, measurement, setup))), None)
    if row is None or row.low_samples_s is None:
        return None
    words = f"the {short(row.samples_s)} samples/s expected of {row.place} ({row.source})"
    return Baseline("catalog", row.samples_s, row.low_samples_s, None, row.samples_s * _FAIL_BELOW, 0, words)


def beside(measurement: Measurement, setup: Setup) -> str | None:
    """The published figure that comes nearest to a throughput that none judges, and how it differs; None without."""
    if not _is_throughput(measurement) or from_training(measurement, setup):
        return None
    model = _kind(_trained(measurement))
    of_model = [row for row in trainings() if row.hardware == setup.hardware and _kind(row.model) == model]
    if not of_model:
        return None
    row = min(of_model, key=lambda row: len(list(_differences(row, measurement, setup))))
    differences = " and ".join(_differences(row, measurement, setup))
    cause = f"differs in {differences}" if differences else "it has no range to judge by"
    words = "expected of" if row.kind == "expected" else "measured on"
    return f"not judged by the {short(row.samples_s)} samples/s {words} {row.place} ({row.source}): {cause}"


def _is_throughput(measurement: Measurement) -> bool:
    return measurement.metric == "throughput" and measurement.unit == "samples/s"


def _kind(model: str) -> str:
    """The name that a model begins with: of a transformer its size follows."""
    return model.partition(" ")[0]


def _trained(measurement: Measurement) -> str:
    """The model as a row names it, with all that is not usual of its size: "transformer 12x1024, heads 16"."""
    conditions = measurement.conditions
    others = [f"{name.replace('_', ' ')} {conditions[name]}" for name in _SIZES if name in conditions]
    return ", ".join((str(conditions.get("model", "tiny")), *others))


def _differences(row: TrainingFigure, measurement: Measurement, setup: Setup) -> Iterator[str]:
    """In what the training is not that of the row; `fp32` and what every figure has are no conditions."""
    conditions = measurement.conditions
    if row.hardware != setup.hardware:
        yield "hardware"
    if row.gpus != ranks_of(measurement, setup):
        yield "number of GPUs"
    if row.model != _trained(measurement):
        yield "model"
    if row.precision != conditions.get("precision", "fp32"):
        yield "precision"
    if row.batch_per_rank != conditions.get("batch_per_rank"):
        yield "batch"
    for name, value in _TRAINED.items():
        if conditions.get(name, value) != value:
            yield name.replace("_", " ")


_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8"}


def figures_beside(check: Check, setup: Setup) -> list[str]:
    """Each figure once, in words."""
    notes = (note for m in check.measurements for note in (beside(m, setup), *_of_devices(m, setup)) if note)
    return list(dict.fromkeys(notes))


def _of_devices(m: Measurement, setup: Setup) -> Iterator[str]:
    """Single GPUs: what others reached is the best of many shapes or tools, so it is no bound."""
    metric = f"{m.metric}_{_DTYPES.get(str(m.conditions['dtype']))}" if "dtype" in m.conditions else m.metric
    if m.subject.kind == "gpu":
        yield from (_words(row) for row in devices() if (row.hardware, row.metric) == (setup.hardware, metric))


def _words(row: DeviceFigure) -> str:
    figure = f"{short(row.value)} {row.unit} of {row.metric.replace('_', ' ')} on {row.hardware}"
    return f"not judged by the {figure} ({row.kind}, {row.source})"
