"""GPUs of the same addresses on a part of the nodes: the leaf switch of a rail, or a socket of
several nodes. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import Self

import numpy as np

from seatrial.localize.addresses import socket_halves, together
from seatrial.localize.cause import Cause, CauseKind, Column, log_choose
from seatrial.localize.gpu_causes import at_one_end
from seatrial.localize.group_tests import Ends, Names
from seatrial.localize.likelihood import SOUGHT, Likelihood
from seatrial.localize.observations import Bools, Floats, Ints, Observed, ints

_SWEEPS = 6
_LEAST_LEAF = 3  # nodes
_LEAST_SHARE = 0.16  # of the nodes with the address
_LEAST_SOCKETS = 2  # nodes
_EXPECTED = 0.3  # in a fleet with a fault


def block_columns(observed: Observed, likelihood: Likelihood) -> list[Column]:
    """Return the best set of nodes for each address and each socket, where it has enough of them
    and not all.
    """
    ends = observed.tests.ends
    times = Counter[str]()
    for test in observed.tests:
        times.update(set(test.nodes))
    sets = _sets(ends)
    ratios = likelihood.severities(*SOUGHT)
    blocks = list[Column]()
    for addresses in sets:
        places = _Places.of(ends, addresses)
        count = len(places.names)
        if count < _LEAST_LEAF:
            continue
        # Of many nodes, a few are likelier to have a fault each
        least = max(_LEAST_LEAF, int(_LEAST_SHARE * count))
        if len(addresses) > 1:
            least = _LEAST_SOCKETS
        varied = places.varied(times)
        tried = set[Names]()
        for ratio in ratios:
            members = places.members(ratio, least)
            chosen = tuple(places.names[i] for i in np.flatnonzero(members))
            # Of all nodes it is the rail
            if not least <= len(chosen) < count:
                continue
            if chosen in tried:
                continue
            # Else tests do not tell it from the nodes themselves
            telling = members & varied
            if 2 * telling.sum() < len(chosen):
                continue
            tried.add(chosen)
            tests = places.tests[members[places.nodes]]
            block = _column(addresses, chosen, tests, count, len(sets))
            blocks.append(block)
            blocks += at_one_end(block, observed.tests)
    return blocks


def _sets(ends: Ends) -> list[Names]:
    """Return each address, those that always took part together as one, and those of each
    socket.
    """
    where: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for node, by_address in ends.items():
        for address, tests in by_address.items():
            where[address] += [(node, test) for test in tests]
    alike = together(where)
    if len(alike) < 2:
        return []
    return list(dict.fromkeys([*alike, *socket_halves(where)]))


@dataclass(frozen=True, slots=True)
class _Places:
    """Where some addresses took part: pairs of a test and a node that had one of them in it.

    tests: the test of each pair.
    nodes: the node of each pair, as its place among the `names`, in their order.
    """

    tests: Ints
    nodes: Ints
    names: list[str]

    @classmethod
    def of(cls, ends: Ends, addresses: Iterable[str]) -> Self:
        """Find the pairs, by the names of the nodes."""
        tests = list[int]()
        nodes = list[int]()
        names = list[str]()
        for name, by_address in sorted(ends.items()):
            of_node = set[int]()
            for address in addresses:
                of_node.update(by_address.get(address, ()))
            if of_node:
                tests += sorted(of_node)
                nodes += [len(names)] * len(of_node)
                names.append(name)
        return cls(ints(tests), ints(nodes), names)

    def varied(self, times: Mapping[str, int]) -> Bools:
        """Return the nodes that took part without the addresses too; `times` is how often each did
        at all.
        """
        number = np.bincount(self.nodes, minlength=len(self.names))
        varied: Bools = number < [times[name] for name in self.names]
        return varied

    def members(self, ratio: Floats, least: int) -> Bools:
        """Return the nodes of a block: first those slow by themselves, then each by tests that it
        alone explains.

        Fewer than `least` are left as they are.
        """
        tests = self.tests
        count = len(self.names)
        own = np.bincount(self.nodes, ratio[tests], count)
        members = own > 0
        slow = int(members.sum())
        if slow < least:
            return members
        first = np.searchsorted(self.nodes, np.arange(count + 1))
        # The number of members in each test
        touched = np.bincount(tests, members[self.nodes], len(ratio))
        slowest = np.argsort(own)[-slow:]
        for _ in range(_SWEEPS):
            changed = False
            for node in slowest:
                is_member = members[node]
                where = tests[first[node] : first[node + 1]]
                # By the tests in which no other node is a member
                alone = where[touched[where] == is_member]
                explains = ratio[alone].sum() > 0
                if explains != is_member:
                    touched[where] += -1 if is_member else 1
                    members[node] = explains
                    changed = True
            if not changed:
                break
        return members


def _column(addresses: Names, nodes: Names, tests: Ints, of: int, sets: int) -> Column:
    """Make the column; each number of nodes is equally likely, and each choice of them."""
    kind: CauseKind = "leaf"
    if len(addresses) > 1:
        kind = "socket"
    of_number = log(_EXPECTED / sets / of)
    cause = Cause(
        kind=kind,
        name=f"{' '.join(addresses)} of {' '.join(nodes)}",
        nodes=nodes,
        gpus=addresses,
        log_prior=of_number - log_choose(of, len(nodes)),
    )
    return Column(cause, np.unique(tests))
