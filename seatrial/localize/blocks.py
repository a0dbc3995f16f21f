"""Candidate causes with the same GPU addresses on some of the nodes: a leaf switch of one rail, or
the same socket of several nodes. Pure.
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
_EXPECTED = 0.3  # expected number of faulty leaves or sockets in a fleet with a fault


def block_columns(observed: Observed, likelihood: Likelihood) -> list[Column]:
    """Return, for each address and each socket, the likeliest sets of nodes that share a fault.

    A set has at least the minimum number of nodes for its kind, and is not the rail itself.
    """
    ends = observed.tests.ends
    times = Counter[str]()
    for test in observed.tests:
        times.update(set(test.nodes))
    sets = _sets(ends)
    ratios = likelihood.severities(*SOUGHT)
    blocks = list[Column]()
    for addresses, spared in sets.items():
        places = _Places.of(ends, addresses)
        count = len(places.names)
        if count < _LEAST_LEAF:
            continue
        # A few slow nodes among many are likelier to have a fault each
        least = max(_LEAST_LEAF, int(_LEAST_SHARE * count))
        if len(addresses) > 1:
            least = _LEAST_SOCKETS
        varied = places.varied(times)
        tried = set[Names]()
        for ratio in ratios:
            members = places.members(ratio, least)
            chosen = tuple(places.names[i] for i in np.flatnonzero(members))
            if not least <= len(chosen) <= count - spared or chosen in tried:
                continue
            # Unless nodes were tested without the addresses too, the nodes themselves may be slow
            telling = members & varied
            if 2 * telling.sum() < len(chosen):
                continue
            tried.add(chosen)
            tests = places.tests[members[places.nodes]]
            block = _column(addresses, chosen, tests, count, len(sets))
            blocks.append(block)
            blocks += at_one_end(block, observed.tests)
    return blocks


def _sets(ends: Ends) -> dict[Names, int]:
    """Return the sets of addresses to try: those that took part in the same tests, and each
    socket's; and the least number of nodes that a block of each leaves out.

    Those in the same tests are a rail, which a block of all nodes but one has every test of.
    """
    where: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for node, by_address in ends.items():
        for address, tests in by_address.items():
            where[address] += [(node, test) for test in tests]
    alike = together(where)
    if len(alike) < 2:
        return {}
    every = dict.fromkeys([*alike, *socket_halves(where)], 1)
    return every | dict.fromkeys(alike, 2)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where some addresses took part: a pair (test, node) for each node that used one in a test.

    tests: the index of the test of each pair.
    nodes: the index in `names` of the node of each pair, in ascending order.
    """

    tests: Ints
    nodes: Ints
    names: list[str]

    @classmethod
    def of(cls, ends: Ends, addresses: Iterable[str]) -> Self:
        """Return the pairs for `addresses`, ordered by node name."""
        tests = list[int]()
        nodes = list[int]()
        names = list[str]()
        for name, by_address in sorted(ends.items()):
            of_node = {i for address in addresses for i in by_address.get(address, ())}
            if of_node:
                tests += sorted(of_node)
                nodes += [len(names)] * len(of_node)
                names.append(name)
        return cls(ints(tests), ints(nodes), names)

    def varied(self, times: Mapping[str, int]) -> Bools:
        """Return the mask of nodes that also took part without the addresses.

        `times` is the number of tests of each node.
        """
        number = np.bincount(self.nodes, minlength=len(self.names))
        varied: Bools = number < [times[name] for name in self.names]
        return varied

    def members(self, ratio: Floats, least: int) -> Bools:
        """Return the mask of nodes that belong to the block.

        Starts with the nodes that are slow on their own, then adds or removes each node according
        to the tests in which no other node is a member. Fewer than `least` nodes are returned
        unchanged.
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
                # Decide by the tests in which no other node is a member
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
    """Return the column of a leaf or socket cause.

    The prior is uniform over the number of nodes, and over the sets of that size. `of` is the
    number of nodes with the addresses, and `sets` that of address sets.
    """
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
