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
from itertools import pairwise, product
from math import ceil

import numpy as np

from seatrial.localize.cause import Cause
from seatrial.localize.criticism import unsettled
from seatrial.localize.findings import Finding, named_of
from seatrial.localize.group_tests import GroupTest, Names, Switches
from seatrial.localize.localization import Localization, localize
from seatrial.localize.next_test import NextTest
from seatrial.localize.shown import Shown

# Least number of partners with which a part was slow to confirm it; for a link, slow tests
_CONFIRMED = {"node": 3, "gpu": 4, "link": 3}
# From this share of nodes in doubt on, the pattern spans the fleet, and random pairs show it best
_WIDESPREAD = 0.75
# Largest share of nodes in doubt at which all GPUs of these are tested at once, each alone
_APART = 0.25
# Nodes tested on single GPUs for each fine pair tested so; also nodes for each node in doubt after
# the first round, at the least
_LIKE = 6
_PAIRS_FOR_A_CUT = 2  # pairs for each node, so that its side of a cut is sure


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on the number of rounds, and on the number of groups in a round."""

    rounds: int = 5
    groups: int = 2048


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes to test together, in rank order.

    `gpus` are the addresses that each node uses.
    """

    nodes: Names
    gpus: Names = ()

    def result(self, collective: str, busbw_gb_s: Mapping[int, float]) -> GroupTest:
        """Return this group's test; without busbw it failed."""
        return GroupTest(
            name="--".join(self.nodes),
            collective=collective,
            nodes=self.nodes,
            busbw_gb_s=busbw_gb_s,
            gpus=(self.gpus,) * len(self.nodes),
        )


@dataclass(frozen=True, slots=True)
class State:
    """What is known after some rounds; `gpus` are the addresses that every node has."""

    nodes: Names
    gpus: Names
    groups: Switches
    tests: tuple[GroupTest, ...]
    rounds: int
    localization: Localization


def start(nodes: Sequence[str], gpus: Sequence[str] = (), groups: Switches | None = None) -> State:
    """Return the state before the first round.

    `nodes` are in rank order of the slow collective.
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
    """Return the groups of the next round, which share no GPU; empty if settled or out of
    budget.
    """
    if state.rounds >= budget.rounds:
        return []
    if len(state.nodes) < 2:
        return []
    planned = _Round(state)
    if state.rounds < 2:
        planned.first_doubts()
        size = ceil(len(state.nodes) / budget.groups)
        planned.ring(max(2, size))
        return planned.chosen
    planned.doubts()
    planned.rest_of_ring()
    if planned.settled():
        return []
    planned.at_random(budget.groups)
    return planned.chosen


class _Round:
    """The groups of one round chosen so far, and the nodes that are still free.

    fine, apart, good, compared: as in `Shown`.
    named: the findings that are named.
    linked: nodes with a slow link.
    each: a set for each GPU alone.
    by_gpu: whether nodes in doubt are tested on each GPU.
    halved: nodes in tests of half of their GPUs.
    taken: GPUs of halved nodes that are already in a test.
    helpers: fine nodes, in random order.
    """

    def __init__(self, state: State) -> None:
        """Read from earlier rounds which nodes are fine and which pairs were tested."""
        self.state = state
        self.localization = state.localization
        self.tests = state.tests
        self.nodes = state.nodes
        self.gpus = state.gpus
        self.chosen: list[Group] = []
        self.free = dict.fromkeys(state.nodes)
        observed = state.localization.posterior.observed
        shown = Shown.by(observed, len(state.gpus))
        self.fine = shown.fine
        self.apart = shown.apart
        self.met = shown.met
        self.good = shown.good
        self.compared = shown.compared
        self.helpers: list[str] = []
        self.by_gpu = True
        self.each: list[Names] = [(gpu,) for gpu in state.gpus]
        self.halved = set[str]()
        self.taken = set[tuple[str, str]]()
        self.random = random.Random(state.rounds)
        self.named = named_of(state.localization.findings)
        self.linked = set[str]()
        for finding in self.named:
            if finding.kind == "link":
                self.linked.update(finding.cause.nodes)

    def settled(self) -> bool:
        """Return whether nothing is left to test: a cause is found, no test would decide more, and
        a cut has enough pairs.
        """
        findings = self.localization.findings
        if self.chosen or self.localization.next_test:
            return False
        if not findings:
            return False
        if all(finding.kind != "cut" for finding in findings):
            return True
        pairs = sum(len(test.nodes) == 2 for test in self.tests)
        return pairs >= _PAIRS_FOR_A_CUT * len(self.nodes)

    def _odd_tests(self) -> list[GroupTest]:
        """Return the tests that no known cause explains."""
        odd = np.flatnonzero(unsettled(self.state.localization.posterior))
        return [self.tests[i] for i in odd]

    def first_doubts(self) -> None:
        """Test the nodes of slow pairs on single GPUs, if they are few: half of the GPUs with the
        other ring neighbour, half with a fine node.
        """
        if len(self.each) < 2:
            return
        doubtful = set[str]()
        for test in self._odd_tests():
            doubtful.update(test.nodes)
        doubtful -= self.fine
        ring = self.nodes
        if len(doubtful) > len(ring) // _LIKE:
            return
        following = (*ring[1:], ring[0])
        for place, node in enumerate(ring):
            if node not in doubtful:
                continue
            helper = self._free_fine_node(node)
            for other in (ring[place - 1], following[place]):
                if self._is_new(node, other):
                    self._test_half_the_gpus((node, other))
                    break
            # The second call is for both halves, if there is no neighbour to test with
            if helper is not None:
                self._test_half_the_gpus((node, helper))
                self._test_half_the_gpus((node, helper))

    def _is_new(self, *pair: str) -> bool:
        """Return whether the pair has not been tested."""
        return frozenset(pair) not in self.met

    def _are_free(self, nodes: Iterable[str]) -> bool:
        """Return whether none of the nodes is in a group of this round."""
        return all(node in self.free for node in nodes)

    def doubts(self) -> None:
        """Add groups that test doubtful parts, unless doubts span the fleet."""
        odd = self._odd_tests()
        times = Counter[str]()
        for test in odd:
            times.update(test.nodes)
        new = times.keys() - self.fine
        for finding in self.named:
            new.difference_update(finding.cause.nodes)
        fleet = len(self.nodes)
        self.by_gpu = len(new) <= _APART * max(8, fleet)
        if len(times) > _WIDESPREAD * fleet:
            return
        findings = self.localization.findings
        doubtful = [finding.cause for finding in findings if not finding.named]
        self._decide(doubtful, self.localization.next_test)
        for node in sorted(new):
            self._pair_with_fine_node(node)
        others = [test for test in odd if new.isdisjoint(test.nodes)]
        self._repeat(others, times)
        for finding in findings:
            self._confirm(finding)

    def _decide(self, doubtful: Sequence[Cause], next_test: NextTest | None) -> None:
        """Add the test that would decide between doubtful causes, and untested pairs of their
        nodes.
        """
        if doubtful and next_test:
            settings = list(next_test.gpus) or [self.gpus]
            # A group uses the same GPUs on each node
            if len(set(settings)) == 1:
                self._add(next_test.nodes, settings[0])
        nodes = [cause.name for cause in doubtful if cause.kind == "node"]
        different = list(dict.fromkeys(nodes))
        self._add_untested_neighbours(different)

    def _repeat(self, odd: Sequence[GroupTest], times: Mapping[str, int]) -> None:
        """Repeat pairs; of larger groups, test the links.

        `times` is the number of odd tests of each node.
        """
        tested = Counter(test.nodes for test in self.tests)
        # Tests that were not repeated come first
        for test in sorted(odd, key=lambda test: tested[test.nodes]):
            nodes = test.nodes
            if len(nodes) != 2:
                self._add_untested_neighbours((*nodes, nodes[0]))
                continue
            is_repeated = tested[nodes] > 1
            is_alone = max(times[node] for node in nodes) == 1
            if is_repeated or is_alone or len(self.each) < 2:
                self._add(nodes, test.gpus[0])
            else:
                self._test_half_the_gpus(nodes)

    def _confirm(self, finding: Finding) -> None:
        """Repeat what was slow in only a few tests: a link again, a node or GPU with other
        partners.
        """
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
                self._add(nodes, self.gpus)
            return
        is_whole = len(self.each) > 1 and nodes[0] not in self.apart
        if few or is_whole:
            self._pair_with_fine_node(nodes[0])

    def _slow_tests(self, finding: Finding) -> int:
        """Return the number of slow tests, counting those of the same nodes once unless the finding
        is a link.
        """
        posterior = self.localization.posterior
        tests = posterior.tests_of(finding.cause)
        slow = posterior.observed.bad_of(tests)
        if finding.kind == "link":
            return len(slow)
        groups = {self.tests[i].nodes for i in slow}
        return len(groups)

    def _add_untested_neighbours(self, nodes: Sequence[str], without: Iterable[str] = ()) -> None:
        """Add untested pairs of adjacent nodes in `nodes`."""
        skipped = set(without)
        for pair in pairwise(nodes):
            if self._is_new(*pair) and skipped.isdisjoint(pair):
                self._add(pair, self.gpus)

    def _pair_with_fine_node(self, node: str) -> None:
        """Pair a node with a fine one.

        The first time, each GPU is tested alone, all at once, since only one may be slow.
        """
        by_gpu = self.by_gpu and node not in self.apart
        if len(self.each) < 2:
            by_gpu = False
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
            self._add(pair, self.gpus)

    def _retest_fine_pair(self) -> None:
        """Test a fine pair again on each GPU alone, as a reference for doubtful nodes whose tests
        may all be slow.
        """
        if len(self.compared) > len(self.apart) // _LIKE:
            return
        for pair in self.good:
            if pair not in self.compared and self._are_free(pair):
                self._add(pair, *self.each)
                self.compared.add(pair)
                return

    def _test_half_the_gpus(self, pair: Names) -> None:
        """Test a pair on half of its GPUs, each alone, so that the other half is free for another
        pair.

        On all GPUs at once, two slow links of a node look like one bad GPU.
        """
        others = [node for node in pair if node not in self.halved]
        if not self._are_free(others):
            return
        middle = len(self.gpus) // 2
        for half in (self.gpus[:middle], self.gpus[middle:]):
            taken = set(product(pair, half))
            if not self.taken.isdisjoint(taken):
                continue
            self.taken |= taken
            self.halved.update(pair)
            self.chosen += [Group(pair, (gpu,)) for gpu in half]
            for node in pair:
                self.free.pop(node, None)
            return

    def _free_fine_node(self, node: str) -> str | None:
        """Return a random free fine node that has not been tested with `node`; None if there is
        none.
        """
        if not self.helpers:
            self.helpers = [free for free in self.free if free in self.fine]
            self.random.shuffle(self.helpers)
        for helper in self.helpers:
            if helper == node or helper not in self.free:
                continue
            if self._is_new(helper, node):
                return helper
        return None

    def _add(self, nodes: Sequence[str], *gpus: Names) -> None:
        """Add a group of these nodes for each set of GPUs, if all nodes are free."""
        if not self._are_free(nodes):
            return
        for each in gpus:
            self.chosen.append(Group(tuple(nodes), each))
        for node in nodes:
            del self.free[node]

    def ring(self, size: int) -> None:
        """Add segments of `size` nodes of the ring, shifted by half a segment after the first
        round.
        """
        ring = self.nodes
        if self.state.rounds:
            shift = size // 2
            ring = (*ring[shift:], *ring[:shift])
        for first in range(0, len(ring), size):
            segment = ring[first : first + size]
            members = [node for node in segment if node in self.free]
            if len(members) > 1:
                self._add(members, self.gpus)

    def rest_of_ring(self) -> None:
        """Add links of the ring that are still untested, except those of slow nodes."""
        slow = {finding.cause.name for finding in self.named if finding.kind == "node"}
        ring = (*self.nodes, self.nodes[0])
        self._add_untested_neighbours(ring, slow)

    def at_random(self, most: int) -> None:
        """Pair all free nodes at random, up to `most` groups; in even rounds on single rails until
        something is found.
        """
        is_even_round = self.state.rounds % 2 == 0
        by_rail = is_even_round and len(self.gpus) > 1
        if self.localization.findings:
            by_rail = False
        if by_rail:
            self._retest_fine_pair()
        # Nodes with a slow link are left out: one more stray would put them in doubt
        free = [node for node in self.free if node not in self.linked]
        self.random.shuffle(free)
        # Pairs take turns with the rails, so that each rail has at least three pairs
        turns = min(len(self.gpus), len(free) // 6)
        turns = max(1, turns)
        for i, pair in enumerate(self._untested_pairs(free)):
            if len(self.chosen) >= most:
                break
            rails = [self.gpus]
            if by_rail:
                rails = self.each[i % turns :: turns]
            self.chosen += [Group(pair, rail) for rail in rails]

    def _untested_pairs(self, free: list[str]) -> Iterator[tuple[str, str]]:
        """Yield disjoint pairs of all free nodes, with untested partners as long as there
        are any.
        """
        while len(free) > 1:
            node = free.pop()
            last = len(free) - 1
            chosen = last
            for i in range(last, -1, -1):
                if self._is_new(node, free[i]):
                    chosen = i
                    break
            yield node, free.pop(chosen)
