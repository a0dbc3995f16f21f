"""The faults of a simulated fleet: each lowers the numbers that a run really measures of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from seatrial.simulate.noise import Floats
from seatrial.simulate.rows import GPUS, Metric, node_name, of_cluster, of_gpus

if TYPE_CHECKING:
    from pandas import DataFrame

FACTS = {"model": "H100-SXM", "driver": "570.86", "clock": "1980"}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast")
RUN = (
    Metric("matmul", "TFLOP/s", 700.0, of_gpus, FACTS),
    Metric("memory_copy", "GB/s", 3000.0, of_gpus, FACTS),
    Metric("busbw_plateau", "GB/s", 450.0, conditions={"operation": "all_reduce", "arm": "intra", **FACTS}),
    Metric("tcp_egress", "MB/s", 5000.0, conditions=FACTS),
    Metric("tcp_ingress", "MB/s", 5000.0, conditions=FACTS),
    *(Metric("busbw_plateau", "GB/s", 380.0, of_cluster, {"operation": name}) for name in OPERATIONS),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """`left(night)` is the share of each series that is left (M), night 0 being the first of the fault.

    `culprit` is the node or GPU that may be named; "": the whole fleet is slower, without a culprit.
    """

    kind: str
    size: str
    left: Callable[[int], Floats]
    culprit: str
    facts: Mapping[str, str] = field(default_factory=dict)

    def names(self, suspect: str) -> bool:
        """Whether that is the culprit, its node, or a GPU of it."""
        return suspect in (self.culprit, self.culprit.partition("/")[0]) or suspect.partition("/")[0] == self.culprit


KINDS: Mapping[str, Mapping[str, float]] = {
    "slow node": {"5 %": 0.05, "10 %": 0.1, "20 %": 0.2},
    "slow GPU": {"5 %": 0.05, "10 %": 0.1, "20 %": 0.2},
    "slow NVLink": {"10 %": 0.1, "50 %": 0.5},
    "slow NIC": {"10 %": 0.1, "50 %": 0.5},
    "flaky node": {"15 %, every third night": 0.15},
    "slow decay": {"1 % per week": 0.01},
    "upgrade": {"6 %": 0.06, "15 %": 0.15},
}


def make(kind: str, size: str, series: "DataFrame", rng: np.random.Generator) -> Fault:
    """A fault of that kind and size (see KINDS) at a random place."""
    node, gpu = int(rng.integers(series["node"].max() + 1)), int(rng.integers(GPUS))
    own, wide = series["node"] == node, series["subject_kind"] == "cluster"
    on_nvlink, on_network = series["metric"] == "busbw_plateau", series["metric"].isin(["tcp_egress", "tcp_ingress"])
    hit = {
        "slow GPU": own & (series["part"] == gpu),
        "slow NVLink": own & on_nvlink,
        "slow NIC": own & on_network | wide,  # every rank of a sweep waits for the slowest
        "upgrade": on_nvlink,
    }.get(kind, own)
    loss, hits = KINDS[kind][size], hit.to_numpy()
    culprit = {"slow GPU": f"{node_name(node)}/gpu-{gpu}", "upgrade": ""}.get(kind, node_name(node))
    facts = {"driver": "580.65"} if kind == "upgrade" else {}
    return Fault(kind, size, lambda night: np.where(hits, 1 - loss * _course(kind, night), 1.0), culprit, facts)


def _course(kind: str, night: int) -> float:
    """The part of the loss on a night."""
    if kind == "slow decay":
        return (night + 1) / 7
    return float(night % 3 == 2) if kind == "flaky node" else 1.0
