"""Plan rounds of tests of disjoint groups, each from the results of the earlier rounds. Pure.

The first two rounds are the pairs of a ring over all nodes in the order of their ranks: between
them they have every node twice and every link of the ring that a collective of all nodes goes over.
Few nodes that the first leaves in doubt have half of their GPUs in the second, and half with a node
that was fine. Later rounds pair what is doubtful with nodes that were fine, each time with others
(adaptive group testing with confirmation), repeat doubtful links, take doubtful nodes apart by
their GPUs, and pair all other nodes at random, which shows cuts, or on single rails.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from seatrial.localize.cause import Cause
from seatrial.localize.criticism import unsettled
from seatrial.localize.findings import Finding, named_of
from seatrial.localize.group_tests import GroupTest, Names, Switches
from seatrial.localize.localization import Localization, localize
from seatrial.localize.next_test import NextTest
from seatrial.localize.observations import Observed

# Partners with which a part was slow; of a link, slow tests
_CONFIRMED = {"node": 3, "gpu": 4, "link": 3}
# Of the nodes in doubt: a pattern over the fleet, which pairs at random show best
_WIDESPREAD = 0.75
_APART = 0.25  # of the nodes in doubt, that are tested on each GPU at once
# Nodes on single GPUs, to each fine pair that is; nodes, to each that may be in doubt after the
# first round
_LIKE = 6
_PAIRS_FOR_A_CUT = 2  # for each node, so that its side is sure


@dataclass(frozen=True, slots=True)
class Budget:
    """How many rounds there may be, and how many groups at once."""

    rounds: int = 5
    groups: int = 2048


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are tested together, in the order of their ranks; `gpus`: those of each node that
    take part.
    """

    nodes: Names
    gpus: Names = ()

    def result(self, collective: str, busbw_gb_s: Mapping[int, float]) -> GroupTest:
        """Return the test of this group; without busbw it failed."""
        return GroupTest(
            name="--".join(self.nodes),
            collective=collective,
            nodes=self.nodes,
            busbw_gb_s=busbw_gb_s,
            gpus=(self.gpus,) * len(self.nodes),
        )


@dataclass(frozen=True, slots=True)
class State:
    """What is known after some rounds. `gpus` are the names of the GPUs that every node has."""

    nodes: Names
    gpus: Names
    groups: Switches
    tests: tuple[GroupTest, ...]
    rounds: int
    localization: Localization


def start(nodes: Sequence[str], gpus: Sequence[str] = (), groups: Switches | None = None) -> State:
    """Return the state before the first round; `nodes` in the order of their ranks in the
    collective that was slow.
    """
    return State(
        nodes=tuple(nodes),
        gpus=tuple(gpus),
        groups=groups or {},
        tests=(),
        rounds=0,
        localization=localize(()),
    )


def update(state: State, results: Iterable[GroupTest]) -> State:
    """Return the state after the results of a round."""
    tests = (*state.tests, *results)
    localization = localize(tests, state.groups)
    return replace(state, tests=tests, rounds=state.rounds + 1, localization=localization)


def plan(state: State, budget: Budget) -> list[Group]:
    """Return the groups of the next round, no two with a GPU in common.

    None once it is settled or the budget is spent.
    """
    if state.rounds >= budget.rounds or len(state.nodes) < 2:
        return []
    planned = _Round(state)
    if state.rounds < 2:
        planned.first_doubts()
        planned.ring(max(2, -(-len(state.nodes) // budget.groups)))
        return planned.chosen
    planned.doubts()
    planned.rest_of_ring()
    if planned.settled():
        return []
    planned.at_random(budget.groups)
    return planned.chosen


class _Round:
    """The groups chosen so far, and the nodes that are still free."""

    def __init__(self, state: State) -> None:
        """Learn from the earlier rounds which nodes are fine, and which pairs were tested."""
        self.state = state
        self.chosen: list[Group] = []
        self.free = dict.fromkeys(state.nodes)
        self.fine: set[str] = set()  # nodes with a fine test on all GPUs
        self.met: set[frozenset[str]] = set()  # pairs that have been tested
        self.apart: set[str] = set()  # nodes that have been tested on single GPUs
        self.good: dict[Names, None] = {}  # pairs that were fine together on all GPUs
        self.compared = set[Names]()  # those that have been tested on single GPUs
        self.helpers: list[str] = []  # nodes that are fine, at random
        self.by_gpu = True
        self.each = [(gpu,) for gpu in state.gpus]  # every GPU by itself
        self.halved = set[str]()  # nodes in tests of half of their GPUs
        self.taken = set[tuple[str, str]]()  # their GPUs that are in one
        self.random = random.Random(state.rounds)
        self.named = named_of(state.localization.findings)
        self.linked = set[str]()  # nodes with a slow link
        for finding in self.named:
            if finding.kind == "link":
                self.linked.update(finding.cause.nodes)
        self._learn(state.localization.posterior.observed)

    def _learn(self, observed: Observed) -> None:
        """Note what each of the tests so far has shown."""
        slow_apart = set[str]()
        for test, is_fine in zip(observed.tests, observed.fine.tolist(), strict=True):
            nodes = test.nodes
            is_pair = len(nodes) == 2
            if is_pair or is_fine:
                self.met.update(map(frozenset, test.neighbours))
            if test.gpus and len(test.gpus[0]) < len(self.state.gpus):
                self.apart.update(nodes)
                if nodes in self.good:
                    self.compared.add(nodes)
                if not is_fine:
                    slow_apart.update(nodes)
            elif is_fine:
                self.fine.update(nodes)
                if is_pair:
                    self.good[nodes] = None
        self.fine |= self.apart - slow_apart  # on each GPU by itself

    def settled(self) -> bool:
        """Return whether causes are named, none is in doubt, and each has been confirmed."""
        localization = self.state.localization
        if self.chosen or localization.next_test or not localization.findings:
            return False
        if all(finding.kind != "cut" for finding in localization.findings):
            return True
        pairs = sum(len(test.nodes) == 2 for test in self.state.tests)
        return pairs >= _PAIRS_FOR_A_CUT * len(self.state.nodes)

    def _odd_tests(self) -> list[GroupTest]:
        """Return the tests that nothing explains so far."""
        odd = np.flatnonzero(unsettled(self.state.localization.posterior))
        return [self.state.tests[i] for i in odd]

    def first_doubts(self) -> None:
        """Test few nodes of slow pairs on single GPUs: half with the other neighbour, half with a
        fine node.
        """
        ring = self.state.nodes
        doubtful = {node for test in self._odd_tests() for node in test.nodes} - self.fine
        if len(self.each) < 2 or len(doubtful) > len(ring) // _LIKE:
            return
        for place, node in enumerate(ring):
            if node not in doubtful:
                continue
            neighbours = (ring[place - 1], ring[(place + 1) % len(ring)])
            other = next((n for n in neighbours if self._is_new(node, n)), None)
            helper = self._free_fine_node(node)
            if other is not None:
                self._test_half_the_gpus((node, other))
            # Both halves, without a neighbour
            if helper is not None:
                self._test_half_the_gpus((node, helper))
                self._test_half_the_gpus((node, helper))

    def _is_new(self, *pair: str) -> bool:
        """Return whether a pair has not been tested together."""
        return frozenset(pair) not in self.met

    def _are_free(self, nodes: Iterable[str]) -> bool:
        """Return whether none of the nodes is in a group of this round."""
        return all(node in self.free for node in nodes)

    def doubts(self) -> None:
        """Add groups for doubtful parts, unless doubts are all over the fleet."""
        odd = self._odd_tests()
        times = Counter(node for test in odd for node in test.nodes)
        known = {node for finding in self.named for node in finding.cause.nodes}
        new = times.keys() - self.fine - known
        self.by_gpu = len(new) <= _APART * max(8, len(self.state.nodes))
        if len(times) > _WIDESPREAD * len(self.state.nodes):
            return
        localization = self.state.localization
        doubtful = [finding.cause for finding in localization.findings if not finding.named]
        self._decide(doubtful, localization.next_test)
        for node in sorted(new):
            self._pair_with_fine_node(node)
        self._repeat([test for test in odd if new.isdisjoint(test.nodes)], times)
        for finding in localization.findings:
            self._confirm(finding)

    def _decide(self, doubtful: Sequence[Cause], next_test: NextTest | None) -> None:
        """Add the test that tells most about doubtful causes, and pairs of nodes among these."""
        if doubtful and next_test and len(set(next_test.gpus)) < 2:
            gpus = next_test.gpus[0] if next_test.gpus else self.state.gpus
            self._add(next_test.nodes, gpus)
        nodes = dict.fromkeys(cause.name for cause in doubtful if cause.kind == "node")
        self._add_untested_neighbours(list(nodes))

    def _repeat(self, odd: Sequence[GroupTest], times: Mapping[str, int]) -> None:
        """Test pairs once more, and of groups the links; `times` is how often each node is in an
        odd test.
        """
        tested = Counter(test.nodes for test in self.state.tests)
        # First what has not been repeated
        for test in sorted(odd, key=lambda test: tested[test.nodes]):
            nodes = test.nodes
            if len(nodes) != 2:
                self._add_untested_neighbours((*nodes, nodes[0]))
                continue
            often = max(times[node] for node in nodes) > 1
            if often and tested[nodes] == 1 and len(self.each) > 1:
                self._test_half_the_gpus(nodes)
            else:
                self._add(nodes, test.gpus[0])

    def _confirm(self, finding: Finding) -> None:
        """Repeat what was slow in few tests: links again, nodes with other partners."""
        nodes = finding.cause.nodes
        kind = finding.cause.kind
        if kind not in _CONFIRMED:
            return
        few = self._slow_tests(finding) < _CONFIRMED[kind]
        if kind == "link":
            for node in nodes:
                if node not in self.fine:
                    self._pair_with_fine_node(node)
            if few:
                self._add(nodes, self.state.gpus)
        elif few or (len(self.each) > 1 and nodes[0] not in self.apart):
            self._pair_with_fine_node(nodes[0])

    def _slow_tests(self, finding: Finding) -> int:
        """Return slow tests of different pairs; those on single GPUs of one pair are one."""
        posterior = self.state.localization.posterior
        observed = posterior.observed
        tests = posterior.tests_of(finding.cause)
        slow = observed.bad_of(tests)
        if finding.cause.kind == "link":
            return len(slow)
        return len({observed.tests[i].nodes for i in slow})

    def _add_untested_neighbours(self, nodes: Sequence[str], without: Iterable[str] = ()) -> None:
        """Add pairs of neighbours that have not been tested together."""
        skipped = set(without)
        for pair in pairwise(nodes):
            if self._is_new(*pair) and skipped.isdisjoint(pair):
                self._add(pair, self.state.gpus)

    def _pair_with_fine_node(self, node: str) -> None:
        """Pair a node with one that was fine.

        The first time each GPU is tested by itself, all at once, since one may be slow.
        """
        by_gpu = self.by_gpu and len(self.each) > 1 and node not in self.apart
        if by_gpu:
            self._retest_fine_pair()
        if node not in self.free:
            return
        partner = self._free_fine_node(node)
        if partner is None:
            return
        pair = (node, partner)
        if by_gpu:
            self._add(pair, *self.each)
            self.apart.add(node)
        else:
            self._add(pair, self.state.gpus)

    def _retest_fine_pair(self) -> None:
        """Test a fine pair again on each GPU, to compare doubtful nodes with: all their tests may
        be slow.
        """
        if len(self.compared) > len(self.apart) // _LIKE:
            return
        for pair in self.good:
            if pair not in self.compared and self._are_free(pair):
                self._add(pair, *self.each)
                self.compared.add(pair)
                return

    def _test_half_the_gpus(self, pair: Names) -> None:
        """Test a pair on half of its GPUs, each by itself, so that the other half of a node is free
        for another pair.

        On all GPUs at once, two slow links of a node look like one of its GPUs.
        """
        if any(node not in self.free and node not in self.halved for node in pair):
            return
        middle = len(self.each) // 2
        for half in (self.each[:middle], self.each[middle:]):
            taken = {(node, gpu) for node in pair for (gpu,) in half}
            if not self.taken.isdisjoint(taken):
                continue
            self.taken |= taken
            self.halved.update(pair)
            self.chosen += [Group(pair, gpus) for gpus in half]
            for node in pair:
                self.free.pop(node, None)
            return

    def _free_fine_node(self, node: str) -> str | None:
        """Return a random free node that was fine and has not been tested with this one."""
        if not self.helpers:
            self.helpers = [n for n in self.free if n in self.fine]
            self.random.shuffle(self.helpers)
        for helper in self.helpers:
            if helper in self.free and helper != node and self._is_new(helper, node):
                return helper
        return None

    def _add(self, nodes: Sequence[str], *gpus: Names) -> None:
        """Add a group of these nodes, if they are free, or one for each of several choices of their
        GPUs.
        """
        if self._are_free(nodes):
            self.chosen += [Group(tuple(nodes), each) for each in gpus]
            for node in nodes:
                del self.free[node]

    def ring(self, size: int) -> None:
        """Add segments of the ring, in the second round shifted by half of one: of pairs, the other
        links.
        """
        nodes = self.state.nodes
        shift = size // 2 if self.state.rounds else 0
        ring = (*nodes[shift:], *nodes[:shift])
        for first in range(0, len(ring), size):
            segment = ring[first : first + size]
            members = [node for node in segment if node in self.free]
            if len(members) > 1:
                self._add(members, self.state.gpus)

    def rest_of_ring(self) -> None:
        """Add links of the ring that were not tested because their nodes were busy, except those of
        slow nodes.
        """
        slow = {finding.cause.name for finding in self.named if finding.cause.kind == "node"}
        nodes = self.state.nodes
        self._add_untested_neighbours((*nodes, nodes[0]), slow)

    def at_random(self, most: int) -> None:
        """Pair all remaining nodes at random; in every other round on single rails, until something
        is found.
        """
        gpus = self.state.gpus
        by_rail = self.state.rounds % 2 == 0 and len(gpus) > 1
        if self.state.localization.findings:
            by_rail = False
        if by_rail:
            self._retest_fine_pair()
        # Whom one stray more would put in doubt
        free = [node for node in self.free if node not in self.linked]
        self.random.shuffle(free)
        # The pairs take turns with the rails, so that each rail has three pairs at least
        every = max(1, min(len(gpus), len(free) // 6))
        for i, pair in enumerate(self._untested_pairs(free)):
            if len(self.chosen) >= most:
                break
            if not by_rail:
                self.chosen.append(Group(pair, gpus))
                continue
            rails = self.each[i % every :: every]
            self.chosen += [Group(pair, rail) for rail in rails]

    def _untested_pairs(self, free: list[str]) -> Iterator[tuple[str, str]]:
        """Yield pairs that have not been tested together, as long as there are such."""
        while len(free) > 1:
            node = free.pop()
            last = len(free) - 1
            untested = (i for i in range(last, -1, -1) if self._is_new(node, free[i]))
            yield node, free.pop(next(untested, last))
