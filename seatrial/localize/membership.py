"""Which nodes of a cut, a leaf switch or a socket are sure, and which may belong to it or not. Pure.

A search finds one division of the nodes; the tests may fit others that differ by a node. Each node is weighed by its
own tests, the others as they were found (naive Bayes).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import log

import numpy as np

from seatrial.localize.causes import Cause
from seatrial.localize.criticism import slowed_operations
from seatrial.localize.observations import Bools, Floats, GroupTest
from seatrial.localize.posterior import Posterior

_STRAYS = 0.03  # the share of tests that are slow for a reason of their own
_SURE = log(9)  # log odds


def unsure_nodes(posterior: Posterior, cause: Cause) -> tuple[str, ...]:
    """Return nodes whose odds to belong to a cause of several nodes, or to its group, are between 1:9 and 9:1."""
    if cause.kind == "cut":
        return _unsure_of_cut(posterior, cause)
    return _unsure_of_set(posterior, cause) if cause.kind in ("leaf", "socket") and len(cause.nodes) > 1 else ()


def _log_odds(posterior: Posterior, cause: Cause) -> Floats:
    """Return the log odds of each test that the cause touches it, by whether it is slow."""
    observed, tests = posterior.left_to(cause), posterior.tests_of(cause)
    within = slowed_operations(observed, tests) & ~observed.alone
    tests = tests[within[tests]]
    share = float(np.clip(observed.bad[tests].mean(), 2 * _STRAYS, 1 - _STRAYS)) if len(tests) else 0.5
    odds = np.where(observed.bad, log(share / _STRAYS), log((1 - share) / (1 - _STRAYS)))
    informative = within & ~posterior.observed.levels.flat[observed.like]  # where none is slow, all may be
    return np.where(informative, odds * observed.weight, 0.0)


def _unsure_of_cut(posterior: Posterior, cause: Cause) -> tuple[str, ...]:
    """Return nodes that are about as likely in another group; of more than two groups also in one of their own.

    So are those that no chain of tests joins with most: together they may be on either side.
    """
    tests, odds = posterior.observed.tests, _log_odds(posterior, cause)
    group_of = {node: i for i, side in enumerate(cause.sides) for node in side}
    numbers = range(len(cause.sides))
    with_group: dict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(numbers, 0.0))
    for test, each in zip(tests, odds.tolist(), strict=True):
        for node in test.nodes:
            groups = {group_of.get(other, -1) for other in test.nodes if other != node}
            if len(groups) == 1 and node in group_of and not groups.isdisjoint(numbers):
                with_group[node][groups.pop()] += each
    chains = joined(tests, odds != 0)
    most = Counter(chains[node] for node in with_group).most_common(1)
    unsure = []
    for node, across in with_group.items():
        own = across.pop(group_of[node])
        others = [*across.values(), *([0.0] if len(numbers) > 2 else [])]
        if min(others) - own < _SURE or chains[node] != most[0][0]:
            unsure.append(node)
    return tuple(sorted(unsure))


def joined(tests: Sequence[GroupTest], some: Bools) -> dict[str, str]:
    """Return for each node the first of the nodes that chains of some of the tests join it with."""
    above = {node: node for test in tests for node in test.nodes}

    def first(node: str) -> str:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for test, is_one in zip(tests, some, strict=True):
        for node in test.nodes[1:] if is_one else ():
            above[first(node)] = first(test.nodes[0])
    return {node: first(node) for node in above}


def _unsure_of_set(posterior: Posterior, cause: Cause) -> tuple[str, ...]:
    """Return nodes that are about as likely in the set as not, by tests that no other node of the set explains."""
    tests, odds = posterior.observed.tests, _log_odds(posterior, cause)
    alone: dict[str, float] = defaultdict(float)
    for test, each in zip(tests, odds.tolist(), strict=True):
        used = {n for n, gpus in zip(test.nodes, test.gpus, strict=False) if not set(cause.gpus).isdisjoint(gpus)}
        members = used.intersection(cause.nodes)
        for node in used:
            alone[node] += each if members <= {node} else 0.0
    return tuple(sorted(node for node, each in alone.items() if abs(each) < _SURE))
