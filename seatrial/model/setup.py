"""The facts of a cluster that reference numbers are looked up by."""

from dataclasses import dataclass, replace

from seatrial.model.arms import INTRA, arm_of
from seatrial.model.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Setup:
    """`slots_per_node` is MPI ranks per node; the link rates are GB/s (1e9 bytes), one direction, as in `Hardware`.

    `part_of_node` is how much of the hardware's usual GPUs a node uses: as much of its NICs is theirs for sure.
    """

    hardware: str
    nodes: int
    gpus_per_node: int
    slots_per_node: int
    fabric: str | None = None
    gpu_link_gb_s: float | None = None
    node_link_gb_s: float | None = None
    part_of_node: float | None = None

    @property
    def ranks(self) -> int:
        return self.nodes * self.slots_per_node


def part_of(measurement: Measurement, setup: Setup) -> Setup:
    """The part of the cluster that the measurement is of: in the arm `intra` one node, without a network."""
    return replace(setup, nodes=1, fabric=None) if arm_of(measurement) == INTRA else setup


def ranks_of(measurement: Measurement, setup: Setup) -> int:
    """The number of ranks that took part: as measured, else of the whole cluster."""
    ranks = measurement.conditions.get("ranks", setup.ranks)
    return int(ranks) if isinstance(ranks, int) else setup.ranks


def is_busbw(measurement: Measurement) -> bool:
    return measurement.metric in ("busbw", "busbw_plateau") and "operation" in measurement.conditions
