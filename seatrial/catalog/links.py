"""What the links of known hardware and fabrics carry, by their data sheets or by the fabric's own name."""

import csv
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from seatrial.catalog import device_figure
from seatrial.model.setup import Setup

_RATE = re.compile(r"-(?:(\d+)x)?(\d+)G$")  # IB-8x400G, EFA-3200G: Gb/s per node, as sold
_BITS_PER_BYTE = 8
_SOCKETS = re.compile(r"sockets?|tcp|ethernet|\d*gbe", re.IGNORECASE)


def with_links(setup: Setup) -> Setup:
    """The setup with the rates that the catalog knows where it gives none itself."""
    usual = usual_gpus(setup.hardware)
    return replace(
        setup,
        gpu_link_gb_s=setup.gpu_link_gb_s or gpu_link_gb_s(setup.hardware),
        node_link_gb_s=setup.node_link_gb_s or node_link_gb_s(setup.fabric),
        part_of_node=min(1.0, setup.gpus_per_node / usual) if usual else None,
    )


def gpu_link_gb_s(hardware: str) -> float | None:
    """GB/s (1e9 bytes), one direction, that one GPU's links to its neighbours carry."""
    return device_figure(hardware, "gpu_link")


def usual_gpus(hardware: str) -> int | None:
    """How many GPUs a node of that hardware has unless somebody says otherwise."""
    count = device_figure(hardware, "gpus_per_node")
    return None if count is None else round(count)


def node_link_gb_s(fabric: str | None) -> float | None:
    """GB/s (1e9 bytes), one direction, that a node's NICs carry: as a name says that ends in its rate, or the table."""
    if fabric is None:
        return None
    rate = _RATE.search(fabric)
    return int(rate[1] or 1) * int(rate[2]) / _BITS_PER_BYTE if rate else _fabrics().get(fabric)


def nics_of(fabric: str | None) -> int | None:
    """How many NICs a node has, as a name says that ends in number and rate: 8 of IB-8x400G."""
    rate = _RATE.search(fabric or "")
    return int(rate[1]) if rate and rate[1] else None


def is_sockets(fabric: str | None) -> bool:
    """Whether the name says that nodes are joined by TCP over Ethernet: "Ethernet", "Ethernet-1x100G", "100GbE"."""
    return bool(_SOCKETS.fullmatch(re.split(r"[-\s]", fabric or "", maxsplit=1)[0]))


def one_nic(setup: Setup) -> float:
    """The part of its NICs that one of a node is; where the fabric's name has no number, there is one for each GPU."""
    nics = (nics_of(setup.fabric) or 0) * (setup.part_of_node or 1.0)
    return 1 / (nics or setup.gpus_per_node or 1)


@cache
def _fabrics() -> dict[str, float]:
    with (Path(__file__).parent / "fabrics.csv").open(encoding="utf-8") as rows:
        return {row["fabric"]: float(row["node_link_gb_s"]) for row in csv.DictReader(rows)}
