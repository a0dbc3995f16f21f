"""GPUs of the same addresses on a part of the nodes: the leaf switch of a rail, or a socket of
several nodes. Pure.
"""

from collections import Counter, defaultdict
from math import log

import numpy as np

from seatrial.localize.causes import (
    Cause,
    CauseKind,
    Column,
    at_one_end,
    log_choose,
    socket_halves,
    together,
)
from seatrial.localize.group_tests import Ends
from seatrial.localize.likelihood import SOUGHT, Likelihood
from seatrial.localize.observations import Bools, Floats, Ints, Observed

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
    times = Counter(node for test in observed.tests for node in dict.fromkeys(test.nodes))
    sets = _sets(ends)
    ratios = likelihood.severities(*SOUGHT)
    blocks = []
    for addresses in sets:
        tests, nodes, names = _places(ends, addresses)
        count = len(names)
        if count < _LEAST_LEAF:
            continue
        # Without them in a test
        varied = np.bincount(nodes, minlength=count) < [times[name] for name in names]
        # Of many nodes, a few are likelier to have a fault each
        least = max(_LEAST_LEAF, int(_LEAST_SHARE * count))
        if len(addresses) > 1:
            least = _LEAST_SOCKETS
        tried = set[tuple[str, ...]]()
        for ratio in ratios:
            members = _members(ratio, tests, nodes, count, least)
            chosen = tuple(sorted(names[i] for i in np.flatnonzero(members)))
            if chosen in tried or not least <= len(chosen) < count:  # of all nodes it is the rail
                continue
            if 2 * (members & varied).sum() < len(chosen):
                continue  # tests do not tell it from the nodes themselves
            tried.add(chosen)
            block = _column(addresses, chosen, tests[members[nodes]], count, len(sets))
            blocks.append(block)
            blocks += at_one_end(block, observed.tests)
    return blocks


def _sets(ends: Ends) -> list[tuple[str, ...]]:
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


def _places(ends: Ends, addresses: tuple[str, ...]) -> tuple[Ints, Ints, list[str]]:
    """Return pairs of a test and a node with one of the addresses, and the names of these nodes."""
    tests = list[int]()
    nodes = list[int]()
    names = list[str]()
    for name, by_address in sorted(ends.items()):
        of_node = set[int]().union(*(by_address.get(address, ()) for address in addresses))
        if of_node:
            tests += sorted(of_node)
            nodes += [len(names)] * len(of_node)
            names.append(name)
    return np.array(tests, dtype=np.int64), np.array(nodes, dtype=np.int64), names


def _members(ratio: Floats, tests: Ints, nodes: Ints, count: int, least: int) -> Bools:
    """Return the nodes of a block: first those slow by themselves, then each by tests that it alone
    explains.

    Fewer than `least` are left as they are.
    """
    own = np.bincount(nodes, ratio[tests], count)
    members = own > 0
    slow = int(members.sum())
    if slow < least:
        return members
    first = np.searchsorted(nodes, np.arange(count + 1))
    touched = np.bincount(tests, members[nodes], len(ratio))  # the number of members in each test
    for _ in range(_SWEEPS):
        changed = False
        for node in np.argsort(own)[-slow:]:
            # By the tests in which no other node is a member
            is_member = members[node]
            where = tests[first[node] : first[node + 1]]
            alone = ratio[where][touched[where] == is_member].sum()
            if (alone > 0) != is_member:
                touched[where] += -1 if is_member else 1
                members[node] = not is_member
                changed = True
        if not changed:
            break
    return members


def _column(
    addresses: tuple[str, ...], nodes: tuple[str, ...], tests: Ints, of: int, sets: int
) -> Column:
    """Make the column; each number of nodes is equally likely, and each choice of them."""
    kind: CauseKind = "socket" if len(addresses) > 1 else "leaf"
    cause = Cause(
        kind=kind,
        name=f"{' '.join(addresses)} of {' '.join(nodes)}",
        nodes=nodes,
        gpus=addresses,
        log_prior=log(_EXPECTED / sets / of) - log_choose(of, len(nodes)),
    )
    return Column(cause, np.unique(tests))
