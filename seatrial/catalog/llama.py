"""Published rates of trainings of `model: llama`, each with its source. Pure."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.text.words import number

_FILE = Path(__file__).with_name("llama.csv")
_LOW, _FAIL_BELOW = 0.85, 0.5  # of a published rate, which is of tuned machines
_METRIC, _UNIT = "tokens_per_gpu", "tokens/s"


@dataclass(frozen=True, slots=True)
class LlamaFigure:
    """Tokens/s of each of `gpus` GPUs that a source measured; `parallel` are degrees besides fsdp."""

    hardware: str
    gpus: int
    model: str
    precision: str
    compile: bool
    sequence: int
    batch_per_rank: int
    parallel: str
    tokens_s_gpu: float
    source: str

    @property
    def words(self) -> str:
        """The figure and its configuration in words."""
        how = ", compiled" if self.compile else ""
        of = f"{self.gpus} {self.hardware} with {self.model} in {self.precision}{how}, sequence {self.sequence}"
        return f"{number(self.tokens_s_gpu)} tokens/s of each GPU measured on {of} ({self.source})"


@cache
def llamas() -> tuple[LlamaFigure, ...]:
    """Read the shipped figures."""
    with _FILE.open(encoding="utf-8") as rows:
        return tuple(_figure(row) for row in csv.DictReader(rows))


def _figure(row: dict[str, str]) -> LlamaFigure:
    return LlamaFigure(
        hardware=row["hardware"],
        gpus=int(row["gpus"]),
        model=row["model"],
        precision=row["precision"],
        compile=row["compile"] == "True",
        sequence=int(row["sequence"]),
        batch_per_rank=int(row["batch_per_rank"]),
        parallel=row["parallel"],
        tokens_s_gpu=float(row["tokens_s_gpu"]),
        source=row["source"],
    )


def from_llama(measurement: Measurement, hardware: str, ranks: int) -> Baseline | None:
    """Return the baseline of a rate whose model, hardware, count and options a source has measured.

    None without one.
    """
    if (measurement.metric, measurement.unit) != (_METRIC, _UNIT):
        return None
    for row in llamas():
        if not any(_differences(row, measurement, hardware, ranks)):
            expected = row.tokens_s_gpu
            return Baseline("catalog", expected, expected * _LOW, None, expected * _FAIL_BELOW, 0, f"the {row.words}")
    return None


def nearest_llama(measurement: Measurement, hardware: str, ranks: int) -> str | None:
    """Return the nearest published rate on that hardware and how it differs.

    None if a published rate judges the training, or none is known.
    """
    of_hardware = [row for row in llamas() if row.hardware == hardware]
    if (measurement.metric, measurement.unit) != (_METRIC, _UNIT) or not of_hardware:
        return None
    nearest = min(of_hardware, key=lambda row: len(list(_differences(row, measurement, hardware, ranks))))
    differences = list(_differences(nearest, measurement, hardware, ranks))
    if not differences:
        return None
    return f"not judged by the {nearest.words}: differs in {' and '.join(differences)}"


def _differences(row: LlamaFigure, measurement: Measurement, hardware: str, ranks: int) -> Iterator[str]:
    """Yield how a training differs from a figure; defaults are no conditions."""
    conditions = measurement.conditions
    compared = (
        ("hardware", row.hardware, hardware),
        ("number of GPUs", row.gpus, ranks),
        ("model", row.model, conditions.get("model")),
        ("precision", row.precision, conditions.get("precision", "fp32")),
        ("compile", row.compile, conditions.get("compile", False)),
        ("sequence", row.sequence, conditions.get("sequence")),
        ("batch", row.batch_per_rank, conditions.get("batch_per_rank")),
        ("parallel", row.parallel, conditions.get("parallel", "")),
        ("activation checkpointing", "selective", conditions.get("recompute", "selective")),
    )
    for name, published, measured in compared:
        if published != measured:
            yield name
