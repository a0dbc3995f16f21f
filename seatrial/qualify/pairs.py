"""Which proven idle nodes a pass tests in pairs, so that every pair of leaf switches is covered in
time. Pure.

Partners rotate: the pair of groups that is untested for longest comes first, and in it the nodes
whose own test of two is oldest. A node that was slow with one partner meets another one next, which
tells the node from its partner.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations

from seatrial.history.node_tests import NodeTest
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.choose import DUE_AT
from seatrial.qualify.evidence import CONFIRMED_BY, LONG_AGO, Evidence, Pair, pair_of


def proven(
    nodes: Sequence[ServiceNode], evidence: Evidence, max_age: timedelta
) -> list[ServiceNode]:
    """Return the idle nodes whose last test by themselves passed and is not too old: nothing of
    theirs is in doubt.
    """
    idle = [node for node in nodes if node.state == "idle"]
    return [
        node
        for node in idle
        if evidence.record(node.name).is_proven and evidence.age(node.name) < max_age
    ]


def choose_pair(
    nodes: Sequence[ServiceNode], evidence: Evidence, max_age: timedelta, among: Collection[str]
) -> tuple[ServiceNode, ServiceNode] | None:
    """Return the two of `nodes` that are due: in doubt, else of the pair of groups that is oldest;
    None where none are.

    `among` names nodes of which the pair has one; whatever its age, if it is given.
    """
    choice = _Choice.of(nodes, evidence, max_age)
    pairs = [pair for pair in combinations(nodes, 2) if choice.is_new(*pair)]
    if among:
        pairs = [
            (first, second)
            for first, second in pairs
            if first.name in among or second.name in among
        ]
    else:
        pairs = [pair for pair in pairs if choice.is_due(*pair)]
    return max(pairs, key=lambda pair: choice.priority(*pair), default=None)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The age of each pair of groups, and the partners with which each node was slow lately."""

    evidence: Evidence
    max_age: timedelta
    ages: Mapping[Pair, timedelta]
    slow: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, nodes: Sequence[ServiceNode], evidence: Evidence, max_age: timedelta) -> "_Choice":
        group_of = {node.name: node.group or node.name for node in nodes}
        slow = {node.name: slow_with(evidence.record(node.name).paired) for node in nodes}
        return cls(evidence, max_age, evidence.pair_ages(group_of), slow)

    def is_new(self, first: ServiceNode, second: ServiceNode) -> bool:
        """Return whether the two were not slow together lately, and at most one is in doubt.

        Of two in doubt, neither can clear the other.
        """
        if self.slow[first.name] and self.slow[second.name]:
            return False
        return second.name not in self.slow[first.name] and first.name not in self.slow[second.name]

    def is_due(self, first: ServiceNode, second: ServiceNode) -> bool:
        return self._in_doubt(first, second) or self._age(first, second) >= DUE_AT * self.max_age

    def priority(
        self, first: ServiceNode, second: ServiceNode
    ) -> tuple[bool, timedelta, timedelta]:
        own_age = self._since_paired(first) + self._since_paired(second)
        return self._in_doubt(first, second), self._age(first, second), own_age

    def _in_doubt(self, first: ServiceNode, second: ServiceNode) -> bool:
        """Return whether one of the two was slow, but with too few partners to be blamed."""
        return any(0 < len(self.slow[node.name]) <= CONFIRMED_BY for node in (first, second))

    def _age(self, first: ServiceNode, second: ServiceNode) -> timedelta:
        return self.ages.get(
            pair_of(first.group or first.name, second.group or second.name), LONG_AGO
        )

    def _since_paired(self, node: ServiceNode) -> timedelta:
        paired = self.evidence.record(node.name).paired
        return self.evidence.now - paired[-1].ended if paired else LONG_AGO


def slow_with(tests: Sequence[NodeTest]) -> list[str]:
    """Return the partners with which the last tests of a node failed, until one that passed."""
    partners: list[str] = []
    for test in reversed(tests):
        if test.passed:
            break
        if test.partner and test.partner not in partners:
            partners.append(test.partner)
    return partners
