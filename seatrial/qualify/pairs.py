"""Choose which proven idle nodes a pass tests in pairs, so that all pairs of leaf switches are
covered in time. Pure.

Partners rotate: the pair of groups that is untested for longest comes first, and within it the
    nodes whose last pair test is oldest. A node that was slow with one partner gets another one
    next, which shows whether the node or its partner is slow.
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
    """Return the idle nodes whose last test alone passed, is recent enough, and leaves nothing in
    doubt.
    """
    free = []
    for node in nodes:
        if node.state != "idle" or not evidence.record(node.name).is_proven:
            continue
        if evidence.age(node.name) < max_age:
            free.append(node)
    return free


def choose_pair(
    nodes: Sequence[ServiceNode], evidence: Evidence, max_age: timedelta, among: Collection[str]
) -> tuple[ServiceNode, ServiceNode] | None:
    """Return the most urgent pair of `nodes`: one in doubt, else one of the groups with the oldest
    test; None if none is due.

    If `among` has names, a pair needs one of them, and is due at any age.
    """
    choice = _Choice.of(nodes, evidence, max_age)
    pairs = []
    for first, second in combinations(nodes, 2):
        is_asked = choice.is_due(first, second)
        if among:
            is_asked = first.name in among or second.name in among
        if is_asked and choice.is_new(first, second):
            pairs.append((first, second))
    return max(pairs, key=lambda pair: choice.priority(*pair), default=None)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The age of each pair of groups, and the partners with which each node was slow lately.

    `max_age` is the greatest age of the test of a pair of groups. `slow` are the partners by node,
    the latest first; empty if the node's last pair test passed.
    """

    evidence: Evidence
    max_age: timedelta
    ages: Mapping[Pair, timedelta]
    slow: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, nodes: Sequence[ServiceNode], evidence: Evidence, max_age: timedelta) -> "_Choice":
        """Read the ages and slow partners of these nodes from the evidence."""
        group_of = {node.name: _group(node) for node in nodes}
        slow = {node.name: slow_with(evidence.record(node.name).paired) for node in nodes}
        return cls(evidence, max_age, evidence.pair_ages(group_of), slow)

    def is_new(self, first: ServiceNode, second: ServiceNode) -> bool:
        """Return whether the two were not slow together lately, and at most one is in doubt.

        If both are in doubt, neither can clear the other.
        """
        slow_with_first = self.slow[first.name]
        slow_with_second = self.slow[second.name]
        if slow_with_first and slow_with_second:
            return False
        return second.name not in slow_with_first and first.name not in slow_with_second

    def is_due(self, first: ServiceNode, second: ServiceNode) -> bool:
        """Return whether one of the two is in doubt, or the test of their groups is too old."""
        if self._in_doubt(first, second):
            return True
        return self._age(first, second) >= DUE_AT * self.max_age

    def priority(
        self, first: ServiceNode, second: ServiceNode
    ) -> tuple[bool, timedelta, timedelta]:
        """Return a sort key: whether one is in doubt, the age of their groups, their own ages.

        The pair with the greatest key is tested next.
        """
        doubt = self._in_doubt(first, second)
        own_age = self._since_paired(first) + self._since_paired(second)
        return doubt, self._age(first, second), own_age

    def _in_doubt(self, first: ServiceNode, second: ServiceNode) -> bool:
        """Return whether one of the two was slow, but with too few partners to be blamed."""
        return any(0 < len(self.slow[node.name]) <= CONFIRMED_BY for node in (first, second))

    def _age(self, first: ServiceNode, second: ServiceNode) -> timedelta:
        """Return the time since the groups of the two were tested together; `LONG_AGO` if never."""
        pair = pair_of(_group(first), _group(second))
        return self.ages.get(pair, LONG_AGO)

    def _since_paired(self, node: ServiceNode) -> timedelta:
        """Return the time since the node's last pair test; `LONG_AGO` if it had none."""
        paired = self.evidence.record(node.name).paired
        if not paired:
            return LONG_AGO
        return self.evidence.now - paired[-1].ended


def _group(node: ServiceNode) -> str:
    """Return the group of a node; its own name if it has none."""
    return node.group or node.name


def slow_with(tests: Sequence[NodeTest]) -> list[str]:
    """Return the partners of the failed pair tests since the last passed one, each once, the latest
    first.

    `tests` are the pair tests of one node, the oldest first.
    """
    partners: dict[str, None] = {}
    for test in reversed(tests):
        if test.passed:
            break
        if test.partner:
            partners[test.partner] = None
    return list(partners)
