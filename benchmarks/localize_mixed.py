"""How well a fault is localized in logs as real clusters leave them: print a table of what is named
for it.

    python benchmarks/localize_mixed.py [--fleets 270] [--first 0] [--show another]

Fleets of 8 to 24 nodes with 8 GPUs, written without a look at the model: one, two or five
operations, of which the fault slows some; pairs on all GPUs, halves, single GPUs or four at random,
beside groups of four and of all nodes; repeats, nights, sizes; noise of 0.3 to 5 %, 1 % of strays.
A fault slows by 6 to 65 %, each fourth one only 30 to 100 % of its tests.
"""

import argparse
import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from seatrial.localize import Finding, GroupTest, localize

GPUS = tuple(f"0000:{bus}:00" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
HALVES = (GPUS[:4], GPUS[4:])
OPERATIONS = ("all_reduce", "alltoall", "sendrecv", "all_gather", "reduce_scatter")
KINDS = ("node", "gpu", "link", "leaf", "cut", "groups", "socket", "none")
NIGHTS = ("2026-05-11", "2026-05-14", "2026-06-12")
SIZES = ((30,), (28, 29, 30), (20, 22, 24, 26, 28, 30))  # powers of two
OUTCOMES = ("right", "a part", "cannot tell", "nothing", "another")


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
    """Tests with the fault behind them, and the share of its tests that the fault slows."""

    fault: Fault
    penetrance: float
    style: str
    operations: int
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
    slowdown = drawn.uniform(max(0.06, 4 * noise), 0.65)
    level = {operation: drawn.uniform(20, 300) for operation in operations}
    sizes, nights = drawn.choice(SIZES), drawn.sample(NIGHTS, drawn.choice((1, 1, 2, 3)))
    tests = []
    for number, group in enumerate(groups_of(nodes, drawn)):
        gpus, night = gpus_of(style, drawn), drawn.choice(nights)
        shows, stray = drawn.random() < penetrance, drawn.random() < 0.01
        for operation in operations:
            speed = (
                level[operation]
                * len(gpus) ** 0.5
                * len(group) ** -0.1
                * math.exp(drawn.gauss(0, noise))
            )
            if shows and operation in slowed and fault.slows(group, gpus):
                speed *= (1 - slowdown) * math.exp(drawn.gauss(0, noise))
            speed *= drawn.uniform(0.4, 0.9) if stray else 1
            rates = {1 << power: speed * (1 - 2.0 ** (18 - power)) for power in sizes}
            ends = (gpus,) * len(group)
            tests.append(
                GroupTest(f"{number} {operation}", operation, group, rates, ends, day=night)
            )
    return Fleet(fault, penetrance, style, len(operations), tests)


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


def is_right(finding: Finding, fleet: Fleet) -> bool:
    """Whether what is named is the fault, or slows the same tests on the same nodes."""
    fault, unsure = fleet.fault, set(finding.unsure)
    if fault.groups:
        sides = [set(side) - unsure for side in finding.sides]
        groups = [sure for group in fault.groups if (sure := set(group) - unsure)]
        return (
            finding.kind == "cut"
            and len(sides) == len(groups) > 1
            and all(group in sides for group in groups)
        )
    if finding.kind in ("cut", "placement") or (finding.kind == "link") != (fault.kind == "link"):
        return False
    if not set(finding.nodes) <= set(fault.nodes) or not set(fault.nodes) <= {
        *finding.nodes,
        *unsure,
    }:
        return False
    return touched(finding, finding.nodes, fleet) == touched(fault, finding.nodes, fleet)


def is_a_part(finding: Finding, fleet: Fleet) -> bool:
    """Whether what is named is on nodes with the fault, and its GPUs are those, or never were
    tested without these.
    """
    fault = fleet.fault
    inside = (
        len(finding.nodes) > 0
        and set(finding.nodes) <= set(fault.nodes)
        and finding.kind not in ("cut", "link")
    )
    return inside and touched(finding, finding.nodes, fleet) <= touched(fault, finding.nodes, fleet)


def touched(part: "Finding | Fault", nodes: Sequence[str], fleet: Fleet) -> set[int]:
    """The tests with the GPUs of a part on these nodes."""
    gpus = set(part.gpus if isinstance(part, Fault) else part.cause.gpus or GPUS)
    of_nodes = (i for i, test in enumerate(fleet.tests) if not set(nodes).isdisjoint(test.nodes))
    return {i for i in of_nodes if not gpus.isdisjoint(fleet.tests[i].gpus[0])}


def outcome_of(fleet: Fleet, findings: Sequence[Finding], passed: bool) -> str:
    named = [finding for finding in findings if finding.named]
    open_ = {node for finding in findings if not finding.named for node in finding.nodes}
    named = [
        replace(f, unsure=(*f.unsure, *sorted(open_))) if f.kind == "cut" else f for f in named
    ]
    right = [is_right(finding, fleet) for finding in named]
    if fleet.fault.kind == "none" and not named:
        return "right" if passed else "cannot tell"
    if not named:
        return "nothing" if passed else "cannot tell"
    if all(right):
        return "right"
    parts = [is_a_part(finding, fleet) for finding in named]
    return "a part" if all(a or b for a, b in zip(right, parts, strict=True)) else "another"


def rows_of(fleet: Fleet) -> list[str]:
    """The rows of the table that a fleet counts in."""
    rows = [fleet.fault.kind, "all"]
    if fleet.fault.kind != "none":
        rows += [
            f"{fleet.operations} operations",
            "intermittent" if fleet.penetrance < 1 else "always",
        ]
        rows += ["halves"] if fleet.style == "halves" else []
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=270)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", nargs="*", default=[], choices=OUTCOMES)
    wanted = parser.parse_args()
    table, blamed = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for seed in range(wanted.first, wanted.first + wanted.fleets):
        fleet = fleet_of(seed)
        localization = localize(fleet.tests)
        outcome = outcome_of(fleet, localization.findings, localization.verdict.value == "pass")
        healthy = {
            n
            for f in localization.findings
            if f.named and f.kind not in ("cut", "leaf")
            for n in f.nodes
        }
        for row in rows_of(fleet):
            table[row][outcome] += 1
            blamed[row] += not healthy <= set(fleet.fault.nodes)
        if outcome in wanted.show:
            print(
                f"{seed} {outcome}: {fleet.fault} {fleet.style} {fleet.penetrance:.2f}\n  "
                f"{localization.reason}"
            )
    print(f"| fault | fleets | {' | '.join(OUTCOMES)} | healthy nodes blamed |")
    print("|---" * (len(OUTCOMES) + 3) + "|")
    for row, counts in table.items():
        cells = [str(counts[outcome]) for outcome in OUTCOMES]
        print(f"| {row} | {counts.total()} | {' | '.join(cells)} | {blamed[row]} |")


if __name__ == "__main__":
    main()
