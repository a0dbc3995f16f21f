"""Rounds of tests of disjoint groups, each planned from what the rounds before it have shown. Pure.

The first two rounds are the pairs of a ring over all nodes in the order of their ranks: between them they have every
node twice and every link of the ring that a collective of all nodes goes over. Later rounds pair what is doubtful with
nodes that were fine, each time with others (adaptive group testing with confirmation), repeat doubtful links, take
doubtful nodes apart by their GPUs, and pair all other nodes at random, which shows cuts, or on single rails.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from seatrial.localize.findings import Localization, localize, unsettled
from seatrial.localize.observations import GroupTest

_CONFIRMED = 3  # slow tests of a node or link
_WIDESPREAD = 0.25  # of the nodes in doubt: a pattern over the fleet, which pairs at random show best
_PAIRS_FOR_A_CUT = 2  # for each node, so that its side is sure


@dataclass(frozen=True, slots=True)
class Budget:
    """How many rounds there may be, and how many groups at once."""

    rounds: int = 5
    groups: int = 2048


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are tested together, in the order of their ranks; `gpus`: those of each node that take part."""

    nodes: tuple[str, ...]
    gpus: tuple[str, ...] = ()

    def result(self, collective: str, busbw_gb_s: Mapping[int, float]) -> GroupTest:
        """The test of this group; without busbw it failed."""
        return GroupTest("--".join(self.nodes), collective, self.nodes, busbw_gb_s, (self.gpus,) * len(self.nodes))


@dataclass(frozen=True, slots=True)
class State:
    """What is known after some rounds. `gpus` are the names of the GPUs that every node has."""

    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    groups: Mapping[str, frozenset[str]]
    tests: tuple[GroupTest, ...]
    rounds: int
    found: Localization


def start(nodes: Sequence[str], gpus: Sequence[str] = (), groups: Mapping[str, frozenset[str]] | None = None) -> State:
    """The state before the first round; `nodes` in the order of their ranks in the collective that was slow."""
    return State(tuple(nodes), tuple(gpus), groups or {}, (), 0, localize(()))


def update(state: State, results: Iterable[GroupTest]) -> State:
    """The state after the results of a round."""
    tests = (*state.tests, *results)
    return replace(state, tests=tests, rounds=state.rounds + 1, found=localize(tests, state.groups))


def verdict(state: State) -> Localization:
    return state.found


def plan(state: State, budget: Budget) -> list[Group]:
    """The groups of the next round, no two with a GPU in common; none once it is settled or the budget is spent."""
    if state.rounds >= budget.rounds or len(state.nodes) < 2:
        return []
    planned = _Round(state)
    planned.doubts()
    if state.rounds > 1 and planned.settled():
        return []
    if state.rounds < 2:
        planned.ring(max(2, -(-len(state.nodes) // budget.groups)))
    else:
        planned.at_random(budget.groups)
    return planned.chosen


class _Round:
    """The groups chosen so far, and the nodes that are still free."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.chosen: list[Group] = []
        self.free = dict.fromkeys(state.nodes)
        self.fine: set[str] = set()  # nodes with a fine test
        self.met: set[frozenset[str]] = set()  # pairs that have been tested
        self.random = random.Random(state.rounds)
        observed = state.found.posterior.observed
        for test, is_fine in zip(observed.tests, observed.fine, strict=True):
            self.fine.update(test.nodes if is_fine else ())
            if len(test.nodes) == 2:
                self.met.add(frozenset(test.nodes))

    def settled(self) -> bool:
        """Whether causes are named, none is in doubt, and each has been confirmed."""
        found = self.state.found
        pairs = sum(len(test.nodes) == 2 for test in self.state.tests)
        is_cut = any(finding.kind == "cut" for finding in found.findings)
        enough = not is_cut or pairs >= _PAIRS_FOR_A_CUT * len(self.state.nodes)
        return bool(found.findings) and not self.chosen and found.next_test is None and enough

    def doubts(self) -> None:
        """Groups for the nodes of doubtful tests and findings, unless doubts are all over the fleet."""
        posterior = self.state.found.posterior
        odd = [self.state.tests[i] for i in np.flatnonzero(unsettled(posterior))]
        nodes = [node for test in odd if len(test.nodes) == 2 for node in test.nodes]
        if len(set(nodes)) > _WIDESPREAD * len(self.state.nodes):
            return
        self._confirm()
        for test in odd:
            new = [node for node in test.nodes if node not in self.fine]
            if new or len(test.nodes) > 2:
                self._apart(test, new)
            else:
                self._add(test.nodes, test.gpus[0] if test.gpus else self.state.gpus)

    def _apart(self, test: GroupTest, new: Sequence[str]) -> None:
        """Each node that was not fine yet with one that was; else the untested links of the group."""
        for node in new:
            self._with_a_fine_one(node)
        if not new:
            for pair in pairwise((*test.nodes, test.nodes[0])):
                if frozenset(pair) not in self.met:
                    self._add(pair, self.state.gpus)

    def _confirm(self) -> None:
        """Parts that were slow in few tests once more, nodes with others and taken apart by their GPUs."""
        found = self.state.found
        observed = found.posterior.observed
        for finding in found.findings:
            tests = found.posterior.tests_of(finding.cause)
            if finding.cause.kind == "link" and observed.bad[tests].sum() < _CONFIRMED:
                self._add(finding.cause.nodes, self.state.gpus)
            if finding.cause.kind in ("node", "gpu") and len(finding.cause.nodes) == 1:
                (node,) = finding.cause.nodes
                with_it = [test for test in self.state.tests if node in test.nodes]
                apart = any(len(test.gpus[0]) < len(self.state.gpus) for test in with_it if test.gpus)
                if len(self.state.gpus) > 1 and not apart:
                    self._by_gpu(node)
                elif observed.bad[tests].sum() < _CONFIRMED:
                    self._with_a_fine_one(node)

    def _by_gpu(self, node: str) -> None:
        """A node with a fine one on each GPU by itself, all at once, and for comparison a pair of fine ones as well."""
        is_first = not any(len(group.gpus) == 1 for group in self.chosen)
        for pair_of in (node, None)[: 1 + is_first]:
            first = pair_of or next((n for n in self.free if n in self.fine), "")
            partner = self._fine_one(first)
            if partner:
                self.chosen += [Group((first, partner), (gpu,)) for gpu in self.state.gpus]
                self._take((first, partner))

    def _with_a_fine_one(self, node: str) -> None:
        partner = self._fine_one(node)
        if partner:
            self._add((node, partner), self.state.gpus)

    def _fine_one(self, node: str) -> str | None:
        """A free node that was fine and has not been tested with this free one, at random."""
        free = [n for n in self.free if n in self.fine and n != node and frozenset((n, node)) not in self.met]
        return self.random.choice(free) if free and node in self.free else None

    def _add(self, nodes: Sequence[str], gpus: tuple[str, ...]) -> None:
        if all(node in self.free for node in nodes):
            self.chosen.append(Group(tuple(nodes), gpus))
            self._take(nodes)

    def _take(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self.free.pop(node, None)

    def ring(self, size: int) -> None:
        """Segments of the ring, in the second round shifted by half of one; of pairs the other half of the links."""
        shift = size // 2 if self.state.rounds else 0
        ring = (*self.state.nodes[shift:], *self.state.nodes[:shift])
        for first in range(0, len(ring), size):
            members = [node for node in ring[first : first + size] if node in self.free]
            if len(members) > 1:
                self._add(members, self.state.gpus)

    def at_random(self, most: int) -> None:
        """Pairs at random of all nodes that are left, in every other round on single rails until something is found."""
        free = list(self.free)
        self.random.shuffle(free)
        by_rail = self.state.rounds % 2 == 0 and len(self.state.gpus) > 1 and not self.state.found.findings
        every = max(1, min(len(self.state.gpus), len(free) // 6))
        for i, pair in enumerate(self._strangers(free)):
            if len(self.chosen) >= most:
                break
            rails = [(gpu,) for gpu in self.state.gpus[i % every :: every]] if by_rail else [self.state.gpus]
            self.chosen += [Group(pair, gpus) for gpus in rails]

    def _strangers(self, free: list[str]) -> Iterable[tuple[str, str]]:
        """Pairs that have not been tested together, where such are left."""
        while len(free) > 1:
            node = free.pop()
            place = next((i for i, other in enumerate(reversed(free)) if frozenset((node, other)) not in self.met), 0)
            yield node, free.pop(len(free) - 1 - place)
