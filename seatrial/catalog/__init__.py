"""The shipped reference numbers: one CSV per kind, every row with its source."""

import csv
import re
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from seatrial.model.errors import InputError
from seatrial.model.setup import Setup
from seatrial.nccl.transport import Nic
from seatrial.text.printable import printable
from seatrial.text.words import count, nearest_of, number

_FOLDER = Path(__file__).parent
_RATE = re.compile(r"-(?:(\d+)x)?(\d+)G$")  # IB-8x400G, EFA-3200G: Gb/s per node, as sold
_PORT_RATES = (10, 20, 25, 40, 50, 56, 100, 200, 400, 800, 1600)  # Gb/s
_SOCKETS = re.compile(r"sockets?|tcp|ethernet|\d*gbe", re.IGNORECASE)
_order = attrgetter(
    "hardware",
    "nodes",
    "gpus_per_node",
    "fabric",
    "collective",
    "algorithm",
    "message_bytes",
    "kind",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """One published busbw figure, in GB/s (1e9 bytes), for one message size in bytes.

    `kind` is `measured`, `floor` (below it the publisher calls the machine broken) or `expected` (a
    claim without a measurement: up to `busbw_gb_s`, and as expected from `low_gb_s` on). An empty
    `algorithm` is unknown. `arm` is how the sweep was run, empty for NCCL's defaults
    (seatrial/model/setup.py).
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
        """The configuration in words: "2 nodes of 8 H100 over EFA-3200G"."""
        return f"{count(self.nodes, 'node')} of {self.gpus_per_node} {self.hardware} over {self.fabric}"


@dataclass(frozen=True, slots=True)
class DeviceFigure:
    """One figure for one kind of hardware; `kind` is `measured`, `floor`, `datasheet` or
    `expected`.
    """

    hardware: str
    metric: str
    unit: str
    value: float
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class TrainingFigure:
    """A rate that a source expects or measured over `gpus` GPUs, and the least that counts as
    expected: samples/s of all of them, or tokens/s of each.

    `model` is a model of a suite's section `training`, a transformer with its size. `sequence` is 0
    for models of samples; `parallel` are degrees besides fsdp. The least of a measured rate of
    tokens, which is of tuned machines, is 0.85 of it.
    """

    hardware: str
    gpus: int
    model: str
    precision: str
    compile: bool
    sequence: int
    batch_per_rank: int
    parallel: str
    unit: str
    rate: float
    low_rate: float | None
    kind: str
    source: str

    @property
    def rate_unit(self) -> str:
        """The unit, with what the rate is of."""
        return f"{self.unit} of each GPU" if self.sequence else self.unit

    @property
    def words(self) -> str:
        """The figure in words: "14,000 samples/s expected of 8 H100-SXM that train resnet50 in
        fp32, batch 64 (its source)".
        """
        kind = "measured on" if self.kind == "measured" else "expected of"
        train = "trains" if self.gpus == 1 else "train"
        options = f"batch {self.batch_per_rank}"
        options += f" of sequence {self.sequence}" if self.sequence else ""
        options += ", compiled" if self.compile else ""
        return (
            f"{number(self.rate)} {self.rate_unit} {kind} {self.gpus} {self.hardware} that {train} "
            f"{self.model} in {self.precision}, {options} ({self.source})"
        )


_Record = TypeVar("_Record", Reference, DeviceFigure, TrainingFigure)


def _read(name: str, record: type[_Record]) -> tuple[_Record, ...]:
    """Return the rows of a shipped file, each cell converted to the type of its field."""
    kinds = {field.name: field.type for field in fields(record)}
    records = []
    for row in rows_of(name):
        records.append(record(**{field: _value(row[field], kind) for field, kind in kinds.items()}))
    return tuple(records)


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a shipped file, by the names of its columns."""
    with (_FOLDER / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _value(cell: str, kind: Any) -> Any:
    """Convert a cell; an empty number is None."""
    if kind == float | None:
        return float(cell) if cell else None
    return cell == "True" if kind is bool else kind(cell)


@cache
def references() -> tuple[Reference, ...]:
    """Read the shipped collective references."""
    return _read("collectives.csv", Reference)


@cache
def trainings() -> tuple[TrainingFigure, ...]:
    """Read the shipped training figures."""
    return _read("training.csv", TrainingFigure)


@cache
def devices() -> tuple[DeviceFigure, ...]:
    """Read the shipped figures per device or node."""
    return _read("devices.csv", DeviceFigure)


def device_figure(hardware: str, metric: str) -> float | None:
    """Return the first figure of that metric, in the unit of its row."""
    return next((d.value for d in devices() if (d.hardware, d.metric) == (hardware, metric)), None)


def peak_tflops(hardware: str, precision: str) -> float | None:
    """Return the data sheet's TFLOP/s of dense bf16 and fp16 multiplication, which are equal."""
    if precision in ("bf16", "fp16"):
        return device_figure(hardware, "peak_bf16")
    return None


@cache
def hardware_of(gpu_model: str) -> str | None:
    """Return the hardware of a GPU model as nvidia-smi prints it; None if it is not in the
    catalog.
    """
    models = rows_of("gpu_models.csv")
    return next((row["hardware"] for row in models if row["model"] == gpu_model), None)


@cache
def known_hardware() -> tuple[str, ...]:
    """Return the hardware names of the catalog, `cpu` first."""
    return ("cpu", *sorted({d.hardware for d in devices()} | {r.hardware for r in references()}))


def with_links(setup: Setup) -> Setup:
    """Fill in missing link rates of a setup from the catalog.

    A bridge joins two GPUs; more of them on a node meet over PCIe, whose rate is unknown.
    """
    is_bridged = setup.hardware == "H100-NVL" and setup.gpus_per_node > 2
    links = None if is_bridged else gpu_link_gb_s(setup.hardware)
    return replace(
        setup,
        gpu_link_gb_s=setup.gpu_link_gb_s or links,
        node_link_gb_s=setup.node_link_gb_s or node_link_gb_s(setup.fabric),
        part_of_node=_part_of_node(setup),
    )


def _part_of_node(setup: Setup) -> float | None:
    """Return the share of a node's NICs that its GPUs have for sure; None for unknown hardware.

    A fabric with no more NICs than GPUs is described for these GPUs: one GPU with `IB-1x400G` has
    that NIC.
    """
    usual = usual_gpus(setup.hardware)
    if not usual:
        return None
    return min(1.0, setup.gpus_per_node / min(usual, nics_of(setup.fabric) or usual))


def gpu_link_gb_s(hardware: str) -> float | None:
    """Return GB/s (1e9 bytes), one direction, of one GPU's links to its neighbours."""
    return device_figure(hardware, "gpu_link")


def usual_gpus(hardware: str) -> int | None:
    """Return the usual number of GPUs of a node of that hardware."""
    gpus = device_figure(hardware, "gpus_per_node")
    return None if gpus is None else round(gpus)


def node_link_gb_s(fabric: str | None) -> float | None:
    """Return GB/s (1e9 bytes), one direction, of a node's NICs: by the end of the fabric's name,
    else the table.
    """
    if fabric is None:
        return None
    rate = _RATE.search(fabric)
    if rate:
        return int(rate[1] or 1) * int(rate[2]) / 8
    return _fabrics().get(fabric)


def nics_of(fabric: str | None) -> int | None:
    """Return the number of NICs of a node by the fabric's name: 8 for IB-8x400G."""
    rate = _RATE.search(fabric or "")
    return int(rate[1]) if rate and rate[1] else None


def nic_of(fabric: str | None) -> Nic:
    """Return link and rate of each NIC by the fabric's name: InfiniBand of 400 Gb/s for
    IB-8x400G.
    """
    rate = _RATE.search(fabric or "")
    return Nic(link_of(fabric or ""), int(rate[2]) if rate and rate[1] else 0)


def link_of(fabric: str) -> str:
    """Return IB or RoCE as NCCL calls the link of a fabric with that name; empty for others."""
    name = fabric.lower()
    if name.startswith(("ib", "infiniband")):
        return "IB"
    if name.startswith("roce"):
        return "RoCE"
    return ""


def is_sockets(fabric: str | None) -> bool:
    """Return whether the fabric is TCP over Ethernet by its name: "Ethernet", "Ethernet-1x100G",
    "100GbE".
    """
    return bool(_SOCKETS.fullmatch(re.split(r"[-\s]", fabric or "", maxsplit=1)[0]))


def one_nic(setup: Setup) -> float:
    """Return one NIC's share of the NICs of a node; one NIC per GPU if the fabric's name has no
    number.
    """
    nics = (nics_of(setup.fabric) or 0) * (setup.part_of_node or 1.0)
    return 1 / (nics or setup.gpus_per_node or 1)


@cache
def _fabrics() -> dict[str, float]:
    return {row["fabric"]: float(row["node_link_gb_s"]) for row in rows_of("fabrics.csv")}


@cache
def known_fabrics() -> dict[str, float | None]:
    """Return the fabrics of the catalog, with GB/s (1e9 bytes), one direction, of a node's NICs
    where known.
    """
    names = sorted({row.fabric for row in references()} | set(_fabrics()))
    return {name: node_link_gb_s(name) for name in names}


def unknown_fabric(fabric: str) -> str | None:
    """Return why nothing is known of a fabric by its name, with the nearest and the known ones;
    None if something is.

    A name that ends with a rate, such as IB-8x200G, and TCP over Ethernet need no row.
    """
    misspelt = fabric.lower() in {name.lower() for name in known_fabrics()}
    nic = nic_of(fabric)
    misspelt = misspelt or bool(nic.link and nic.gbit_s and nic.gbit_s not in _PORT_RATES)
    if fabric in known_fabrics() or is_sockets(fabric) or (node_link_gb_s(fabric) and not misspelt):
        return None
    nearest = f"{near}; " if (near := nearest_of(fabric, known_fabrics())) else ""
    return (
        f"unknown fabric {printable(fabric[:63])!r}; {nearest}known: "
        f"{', '.join(known_fabrics())}, Ethernet,"
        " or a name with its rate such as IB-8x200G (a port has "
        f"{', '.join(map(str, _PORT_RATES))}); `seatrial baseline list --fabrics` lists them"
    )


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of the catalog; collectives by hardware, nodes, fabric, collective and size."""

    collectives: tuple[Reference, ...]
    devices: tuple[DeviceFigure, ...]
    trainings: tuple[TrainingFigure, ...]


def listed(hardware: str | None = None) -> Listing:
    """List the catalog, or only `hardware`. Raises InputError for an unknown name."""
    if hardware is not None and hardware not in known_hardware():
        raise InputError(f"--hardware {hardware}: unknown; known: {', '.join(known_hardware())}")
    return Listing(
        tuple(sorted((r for r in references() if hardware in (None, r.hardware)), key=_order)),
        tuple(
            sorted(
                (d for d in devices() if hardware in (None, d.hardware)),
                key=attrgetter("hardware", "metric"),
            )
        ),
        tuple(t for t in trainings() if hardware in (None, t.hardware)),
    )
