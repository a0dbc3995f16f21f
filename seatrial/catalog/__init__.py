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

    `kind` is `measured` (somebody saw it) or `floor` (below it the publisher calls the machine broken); an empty
    `algorithm` means that the source does not say.
    """

    hardware: str
    gpus_per_node: int
    nodes: int
    fabric: str
    collective: str
    algorithm: str
    message_bytes: int
    busbw_gb_s: float
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


def _converted(row: dict[str, str], record: type[Reference] | type[DeviceFigure]) -> dict[str, Any]:
    """The row's cells as the fields of `record` have them."""
    return {field.name: field.type(row[field.name]) for field in fields(record) if callable(field.type)}


@cache
def known_hardware() -> tuple[str, ...]:
    """The hardware names that a cluster file may use, `cpu` first."""
    return ("cpu", *sorted({d.hardware for d in devices()} | {r.hardware for r in references()}))
