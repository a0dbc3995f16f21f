"""Published rates of trainings, each with its source: samples/s of small models, tokens/s of
`model: llama`. Pure.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from seatrial.catalog import LlamaFigure, TrainingFigure, llamas, trainings
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.setup import Setup, ranks_of
from seatrial.text.words import number

_FAIL_BELOW = 0.5  # of a published rate
_LOW = 0.85  # of a published rate of tokens, which is of tuned machines
_SIZES = ("heads", "sequence_length", "vocabulary")  # of a transformer, beside layers and width
_Row = TypeVar("_Row", TrainingFigure, LlamaFigure)


def from_training(measurement: Measurement, setup: Setup) -> Baseline | None:
    """Return the published figure for the same GPUs, model, precision and batch; None if there is
    none.
    """
    row, different = _nearest(_trainings(measurement, setup))
    if row is None or row.low_samples_s is None or different:
        return None
    words = f"the {number(row.samples_s)} samples/s expected of {row.place} ({row.source})"
    return Baseline(
        source="catalog",
        centre=row.samples_s,
        low=row.low_samples_s,
        floor=row.samples_s * _FAIL_BELOW,
        detail=words,
    )


def nearest_training(measurement: Measurement, setup: Setup) -> Reason | None:
    """Return the nearest published throughput and how it differs, for one that no figure judges;
    None if there is none near.
    """
    row, different = _nearest(_trainings(measurement, setup))
    if row is None:
        return None
    words = "measured on"
    if row.kind == "expected":
        words = "expected of"
    figure = f"{number(row.samples_s)} samples/s {words} {row.place} ({row.source})"
    if different:
        return _differing(figure, different)
    if row.low_samples_s is None:
        return Reason.of("figure-without-range", figure=figure)
    return None  # an equal figure judges the number


def from_llama(measurement: Measurement, setup: Setup) -> Baseline | None:
    """Return the baseline of a rate of tokens that a source has measured with the same model,
    hardware, number of GPUs and options; None without one.
    """
    row, different = _nearest(_llamas(measurement, setup))
    if row is None or different:
        return None
    expected = row.tokens_s_gpu
    return Baseline(
        source="catalog",
        centre=expected,
        low=expected * _LOW,
        floor=expected * _FAIL_BELOW,
        detail=f"the {row.words}",
    )


def nearest_llama(measurement: Measurement, setup: Setup) -> Reason | None:
    """Return the nearest published rate of tokens and how it differs, for one that no figure
    judges; None if there is none near.
    """
    row, different = _nearest(_llamas(measurement, setup))
    if row and different:
        return _differing(row.words, different)
    return None


def _differing(figure: str, different: Iterable[str]) -> Reason:
    return Reason.of("figure-differs", figure=figure, different=" and ".join(different))


def _trainings(m: Measurement, setup: Setup) -> Iterator[tuple[TrainingFigure, list[str]]]:
    """Yield the figures of the same kind of model and hardware, with the names of what differs.

    A condition that the measurement lacks has its default.
    """
    if (m.metric, m.unit) != ("throughput", "samples/s"):
        return
    given = m.conditions.get
    # With each dimension that is not the usual one of its size
    model = str(given("model", "tiny"))
    for name in _SIZES:
        if name in m.conditions:
            model += f", {name.replace('_', ' ')} {given(name)}"
    for row in trainings():
        if row.hardware != setup.hardware or _kind(row.model) != _kind(model):
            continue
        found = differences(
            ("number of GPUs", row.gpus, ranks_of(m, setup)),
            ("model", row.model, model),
            ("precision", row.precision, given("precision", "fp32")),
            ("batch", row.batch_per_rank, given("batch_per_rank")),
            ("image size", 224, given("image_size", 224)),
            ("data", "synthetic", given("data", "synthetic")),
            ("compile", False, given("compile", False)),
        )
        yield row, found


def _kind(model: str) -> str:
    """Return the first word of a model, which its sizes follow."""
    kind, _, _ = model.partition(" ")
    return kind


def _llamas(m: Measurement, setup: Setup) -> Iterator[tuple[LlamaFigure, list[str]]]:
    """Yield the figures of the same hardware, with the names of what differs.

    A condition that the measurement lacks has its default.
    """
    if (m.metric, m.unit) != ("tokens_per_gpu", "tokens/s"):
        return
    given = m.conditions.get
    for row in llamas():
        if row.hardware != setup.hardware:
            continue
        found = differences(
            ("number of GPUs", row.gpus, ranks_of(m, setup)),
            ("model", row.model, given("model")),
            ("precision", row.precision, given("precision", "fp32")),
            ("compile", row.compile, given("compile", False)),
            ("sequence", row.sequence, given("sequence")),
            ("batch", row.batch_per_rank, given("batch_per_rank")),
            ("parallel", row.parallel, given("parallel", "")),
            ("activation checkpointing", "selective", given("recompute", "selective")),
        )
        yield row, found


def differences(*compared: tuple[str, object, object]) -> list[str]:
    """Return the names of what a source did in another way, from (name, published, measured)."""
    return [name for name, published, measured in compared if published != measured]


def _nearest(rows: Iterable[tuple[_Row, list[str]]]) -> tuple[_Row | None, list[str]]:
    """Return the row that differs in the fewest ways, and in which; the first of equal rows, (None,
    []) without rows.
    """
    return min(rows, key=lambda each: len(each[1]), default=(None, []))
