"""What can go wrong in the simulated fleet, and where: each fault lowers some series by some loss on some nights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from seatrial.judge.fleet.grouped import Bools, Ints
from seatrial.judge.fleet.odds import Floats

GPUS = 8


@dataclass(frozen=True, slots=True)
class FleetLayout:
    """The series of a fleet: matmul of each GPU, memory and NVLink of each node, busbw of each link of a ring.

    `group` numbers these four metrics; `node` is the node of each series, for a link the one it leaves.
    """

    nodes: int
    group: Ints = field(init=False)
    node: Ints = field(init=False)

    def __post_init__(self) -> None:
        every = np.arange(self.nodes)
        object.__setattr__(self, "group", np.repeat([0, 1, 2, 3], [GPUS * self.nodes, *[self.nodes] * 3]))
        object.__setattr__(self, "node", np.concatenate([np.repeat(every, GPUS), every, every, every]))

    def gpu(self, node: int, gpu: int) -> int:
        return node * GPUS + gpu

    def gpus(self, node: int) -> slice:
        return slice(node * GPUS, (node + 1) * GPUS)

    def link(self, node: int) -> int:
        """From `node` to the next of the ring."""
        return (GPUS + 2) * self.nodes + node

    def links(self, node: int) -> list[int]:
        return [self.link((node - 1) % self.nodes), self.link(node)]


@dataclass(frozen=True, slots=True)
class Fault:
    """`loss(night)` (M) is what it costs on logs, night 0 being the first of the fault; `culprits` may be blamed."""

    kind: str
    size: str
    loss: Callable[[int], Floats]
    culprits: Bools
    software: int = 0


KINDS: Mapping[str, tuple[str, ...]] = {
    "slow node": ("5 %", "10 %", "20 %"),
    "slow GPU": ("5 %", "10 %", "20 %"),
    "slow link": ("5 %", "10 %", "50 %"),
    "flaky node": ("15 %, every third",),
    "7 of 8 GPUs": ("one GPU's share",),
    "TCP fallback": ("a tenth is left",),
    "slow decay": ("1 % per week",),
    "upgrade": ("6 %", "15 %"),
}


def make(kind: str, size: str, layout: FleetLayout, rng: np.random.Generator) -> Fault:
    """A fault of that kind and size (see KINDS)."""
    node, share = int(rng.integers(layout.nodes)), _percent(size)
    series = layout.group.size
    hit = np.zeros(series, dtype=bool)
    own = np.flatnonzero(layout.node == node)
    if kind in ("slow node", "flaky node", "slow decay"):
        hit[own] = True
        hit[layout.links(node)] = True
    elif kind == "slow GPU":
        hit[layout.gpu(node, int(rng.integers(GPUS)))] = True
    elif kind in ("slow link", "TCP fallback"):
        hit[layout.link(node)] = True
    elif kind == "7 of 8 GPUs":
        hit[(layout.group == 2) & (layout.node == node)] = True
    elif kind == "upgrade":
        hit[layout.group == 3] = True
    lost = {"TCP fallback": np.log(10), "7 of 8 GPUs": -np.log(7 / 8)}.get(kind, -np.log(1 - share))
    culprits = hit if kind != "upgrade" else np.zeros(series, dtype=bool)
    return Fault(kind, size, lambda night: hit * lost * _course(kind, night), culprits, int(kind == "upgrade"))


def _course(kind: str, night: int) -> float:
    """How much of the loss there is on a night."""
    if kind == "slow decay":
        return (night + 1) / 7
    return float(night % 3 == 2) if kind == "flaky node" else 1.0


def _percent(size: str) -> float:
    first = size.split(" ", 1)[0]
    return int(first) / 100 if first.isdigit() else 0.0
