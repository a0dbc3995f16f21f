"""Facts of a cluster that its numbers depend on: hardware of its nodes, links, and the arms of a
sweep.

It is the one definition of NCCL's variables of the arms: for runs, for the script that is submitted
to Slurm, for logs.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from seatrial.model.measurement import Measurement

INTRA, NETWORK, LATENCY, NO_MNNVL = "intra", "network", "latency", "no-mnnvl"
ARMS = (INTRA, NETWORK, LATENCY, NO_MNNVL)
_MNNVL = "MNNVL"  # NVLink between nodes; a fabric "MNNVL+EFA" has EFA as well
INSIDE_A_NODE = ("NVLink", "xGMI", "MNNVL")  # fabrics that need no network

# Variables of NCCL, by arm. Ring loads every link alike, and a tree would exceed what the network
# carries.
ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    INTRA: {"NCCL_P2P_LEVEL": "NVL", "NCCL_SHM_DISABLE": "1"},
    NETWORK: {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_ALGO": "Ring"},
    LATENCY: {},
    NO_MNNVL: {"NCCL_MNNVL_ENABLE": "0"},
}


def arm_of(measurement: Measurement) -> str:
    """Return the arm of the measurement; empty for NCCL with its defaults."""
    return str(measurement.conditions.get("arm", ""))


def arm_of_settings(settings: Mapping[str, str]) -> str:
    """Return `network` if the variables of that arm are set, by their full names; else ""."""
    network = ENVIRONMENT[NETWORK].items()
    return (
        NETWORK
        if all(settings.get(name, "").lower() == value.lower() for name, value in network)
        else ""
    )


@dataclass(frozen=True, slots=True)
class Setup:
    """`slots_per_node` is MPI ranks per node; the link rates are GB/s (1e9 bytes), one direction,
    as in `Hardware`.

    `part_of_node` is the share of the hardware's usual GPUs that a node uses; these GPUs have at
    least the same share of its NICs. `one_nvlink_domain`: NVLink joins the GPUs of all nodes, so
    that a fabric "MNNVL+EFA" is NVLink to them. `one_machine`: the processors of one machine do the
    work of all nodes.
    """

    hardware: str
    nodes: int
    gpus_per_node: int
    slots_per_node: int
    fabric: str | None = None
    gpu_link_gb_s: float | None = None
    node_link_gb_s: float | None = None
    part_of_node: float | None = None
    one_nvlink_domain: bool = False
    one_machine: bool = False

    @property
    def ranks(self) -> int:
        return self.nodes * self.slots_per_node


def part_of(measurement: Measurement, setup: Setup) -> Setup:
    """Return the part of the cluster that the measurement is of: in the arm `intra` one node.

    One node uses its fabric in the arm `network` alone. Without MNNVL nodes have the rest of their
    fabric.
    """
    if arm_of(measurement) == INTRA:
        return replace(setup, nodes=1, fabric=None)
    if arm_of(measurement) == NO_MNNVL and setup.fabric:
        return replace(setup, fabric=setup.fabric.removeprefix(_MNNVL).removeprefix("+") or None)
    if setup.one_nvlink_domain and arm_of(measurement) != NETWORK:
        return replace(setup, fabric=_MNNVL)
    is_alone = setup.nodes == 1 and arm_of(measurement) != NETWORK
    return replace(setup, fabric=None) if is_alone and setup.fabric not in INSIDE_A_NODE else setup


def ranks_of(measurement: Measurement, setup: Setup) -> int:
    """Return the number of ranks that took part: as measured, else of the whole cluster."""
    ranks = measurement.conditions.get("ranks", setup.ranks)
    return int(ranks) if isinstance(ranks, int) else setup.ranks


def is_busbw(measurement: Measurement) -> bool:
    return (
        measurement.metric in ("busbw", "busbw_plateau") and "operation" in measurement.conditions
    )


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """The hardware that a node reports; "" and None for what it does not report.

    `gpu_clock_mhz` is the highest SM clock. `ids` are digests of its serials; nodes of one host
    share some. NVLink joins the GPUs of the nodes of one `nvlink_domain`.
    """

    gpu_model: str = ""
    gpu_clock_mhz: int | None = None
    cpu_model: str = ""
    driver: str = ""
    ids: frozenset[str] = frozenset()
    nvlink_domain: str = ""

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """Read an entry of `nodes` in run.json, where every value may be of any type."""
        clock = node.get("gpu_clock_mhz")
        names = "gpu_model", "cpu_model", "driver", "nvlink_domain"
        texts = {name: value for name in names if isinstance(value := node.get(name), str)}
        ids = listed if isinstance(listed := node.get("hardware_ids"), list | tuple) else ()
        own = frozenset(text for text in ids if isinstance(text, str))
        return cls(gpu_clock_mhz=clock if type(clock) is int else None, ids=own, **texts)

    @property
    def model(self) -> str:
        """The model of the GPUs, or of the processors on a node without GPUs."""
        return self.gpu_model or self.cpu_model

    def replaces(self, earlier: "NodeHardware") -> bool:
        """Return whether the model differs from the earlier one; False if one is unknown."""
        return bool(self.model and earlier.model) and self.model != earlier.model


Hardware = Mapping[str, NodeHardware]  # by node


def hardware_by_node(nodes: Iterable[Mapping[str, Any]]) -> Hardware:
    """Return hardware by node name, from `nodes` in run.json."""
    return {
        name: NodeHardware.of(node) for node in nodes if isinstance(name := node.get("name"), str)
    }


def joined_by_nvlink(setup: Setup, nodes: Collection[NodeHardware]) -> Setup:
    """Fill in whether NVLink joins all `nodes` of the setup, by what they report."""
    domains = {node.nvlink_domain for node in nodes}
    is_one = (
        (setup.fabric or "").startswith(_MNNVL) and len(nodes) == setup.nodes and len(domains) == 1
    )
    return replace(setup, one_nvlink_domain=is_one and "" not in domains)
