"""Fleets with a past: what their nodes are, and how much of the past the judge knows."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from seatrial.judge.baselines.same_machine import earlier_names
from seatrial.judge.fleet.grouped import Ints
from seatrial.judge.fleet.modes import find_modes, stays
from seatrial.judge.fleet.odds import Floats
from seatrial.model.node_hardware import NodeHardware
from seatrial.simulate.nights import Memory
from seatrial.simulate.noise import Draws, Noise

METRICS = 4  # per node; a fault lowers one of them
NIGHTS_BEFORE = 30
_SHARE_RENAMED = 4  # every nth node


@dataclass(frozen=True, slots=True)
class FleetKind:
    """A fleet of one model, or one of which a share of nodes is `older` (30 % slower in everything) or `oldest` (50 %).

    `known_by` is how the judge learns those nodes. `racks` share what nodes have in common, each on its own; 0:
    all do. A share `missing` of all earlier nights of a series was not measured. `renamed`: a quarter of the nodes have
    exchanged names since, and either their serials or the names alone tell which machine was which. `new_unit`: one of
    the metrics has another unit since, so its series begin anew.
    """

    noise: Noise = field(default_factory=Noise)
    older: float = 0.0
    oldest: float = 0.0
    racks: int = 0
    missing: float = 0.0
    known_by: Literal["facts", "numbers", "not"] = "not"
    renamed: Literal["serials", "names", "not"] = "not"
    new_unit: bool = False


KINDS = {
    "one model": FleetKind(),
    "two models, which the nodes tell": FleetKind(older=0.1, known_by="facts"),
    "two models, by their numbers": FleetKind(older=0.1, known_by="numbers"),
    "two models, compared as one": FleetKind(older=0.1),
    "three models, which the nodes tell": FleetKind(older=0.1, oldest=0.1, known_by="facts"),
    "a fifth of the earlier nights is missing": FleetKind(missing=0.2),
    "each of eight racks drifts by 0.5 %, for nights": FleetKind(Noise(common=0.005), racks=8),
    "a quarter of the nodes is renamed, known by serials": FleetKind(renamed="serials"),
    "a quarter of the nodes is renamed, without serials": FleetKind(renamed="names"),
    "one of four metrics has a new unit": FleetKind(new_unit=True),
}


def a_fleet(nodes: int, kind: FleetKind, rng: np.random.Generator) -> tuple[Draws, Memory]:
    """A fleet with a past: nights that passed, everything measured twice."""
    metric = np.repeat(np.arange(METRICS), nodes)
    everything = np.arange(nodes * METRICS)
    node = everything % nodes
    together = metric * kind.racks + node * kind.racks // nodes if kind.racks else metric
    draws, memory = Draws(nodes * METRICS, kind.noise, rng, together), Memory(metric)
    oldest = node >= (1 - kind.oldest) * nodes
    older = (node < kind.older * nodes) & ~oldest
    draws.level += np.log(0.7) * older + np.log(0.5) * oldest
    earlier = _earlier_columns(nodes, kind, rng)
    for _ in range(NIGHTS_BEFORE):
        _remember(draws, memory, kind, earlier)
    if kind.known_by == "facts":
        memory.group = memory.group + METRICS * older + 2 * METRICS * oldest
    elif kind.known_by == "numbers":
        memory.group = memory.group + METRICS * _slower(np.array(memory.first), memory.group)
    return draws, memory


def _remember(draws: Draws, memory: Memory, kind: FleetKind, earlier: Ints) -> None:
    """One night, as the judge reads it later: of the series that stood at `earlier` then."""
    night = draws.night()
    first, second = draws.measure(night)[earlier], draws.measure(night)[earlier]
    known = draws.rng.random(draws.series) >= kind.missing if kind.missing else np.ones(draws.series, dtype=np.bool_)
    if kind.new_unit:
        known &= memory.group > 0
    memory.keep(np.where(known, first, np.nan), (np.flatnonzero(known), second[known]), passed=True)


def _earlier_columns(nodes: int, kind: FleetKind, rng: np.random.Generator) -> Ints:
    """By series of tonight the machine whose past the judge takes for its own: that of its serials, or of its name.

    Draws number the machines, and tonight node-n is machine n.
    """
    machine = np.arange(nodes)
    if kind.renamed != "not":
        some = rng.choice(nodes, nodes // _SHARE_RENAMED, replace=False)
        machine[some] = machine[np.roll(some, 1)]
    then = {f"node-{name}": _hardware(m, kind) for name, m in enumerate(machine)}
    was = earlier_names({f"node-{m}": _hardware(m, kind) for m in range(nodes)}, then)
    names = [str(was.get(name, name)) for name in (f"node-{m}" for m in range(nodes))]
    columns = machine[[int(name.removeprefix("node-")) for name in names]]
    return np.concatenate([nodes * metric + columns for metric in range(METRICS)])


def _hardware(machine: int, kind: FleetKind) -> NodeHardware:
    return NodeHardware(ids=frozenset({f"board-{machine}"}) if kind.renamed == "serials" else frozenset())


def _slower(past: Floats, group: Ints) -> Ints:
    """1 for the series of the slow group of each metric, as the judge finds it; else 0."""
    slower = np.zeros(len(group), dtype=np.int64)
    for metric in range(METRICS):
        members = np.flatnonzero(group == metric)
        modes = find_modes(np.median(past[:, members], axis=0))
        if modes and stays(modes, past[:, members]):
            slower[members[modes.slow]] = 1
    return slower
