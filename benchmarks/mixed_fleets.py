"""Fleets with a fault, and the tests of them as real clusters leave them.

Fleets of 8 to 24 nodes with 8 GPUs, written without a look at the model: one, two or five
operations, of which the fault slows some; pairs on all GPUs, halves, single GPUs or four at random,
beside groups of four and of all nodes; repeats, nights, sizes; noise of 0.3 to 5 %, 1 % of strays.
A fault slows by 6 to 65 %, each fourth one only 30 to 100 % of its tests.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from seatrial.localize import GroupTest

GPUS = tuple(f"0000:{bus}:00" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
HALVES = (GPUS[:4], GPUS[4:])
OPERATIONS = ("all_reduce", "alltoall", "sendrecv", "all_gather", "reduce_scatter")
KINDS = ("node", "gpu", "link", "leaf", "cut", "groups", "socket", "none")
NIGHTS = ("2026-05-11", "2026-05-14", "2026-06-12")
MOST_SLOWDOWN = 0.65
STRAYS = 0.01
STRAY_SPEEDS = (0.4, 0.9)
SIZES = ((30,), (28, 29, 30), (20, 22, 24, 26, 28, 30))  # powers of two


@dataclass(frozen=True)
class Fault:
    """What is slow: the GPUs of nodes, all that goes between groups of nodes, or two nodes with
    each other.
    """

    kind: str
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = GPUS
    groups: tuple[tuple[str, ...], ...] = ()

    def slows(self, nodes: Sequence[str], gpus: Sequence[str]) -> bool:
        if self.groups:
            return sum(not set(group).isdisjoint(nodes) for group in self.groups) > 1
        if self.kind == "link":
            return set(nodes) == set(self.nodes)
        return not set(self.nodes).isdisjoint(nodes) and not set(self.gpus).isdisjoint(gpus)


@dataclass(frozen=True)
class Fleet:
    """Tests with the fault behind them, and the share of its tests that the fault slows.

    `level` is the healthy speed by operation (`healthy_speed`), `noise` what it scatters by on
    logs.
    """

    fault: Fault
    penetrance: float
    style: str
    level: dict[str, float]
    noise: float
    tests: list[GroupTest]


def fault_of(kind: str, nodes: Sequence[str], drawn: random.Random) -> Fault:
    some = {
        "node": 1,
        "gpu": 1,
        "link": 2,
        "leaf": drawn.choice((3, 4, 8)),
        "socket": drawn.choice((1, 1, 2, 3)),
    }
    if kind in ("cut", "groups"):
        order = drawn.sample(nodes, len(nodes))
        size = drawn.randint(3, len(nodes) // 2) if kind == "cut" else drawn.choice((3, 4))
        starts = [0, size] if kind == "cut" else [*range(0, len(nodes) - 1, size)]
        ends = [*starts[1:], len(nodes)]
        return Fault(
            kind, groups=tuple(tuple(sorted(order[a:b])) for a, b in zip(starts, ends, strict=True))
        )
    chosen = tuple(sorted(drawn.sample(nodes, min(some.get(kind, 0), len(nodes) // 2))))
    gpus = (
        (drawn.choice(GPUS),)
        if kind in ("gpu", "leaf")
        else drawn.choice(HALVES)
        if kind == "socket"
        else GPUS
    )
    return Fault(kind, chosen, gpus)


def fleet_of(seed: int) -> Fleet:
    drawn = random.Random(f"mixed {seed}")
    kind = KINDS[seed % len(KINDS)]
    nodes = [f"n{i:03d}" for i in range(drawn.choice((8, 10, 12, 16, 20, 24)))]
    fault = fault_of(kind, nodes, drawn)
    operations = drawn.sample(OPERATIONS, drawn.choice((1, 2, 5)))
    slowed = drawn.sample(operations, drawn.randint(1, len(operations)))
    style = drawn.choice(("halves", "halves", "mixed", "single", "four"))
    noise = math.exp(drawn.uniform(math.log(0.003), math.log(0.05)))
    penetrance = drawn.choice((1, 1, 1, drawn.uniform(0.3, 1)))
    slowdown = drawn.uniform(least_slowdown(noise), MOST_SLOWDOWN)
    level = {operation: drawn.uniform(20, 300) for operation in operations}
    sizes, nights = drawn.choice(SIZES), drawn.sample(NIGHTS, drawn.choice((1, 1, 2, 3)))
    tests = []
    for number, group in enumerate(groups_of(nodes, drawn)):
        gpus, night = gpus_of(style, drawn), drawn.choice(nights)
        shows, stray = drawn.random() < penetrance, drawn.random() < STRAYS
        for operation in operations:
            speed = healthy_speed(level[operation], group, gpus) * math.exp(drawn.gauss(0, noise))
            if shows and operation in slowed and fault.slows(group, gpus):
                speed *= (1 - slowdown) * math.exp(drawn.gauss(0, noise))
            speed *= drawn.uniform(*STRAY_SPEEDS) if stray else 1
            rates = {1 << power: speed * share_at(power) for power in sizes}
            ends = (gpus,) * len(group)
            tests.append(
                GroupTest(f"{number} {operation}", operation, group, rates, ends, day=night)
            )
    return Fleet(fault, penetrance, style, level, noise, tests)


def least_slowdown(noise: float) -> float:
    return max(0.06, 4 * noise)


def healthy_speed(level: float, nodes: Sequence[str], gpus: Sequence[str]) -> float:
    of_nodes: float = len(nodes) ** -0.1
    return level * math.sqrt(len(gpus)) * of_nodes


def share_at(power: int) -> float:
    """The share of its speed that an operation has with messages of 2 ** `power` bytes."""
    return 1 - 2.0 ** (18 - power)


def groups_of(nodes: Sequence[str], drawn: random.Random) -> list[tuple[str, ...]]:
    pairs = list(combinations(nodes, 2))
    drawn.shuffle(pairs)
    groups: list[tuple[str, ...]] = [
        *pairs[: max(3 * len(nodes), int(len(pairs) * drawn.uniform(0.4, 1)))]
    ]
    if drawn.random() < 0.3:
        groups += drawn.sample(groups, len(groups) // 4)
    if drawn.random() < 0.3:
        groups += [tuple(drawn.sample(nodes, 4)) for _ in nodes]
    if drawn.random() < 0.3:
        groups += [tuple(nodes)] * drawn.randint(1, 3)
    return groups


def gpus_of(style: str, drawn: random.Random) -> tuple[str, ...]:
    single = (drawn.choice(GPUS),)
    match style:
        case "halves":
            return drawn.choice(HALVES)
        case "single":
            return single
        case "mixed":
            return drawn.choice((GPUS, *HALVES, single))
    return tuple(sorted(drawn.sample(GPUS, 4)))
