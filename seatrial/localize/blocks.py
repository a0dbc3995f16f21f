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
from seatrial.localize.likelihood import SOUGHT, Likelihood
from seatrial.localize.observations import Bools, Ends, Floats, Ints, Observed

_SWEEPS = 6
# Nodes, a share of those with the address, nodes
_LEAST_LEAF, _LEAST_SHARE, _LEAST_SOCKETS = 3, 0.2, 2
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
        if len(names) < _LEAST_LEAF:
            continue
        # Without them in a test
        varied = np.bincount(nodes, minlength=len(names)) < [times[name] for name in names]
        # From so many nodes on, one fault is likelier than a few single ones.
        least = (
            _LEAST_SOCKETS
            if len(addresses) > 1
            else max(_LEAST_LEAF, int(_LEAST_SHARE * len(names)))
        )
        tried = set[tuple[str, ...]]()
        for ratio in ratios:
            members = _members(ratio, tests, nodes, len(names), least)
            chosen = tuple(sorted(names[i] for i in np.flatnonzero(members)))
            is_apart = 2 * (members & varied).sum() >= len(chosen)  # from the nodes themselves
            # Of all nodes it is the rail
            if chosen in tried or not is_apart or not least <= len(chosen) < len(names):
                continue
            tried.add(chosen)
            block = _column(addresses, chosen, tests[members[nodes]], len(names), len(sets))
            blocks += [block, *at_one_end(block, observed.tests)]
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
    return list(dict.fromkeys([*alike, *socket_halves(where)])) if len(alike) > 1 else []


def _places(ends: Ends, addresses: tuple[str, ...]) -> tuple[Ints, Ints, list[str]]:
    """Return pairs of a test and a node with one of the addresses, and the names of these nodes."""
    by_node = {
        node: {i for address in addresses for i in ends[node].get(address, ())}
        for node in sorted(ends)
    }
    names = [node for node, tests in by_node.items() if tests]
    tests = [i for name in names for i in sorted(by_node[name])]
    nodes = np.repeat(np.arange(len(names)), [len(by_node[name]) for name in names])
    return np.array(tests, dtype=np.int64), nodes, names


def _members(ratio: Floats, tests: Ints, nodes: Ints, count: int, least: int) -> Bools:
    """Return the nodes of a block: first those slow by themselves, then each by tests that it alone
    explains.

    Fewer than `least` are left as they are.
    """
    own = np.bincount(nodes, ratio[tests], count)
    members = own > 0
    if members.sum() < least:
        return members
    first = np.searchsorted(nodes, np.arange(count + 1))
    touched = np.bincount(tests, members[nodes], len(ratio))  # the number of members in each test
    for _ in range(_SWEEPS):
        changed = False
        for node in np.argsort(own)[-int((own > 0).sum()) :]:
            where = tests[first[node] : first[node + 1]]
            alone = ratio[where][touched[where] == members[node]].sum()
            if (alone > 0) != members[node]:
                touched[where] += -1 if members[node] else 1
                members[node] = not members[node]
                changed = True
        if not changed:
            break
    return members


def _column(
    addresses: tuple[str, ...], nodes: tuple[str, ...], tests: Ints, of: int, sets: int
) -> Column:
    """Make the column; each number of nodes is equally likely, and each choice of them."""
    log_prior = log(_EXPECTED / sets / of) - log_choose(of, len(nodes))
    kind: CauseKind = "socket" if len(addresses) > 1 else "leaf"
    name = f"{' '.join(addresses)} of {' '.join(nodes)}"
    return Column(Cause(kind, name, nodes, addresses, log_prior=log_prior), np.unique(tests))
