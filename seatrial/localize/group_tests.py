"""Tests of groups of nodes: which nodes and GPUs took part, and what they reached. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

_MESH = 32  # largest number of nodes at which a single link affects an alltoall

# Nodes by the name of the switch, rack or block that they share
Switches = Mapping[str, frozenset[str]]
Names = tuple[str, ...]  # names of nodes, or addresses of GPUs
Addresses = tuple[Names, ...]  # addresses of the GPUs of each node
TestsByName = dict[str, list[int]]  # indices of tests
Ends = dict[str, TestsByName]  # indices of tests by node and GPU address


@dataclass(frozen=True, slots=True)
class GroupTest:
    """One collective over one group of nodes, in rank order.

    `gpus` are the addresses of the GPUs that took part, for each node; empty if unknown.
    `busbw_gb_s` is by message bytes, and empty for a failed test. Tests under different
    `conditions` are not compared. `weight` decreases with age, and `day` is the date, if known.
    """

    name: str
    collective: str
    nodes: Names
    busbw_gb_s: Mapping[int, float] = field(default_factory=dict)
    gpus: Addresses = ()
    conditions: str = ""
    weight: float = 1.0
    day: str = ""

    @property
    def failed(self) -> bool:
        """Whether the test has no busbw."""
        return not self.busbw_gb_s

    @property
    def ends(self) -> Iterable[tuple[str, Names]]:
        """Each node with the addresses of its GPUs; empty if they are unknown."""
        return zip(self.nodes, self.gpus, strict=False)

    @property
    def parts(self) -> set[str]:
        """The nodes, and each with its GPUs as NODE/GPU."""
        return {*self.nodes, *(f"{node}/{' '.join(gpus)}" for node, gpus in self.ends)}

    @property
    def like(self) -> tuple[str, str, int, tuple[int, ...]]:
        """The key of like tests: collective, conditions, number of nodes, and number of GPUs of
        each node.
        """
        gpus = tuple(sorted(map(len, self.gpus)))
        return self.collective, self.conditions, len(self.nodes), gpus

    @property
    def crossed(self) -> bool:
        """Whether the nodes took part with GPUs of different addresses."""
        if len(set(self.gpus)) < 2:
            return False
        return len(set(map(frozenset, self.gpus))) > 1

    @property
    def neighbours(self) -> Sequence[tuple[str, str]]:
        """The pairs of nodes that exchange data, each in the order of names: neighbours in a closed
        ring of the ranks, or all pairs for alltoall.
        """
        nodes = self.nodes
        if len(nodes) < 2:
            return ()
        if len(nodes) == 2:
            return ((min(nodes), max(nodes)),)
        if self.collective.startswith("alltoall") and len(nodes) <= _MESH:
            return list(combinations(sorted(set(nodes)), 2))
        following = (*nodes[1:], nodes[0])
        return sorted({(min(a, b), max(a, b)) for a, b in zip(nodes, following, strict=True)})


class Tests(tuple[GroupTest, ...]):
    """The tests, in order, with indices that do not depend on message sizes and are
    computed once.
    """

    @cached_property
    def nodes(self) -> frozenset[str]:
        """All nodes that took part in any test."""
        return frozenset(node for test in self for node in test.nodes)

    @cached_property
    def ends(self) -> Ends:
        """The indices of the tests in which each node used each GPU address."""
        ends: Ends = {}
        for i, test in enumerate(self):
            for node, addresses in test.ends:
                of_node = ends.setdefault(node, {})
                for address in addresses:
                    of_node.setdefault(address, []).append(i)
        return ends


def joined(tests: Sequence[GroupTest], some: Iterable[bool]) -> dict[str, str]:
    """Return a representative node for each node, the same for all nodes that are connected by
    tests.

    `some` is a mask of the tests that connect their nodes.
    """
    above: dict[str, str] = {}
    for test in tests:
        above.update(zip(test.nodes, test.nodes, strict=True))

    def first(node: str) -> str:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for test, is_one in zip(tests, some, strict=True):
        if not is_one:
            continue
        for node in test.nodes[1:]:
            end = first(node)
            above[end] = first(test.nodes[0])
    return {node: first(node) for node in above}


def faster_part(tests: Sequence[GroupTest], slow: Iterable[bool]) -> str:
    """Return the node, or its GPUs as NODE/GPU, that is faster than all others in like tests; empty
    if there is none.

    All fine tests have it in common, few tests with it are slow, and three or more groups of its
    partners in fine tests are slow without it. Slow nodes do not explain that, since they would
    slow the tests with it, too.
    """
    marked = [(test.nodes, test.parts, is_slow) for test, is_slow in zip(tests, slow, strict=True)]
    fine = [parts for _, parts, is_slow in marked if not is_slow]
    if not fine:
        return ""
    partners = fine[0].union(*fine)
    for part in sorted(fine[0].intersection(*fine)):
        own = [is_slow for _, parts, is_slow in marked if part in parts]
        among = {nodes for nodes, parts, _ in marked if parts <= partners - {part}}
        if len(among) >= 3 and sum(own) <= len(own) / 3:
            return part
    return ""
