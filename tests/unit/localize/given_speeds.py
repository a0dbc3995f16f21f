"""Tests of groups of nodes whose speeds are given."""

import random
from collections.abc import Callable, Sequence

from seatrial.localize import GroupTest, Localization
from tests.unit.localize.written_logs import ADDRESSES

FIVE = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
LEVELS = dict(zip(FIVE, (360, 350, 352, 40, 15), strict=True))
# Of operation, nodes, GPUs, size
Speed = Callable[[str, Sequence[str], Sequence[Sequence[str]], int], float]


def nodes(count: int) -> list[str]:
    return [f"n{i:02d}" for i in range(count)]


def group_tests(
    groups: Sequence[Sequence[str]],
    speed: Speed,
    operations: Sequence[str] = ("all_reduce",),
    gpus: Callable[[random.Random], Sequence[str]] = lambda _: ADDRESSES,
    noise: float = 0.01,
    seed: int = 0,
) -> list[GroupTest]:
    drawn = random.Random(seed)
    tests = []
    for number, group in enumerate(groups):
        ends = (tuple(gpus(drawn)),) * len(group)
        for operation in operations:
            level = LEVELS[operation] * drawn.lognormvariate(0, noise)
            rates = {
                1 << power: level * speed(operation, group, ends, 1 << power)
                for power in range(24, 33)
            }
            tests.append(GroupTest(f"{number} {operation}", operation, tuple(group), rates, ends))
    return tests


def taking(gpus: Sequence[str]) -> Callable[[random.Random], Sequence[str]]:
    return lambda _: gpus


def named(localization: Localization) -> list[tuple[str, str]]:
    return sorted(
        (finding.cause.kind, finding.cause.name)
        for finding in localization.findings
        if finding.named
    )
