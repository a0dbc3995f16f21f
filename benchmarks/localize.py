"""How well slow parts are localized: print what docs/localization.md has in short.

    python benchmarks/localize.py [--nodes 8 32 232 ...] [--noise 1 3 5] [--kinds node ...]
                                   [--methods seatrial ...] [--trials 100] [--seed S]

A simulated fleet with known faults is measured in the rounds of `seatrial.localize`, and beside it
by the algorithms of others, each with the threshold that suits these faults best: all pairs
(superbenchmark's pair-wise pattern), pairs with a second pass (cluster-health-scanner), and groups
by topology with bisection (Cluster Readiness Engine).
"""

import argparse
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import fmean, median

from seatrial.localize import Budget, Group, plan, start, update
from seatrial.localize.criticism import NAMED

KINDS = ("node", "gpu", "link", "rail", "cut")
GPUS = tuple(str(i) for i in range(8))
MINUTES = 4.0  # for a round: 28 minutes for 7 rounds is what the Cluster Readiness Engine estimates
THRESHOLD = 0.91  # of the healthy speed, for those who judge by one
STRAYS = 0.01

Part = tuple[str, str]  # kind and name


@dataclass
class Fleet:
    """Nodes with faults; a test is as slow as the worst part that it goes over."""

    nodes: int
    noise: float
    random: random.Random
    faults: dict[Part, float] = field(default_factory=dict)
    sides: dict[str, set[str]] = field(default_factory=dict)  # of cuts
    tests: int = 0

    @property
    def names(self) -> list[str]:
        return [f"n{i:04d}" for i in range(self.nodes)]

    def measure(self, group: Group) -> float:
        self.tests += 1
        speed = min(
            (share for part, share in self.faults.items() if self._goes_over(group, *part)),
            default=1.0,
        )
        stray = self.random.uniform(0.4, 0.9) if self.random.random() < STRAYS else 1.0
        return 100 * speed * stray * math.exp(self.random.gauss(0, self.noise))

    def _goes_over(self, group: Group, kind: str, name: str) -> bool:
        match kind:
            case "node":
                return name in group.nodes
            case "gpu":
                node, _, gpu = name.partition("/")
                return node in group.nodes and gpu in group.gpus
            case "rail":
                return name in group.gpus
            case "link":
                a, _, b = name.partition("--")
                ring = (*group.nodes, group.nodes[0])
                return (
                    a in ring and b in ring and any({a, b} == set(pair) for pair in pairwise(ring))
                )
        return 0 < len(self.sides[name].intersection(group.nodes)) < len(group.nodes)


def broken(kind: str, faults: int, nodes: int, noise: float, seed: int) -> Fleet:
    """A fleet with so many faults of a kind, each of 15 to 60 %."""
    drawn = random.Random(f"{kind} {faults} {nodes} {noise} {seed}")
    fleet = Fleet(nodes, noise, drawn)
    names = fleet.names
    share = partial(drawn.uniform, 0.4, 0.85)
    match kind:
        case "node":
            parts = drawn.sample(names, faults)
        case "gpu":
            parts = [f"{node}/{drawn.choice(GPUS)}" for node in drawn.sample(names, faults)]
        case "rail":
            parts = drawn.sample(GPUS, faults)
        case "link":  # those that the collective went over which was slow
            firsts = drawn.sample(range(nodes), faults)
            parts = ["--".join(sorted((names[i], names[(i + 1) % nodes]))) for i in firsts]
        case _:  # a part of the nodes, in no order
            parts = []
            for _cut in range(faults):
                side = drawn.sample(names, drawn.randint(2, nodes // 2))
                parts.append(" ".join(sorted(side)))
                fleet.sides[parts[-1]] = set(side)
    fleet.faults = {(kind, part): share() for part in parts}
    return fleet


@dataclass
class Outcome:
    """The parts that are named, with confidences; rounds and tests that it took; seconds of
    planning.
    """

    named: dict[Part, float]
    rounds: int
    tests: int
    slowest_s: float = 0.0


def ours(fleet: Fleet, rounds: int = 5, groups: int = 2048) -> Outcome:
    state, budget, slowest = start(fleet.names, GPUS), Budget(rounds, groups), 0.0
    while True:
        began = time.process_time()
        chosen = plan(state, budget)
        slowest = max(slowest, time.process_time() - began)
        if not chosen:
            break
        results = [group.result("all_reduce", {1 << 30: fleet.measure(group)}) for group in chosen]
        began = time.process_time()
        state = update(state, results)
        slowest = max(slowest, time.process_time() - began)
    named: dict[Part, float] = {}
    for finding in state.localization.findings:
        name = " ".join(finding.sides[0]) if finding.kind == "cut" else finding.cause.name
        named[finding.cause.kind, name] = finding.confidence
    return Outcome(named, state.rounds, fleet.tests, slowest)


def _nodes(names: Sequence[str]) -> dict[Part, float]:
    return {("node", name): 1.0 for name in names}


def all_pairs(fleet: Fleet) -> Outcome:
    """A round-robin tournament; a node is bad whose mean is below the threshold."""
    names, values = fleet.names, defaultdict[str, list[float]](list)
    rounds = len(names) - 1 if len(names) % 2 == 0 else len(names)
    for turn in range(rounds):
        circle = [names[0], *(names[1:][turn:] + names[1:][:turn])]
        for a, b in zip(circle[: len(circle) // 2], reversed(circle), strict=False):
            value = fleet.measure(Group((a, b), GPUS))
            values[a].append(value)
            values[b].append(value)
    usual = median(value for each in values.values() for value in each)
    return Outcome(
        _nodes([n for n, each in values.items() if fmean(each) < THRESHOLD * usual]),
        rounds,
        fleet.tests,
    )


def two_passes(fleet: Fleet) -> Outcome:
    """Random pairs, then each node of a slow pair with one that passed; a node is bad that was slow
    twice.
    """
    names = fleet.names
    fleet.random.shuffle(names)
    pairs = list(zip(names[::2], names[1::2], strict=False))
    value = {pair: fleet.measure(Group(pair, GPUS)) for pair in pairs}
    usual = median(value.values())
    passed = [node for pair in pairs if value[pair] >= THRESHOLD * usual for node in pair]
    suspects = [node for pair in pairs if value[pair] < THRESHOLD * usual for node in pair]
    if not passed:
        return Outcome({}, 1, fleet.tests)
    bad = [
        node
        for node in suspects
        if fleet.measure(Group((node, fleet.random.choice(passed)), GPUS)) < THRESHOLD * usual
    ]
    return Outcome(_nodes(bad), 1 + bool(suspects), fleet.tests)


def bisection(fleet: Fleet) -> Outcome:
    """Groups of about the square root, twice, and one of each good group together; bad ones by
    halves, then pairs.
    """
    names, size = fleet.names, math.isqrt(fleet.nodes - 1) + 1
    groups = [names[i : i + size] for i in range(0, len(names), size)]
    is_bad = partial(_is_bad, fleet)
    failing = [group for group in groups if is_bad(group)]
    for group in groups:  # with MNNVL off
        is_bad(group)
    good = [node for group in groups if group not in failing for node in group]
    is_bad([group[0] for group in groups if group not in failing])
    rounds, pairs, infrastructure = 3, list[list[str]](), 0
    while failing:
        rounds += 1
        halves = [half for group in failing if len(group) > 2 for half in (group[::2], group[1::2])]
        pairs += [group for group in failing if len(group) <= 2]
        failing = []
        for first, second in zip(halves[::2], halves[1::2], strict=True):
            bad = [half for half in (first, second) if is_bad(half)]
            good += [node for half in (first, second) if half not in bad for node in half]
            infrastructure += not bad
            failing += bad
    suspects = [node for pair in pairs for node in pair]
    bad_nodes = [node for node in suspects if good and is_bad([node, fleet.random.choice(good)])]
    named = _nodes(bad_nodes)
    if infrastructure:
        named["infrastructure", ""] = 1.0
    return Outcome(named, rounds + bool(suspects), fleet.tests)


def _is_bad(fleet: Fleet, group: Sequence[str]) -> bool:
    return len(group) > 1 and fleet.measure(Group(tuple(group), GPUS)) < THRESHOLD * 100


METHODS: dict[str, Callable[[Fleet], Outcome]] = {
    "seatrial": ours, "all pairs": all_pairs, "two passes": two_passes, "bisection": bisection,
}  # fmt: skip


@dataclass
class Score:
    """Sums over trials of one method in one case."""

    detected: int = 0
    faults: int = 0
    false: int = 0
    trials: int = 0
    rounds: list[int] = field(default_factory=list)
    tests: list[int] = field(default_factory=list)
    slowest_s: float = 0.0
    confidences: list[tuple[float, bool]] = field(default_factory=list)

    def add(self, fleet: Fleet, outcome: Outcome) -> None:
        truth = {_same(part, fleet) for part in fleet.faults}
        named = {_same(part, fleet): confidence for part, confidence in outcome.named.items()}
        sure = {part for part, confidence in named.items() if confidence >= NAMED}
        self.detected += len(truth & sure)
        self.faults += len(truth)
        self.false += bool({part for part in sure - truth if not _holds(part, truth)})
        self.trials += 1
        self.rounds.append(outcome.rounds)
        self.tests.append(outcome.tests)
        self.slowest_s = max(self.slowest_s, outcome.slowest_s)
        self.confidences += [(confidence, part in truth) for part, confidence in named.items()]


def _same(part: Part, fleet: Fleet) -> Part:
    """A cut by either of its sides."""
    kind, name = part
    if kind != "cut":
        return part
    side = set(name.split())
    shorter = min(
        sorted(side), sorted(set(fleet.names) - side), key=lambda names: (len(names), names)
    )
    return kind, " ".join(shorter)


def _holds(part: Part, truth: set[Part]) -> bool:
    """Whether it is the node of a bad GPU: not false, only coarse."""
    return part[0] == "node" and any(
        name.partition("/")[0] == part[1] for kind, name in truth if kind == "gpu"
    )


@dataclass(frozen=True)
class Case:
    method: str
    kind: str
    faults: int
    nodes: int
    noise: float

    def seeds(self, trials: int) -> int:
        return (
            max(3, min(trials, trials * 300 // self.nodes))
            if self.method != "all pairs"
            else max(2, trials // 10)
        )


def scored(case: Case, trials: int, seed: int) -> Score:
    score = Score()
    for i in range(case.seeds(trials)):
        fleet = broken(case.kind, case.faults, case.nodes, case.noise, seed + i)
        score.add(fleet, METHODS[case.method](fleet))
    return score


def cases(
    nodes: Sequence[int], noise: Sequence[float], kinds: Sequence[str], methods: Sequence[str]
) -> Iterator[Case]:
    for method in methods:
        for n in nodes:
            if method == "all pairs" and n > 232:
                continue
            for sigma in noise:
                yield Case(method, "node", 0, n, sigma)
                for kind in kinds:
                    most = {"cut": 1, "rail": 3}.get(kind, 5)
                    yield from (
                        Case(method, kind, k, n, sigma)
                        for k in (1, 2, 3, 5)
                        if k <= min(most, n // 4)
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[8, 32, 232, 1024, 4096])
    parser.add_argument("--noise", type=float, nargs="*", default=[1, 3, 5])
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    todo = list(cases(asked.nodes, [n / 100 for n in asked.noise], asked.kinds, asked.methods))
    with ProcessPoolExecutor(2) as pool:
        scores = pool.map(partial(scored, trials=asked.trials, seed=asked.seed), todo)
        print(
            "| nodes | noise | faults | by | found | false blame | rounds | tests | "
            "minutes | right, sure | planning |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        for case, score in zip(todo, scores, strict=True):
            print(_row(case, score), flush=True)


def _row(case: Case, score: Score) -> str:
    sure = [right for confidence, right in score.confidences if confidence >= NAMED]
    cells = [
        f"{case.nodes:,}",
        f"{100 * case.noise:.0f} %",
        f"{case.faults} {case.kind}" if case.faults else "none",
        case.method,
        f"{score.detected} of {score.faults}" if score.faults else "–",
        f"{score.false} of {score.trials}",
        f"{fmean(score.rounds):.1f}, at most {max(score.rounds)}",
        f"{fmean(score.tests):,.0f}",
        f"{MINUTES * fmean(score.rounds):.0f}",
        f"{sum(sure)} of {len(sure)}" if sure else "–",
        f"{score.slowest_s:.2f} s" if score.slowest_s else "–",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
