"""Tests of groups of nodes: which nodes and GPUs took part, and what they reached. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

_MESH = 32  # nodes; of more, single links make no difference to an alltoall

Switches = Mapping[str, frozenset[str]]  # nodes, by the switch, rack or block that they share
Names = tuple[str, ...]  # of nodes, or addresses of GPUs
Addresses = tuple[Names, ...]  # of the GPUs of each node
TestsByName = dict[str, list[int]]  # the places of tests
Ends = dict[str, TestsByName]  # by node and address


@dataclass(frozen=True, slots=True)
class GroupTest:
    """One collective over one group of nodes, in the order of its ranks.

    `gpus` are the addresses of the GPUs that took part, for each node; empty where they are not
    known. `busbw_gb_s` is by message bytes, and empty for a test that failed. Tests under other
    `conditions` are not compared. `weight` is what it counts for, less the older it is, and `day`
    its date, where that is known.
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
        """Whether it has no busbw."""
        return not self.busbw_gb_s

    @property
    def ends(self) -> Iterable[tuple[str, Names]]:
        """Each node with the addresses of its GPUs, where they are known."""
        return zip(self.nodes, self.gpus, strict=False)

    @property
    def like(self) -> tuple[str, str, int, tuple[int, ...]]:
        """What like tests have in common: also the number of nodes, and of GPUs of each."""
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
        """The links of a ring over the nodes, closed in the order of the ranks; of alltoall all
        links. In order of their names.
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
    """The tests, in their order.

    What was tested is the same for messages of all sizes, and found once.
    """

    @cached_property
    def nodes(self) -> frozenset[str]:
        """All nodes that took part in a test."""
        return frozenset(node for test in self for node in test.nodes)

    @cached_property
    def ends(self) -> Ends:
        """The places of the tests in which each node took part with each address of a GPU."""
        ends: Ends = {}
        for i, test in enumerate(self):
            for node, addresses in test.ends:
                of_node = ends.setdefault(node, {})
                for address in addresses:
                    of_node.setdefault(address, []).append(i)
        return ends


def joined(tests: Sequence[GroupTest], some: Iterable[bool]) -> dict[str, str]:
    """Return for each node the first of the nodes that chains of some of the tests join it with."""
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
