"""The shipped reference numbers: one CSV per kind, every row with its source."""

import csv
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Reference:
    """One published busbw figure, in GB/s (1e9 bytes), for one message size in bytes.

    `kind` is `measured` (somebody saw it), `floor` (below it the publisher calls the machine broken) or `expected` (a
    claim without a measurement: up to `busbw_gb_s`, and as expected from `low_gb_s` on). An empty `algorithm` means
    that the source does not say. `arm` is how the sweep was run, empty as NCCL does by itself
    (seatrial/model/arms.py).
    """

    hardware: str
    gpus_per_node: int
    nodes: int
    fabric: str
    collective: str
    algorithm: str
    arm: str
    message_bytes: int
    busbw_gb_s: float
    low_gb_s: float | None
    kind: str
    source: str

    @property
    def place(self) -> str:
        """What it was measured on, for people: "2 nodes of 8 H100 over EFA-3200G"."""
        nodes = f"{self.nodes} node{'' if self.nodes == 1 else 's'}"
        return f"{nodes} of {self.gpus_per_node} {self.hardware} over {self.fabric}"


@cache
def references() -> tuple[Reference, ...]:
    """Every collective reference that ships with the package."""
    with (_FOLDER / "collectives.csv").open(encoding="utf-8") as rows:
        return tuple(Reference(**_converted(row, Reference)) for row in csv.DictReader(rows))


@dataclass(frozen=True, slots=True)
class DeviceFigure:
    """One figure for one kind of hardware; `kind` is `measured`, `floor`, `datasheet` or `expected`."""

    hardware: str
    metric: str
    unit: str
    value: float
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class TrainingFigure:
    """Samples/s that a source expects or measured over `gpus` GPUs, and from which number on that is as expected.

    `model` is a name of a suite's section `training`; of a transformer its size follows.
    """

    hardware: str
    gpus: int
    model: str
    precision: str
    batch_per_rank: int
    samples_s: float
    low_samples_s: float | None
    kind: str
    source: str

    @property
    def place(self) -> str:
        """What it is of, for people: "8 H100-SXM that train resnet50 in fp32, batch 64"."""
        train = "trains" if self.gpus == 1 else "train"
        return f"{self.gpus} {self.hardware} that {train} {self.model} in {self.precision}, batch {self.batch_per_rank}"


@cache
def trainings() -> tuple[TrainingFigure, ...]:
    """Every training figure that ships with the package."""
    with (_FOLDER / "training.csv").open(encoding="utf-8") as rows:
        return tuple(TrainingFigure(**_converted(row, TrainingFigure)) for row in csv.DictReader(rows))


@cache
def devices() -> tuple[DeviceFigure, ...]:
    """Every figure per device or node that ships with the package."""
    with (_FOLDER / "devices.csv").open(encoding="utf-8") as rows:
        return tuple(DeviceFigure(**_converted(row, DeviceFigure)) for row in csv.DictReader(rows))


def device_figure(hardware: str, metric: str) -> float | None:
    """The first figure of that metric, in the unit of its row."""
    return next((d.value for d in devices() if (d.hardware, d.metric) == (hardware, metric)), None)


def peak_tflops(hardware: str, precision: str) -> float | None:
    """What the data sheet of that hardware says of dense bf16 and fp16 multiplication, which are alike; TFLOP/s."""
    return device_figure(hardware, "peak_bf16") if precision in ("bf16", "fp16") else None


def _converted(row: dict[str, str], record: type[Reference | DeviceFigure | TrainingFigure]) -> dict[str, Any]:
    """The row's cells as the fields of `record` have them; an empty number is None."""
    return {field.name: _value(row[field.name], field.type) for field in fields(record)}


def _value(cell: str, kind: Any) -> Any:
    if kind == float | None:
        return float(cell) if cell else None
    return kind(cell)


@cache
def hardware_of(gpu_model: str) -> str | None:
    """The hardware whose GPUs nvidia-smi calls so; None where the catalog does not know that model."""
    with (_FOLDER / "gpu_models.csv").open(encoding="utf-8") as rows:
        return next((row["hardware"] for row in csv.DictReader(rows) if row["model"] == gpu_model), None)


@cache
def known_hardware() -> tuple[str, ...]:
    """The hardware names that a cluster file may use, `cpu` first."""
    return ("cpu", *sorted({d.hardware for d in devices()} | {r.hardware for r in references()}))
