"""Which nodes of a cut, a leaf switch or a socket are sure, and which may belong to it or not.

Pure.

A search finds one division of the nodes; the tests may fit others that differ by a node. Each node
is weighed by its own tests, the others as they were found (naive Bayes).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import log

import numpy as np

from seatrial.localize.causes import Cause
from seatrial.localize.criticism import slowed_operations
from seatrial.localize.effects import Effect
from seatrial.localize.group_tests import GroupTest
from seatrial.localize.observations import Bools, Floats
from seatrial.localize.posterior import Posterior

_STRAYS = 0.03  # the share of tests that are slow for a reason of their own
_SURE = log(9)  # log odds


def unsure_nodes(posterior: Posterior, cause: Cause) -> tuple[str, ...]:
    """Return nodes whose odds to belong to a cause of several nodes, or to its group, are between
    1:9 and 9:1.
    """
    if cause.kind == "cut":
        return _unsure_of_cut(posterior, cause)
    if cause.kind in ("leaf", "socket") and len(cause.nodes) > 1:
        return _unsure_of_set(posterior, cause)
    return ()


def with_variants(posterior: Posterior) -> Posterior:
    """Return the effects with causes that differ from the likeliest in unsure nodes alone taken
    together with it.
    """
    effects = tuple(_with_variants(posterior, effect) for effect in posterior.effects)
    return replace(posterior, effects=effects)


def _with_variants(posterior: Posterior, effect: Effect) -> Effect:
    """Return the effect of which variants of its likeliest cause add to the share of that cause."""
    first, *others = effect.causes
    share, *shares = effect.shares
    causes = [first]
    own_shares = list[float]()
    differing = set[str]()
    unsure = set(unsure_nodes(posterior, first))
    for cause, own_share in zip(others, shares, strict=True):
        nodes = _difference(posterior, first, cause)
        if nodes and nodes.issubset(unsure.union(unsure_nodes(posterior, cause))):
            share += own_share
            differing |= nodes
        else:
            causes.append(cause)
            own_shares.append(own_share)
    return replace(
        effect,
        causes=tuple(causes),
        shares=(share, *own_shares),
        unsure=frozenset(differing),
    )


def _difference(posterior: Posterior, one: Cause, other: Cause) -> set[str]:
    """Return the nodes in which two leaves, sockets or cuts in two differ; none for other
    causes.
    """
    if len(one.sides) > 2 or len(one.sides) != len(other.sides):
        return set()
    if (one.kind, one.gpus) != (other.kind, other.gpus):
        return set()
    nodes = set(one.nodes).symmetric_difference(other.nodes)
    if not one.sides:
        return nodes
    # The other side of a cut may be named
    rest = set(posterior.observed.nodes - nodes)
    return min(nodes, rest, key=len)


def _log_odds(posterior: Posterior, cause: Cause) -> Floats:
    """Return the log odds of each test that the cause touches it, by whether it is slow."""
    observed = posterior.left_to(cause)
    tests = posterior.tests_of(cause)
    within = slowed_operations(observed, tests) & ~observed.alone
    tests = tests[within[tests]]
    share = 0.5
    if len(tests):
        share = float(np.clip(observed.bad[tests].mean(), 2 * _STRAYS, 1 - _STRAYS))
    slow = log(share / _STRAYS)
    fine = log((1 - share) / (1 - _STRAYS))
    odds = np.where(observed.bad, slow, fine)
    # Where none is slow, all may be
    informative = within & ~posterior.observed.levels.flat[observed.like]
    informative[tests] &= ~posterior.slower_than_by(cause)[tests]
    return np.where(informative, odds * observed.weight, 0.0)


def _unsure_of_cut(posterior: Posterior, cause: Cause) -> tuple[str, ...]:
    """Return nodes that are about as likely in another group; of more than two groups also in one
    of their own.

    So are those that no chain of tests joins with most: together they may be on either side. Of two
    of many groups that no slow test tells apart, the nodes of the smaller are.
    """
    tests = posterior.observed.tests
    odds = _log_odds(posterior, cause)
    sides = cause.sides
    group_of = {node: i for i, side in enumerate(sides) for node in side}
    groups = range(len(sides))
    with_group: dict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(groups, 0.0))
    # A test tells of a node what it has to do with the group that all others of it are in
    for test, log_odds in zip(tests, odds.tolist(), strict=True):
        for node in test.nodes:
            others = {group_of.get(other, -1) for other in test.nodes if other != node}
            if len(others) == 1 and node in group_of and -1 not in others:
                with_group[node][others.pop()] += log_odds
    chains = joined(tests, odds != 0)
    by_size = Counter(chains[node] for node in with_group).most_common(1)
    unsure = set[str]()
    if len(sides) > 2:
        for one, other in combinations(groups, 2):
            if sum(with_group[node][other] for node in sides[one]) < _SURE:
                smaller = min(sides[one], sides[other], key=len)
                unsure.update(smaller)
    # A slow test across is evidence for a border, so the least sum is the likeliest group
    for node, across in with_group.items():
        own = across.pop(group_of[node])
        if len(sides) > 2:
            across[-1] = 0.0  # a group of its own
        if min(across.values()) - own < _SURE or chains[node] != by_size[0][0]:
            unsure.add(node)
    return tuple(sorted(unsure))


def joined(tests: Sequence[GroupTest], some: Bools) -> dict[str, str]:
    """Return for each node the first of the nodes that chains of some of the tests join it with."""
    above = {node: node for test in tests for node in test.nodes}

    def first(node: str) -> str:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for test, is_one in zip(tests, some, strict=True):
        if is_one:
            for node in test.nodes[1:]:
                above[first(node)] = first(test.nodes[0])
    return {node: first(node) for node in above}


def _unsure_of_set(posterior: Posterior, cause: Cause) -> tuple[str, ...]:
    """Return nodes that are about as likely in the set as not.

    A slow test counts for a node if no other node of it may be in the set; a fine one against all
    of its nodes, or by the same rule if tests within the set are fine.
    """
    users = [_users(test, cause) for test in posterior.observed.tests]
    odds = _log_odds(posterior, cause).tolist()
    unsure = set[str]()
    while True:
        evidence: dict[str, float] = defaultdict(float)
        possible = unsure.union(cause.nodes)
        for nodes, log_odds in zip(users, odds, strict=True):
            against_all = log_odds < 0 and not cause.at_one_end
            for node in nodes:
                shows = against_all or possible.intersection(nodes) <= {node}
                evidence[node] += log_odds * shows
        more = {node for node, log_odds in evidence.items() if abs(log_odds) < _SURE}
        if more <= unsure:
            return tuple(sorted(unsure))
        unsure |= more


def _users(test: GroupTest, cause: Cause) -> set[str]:
    """Return the nodes that take part in a test with a GPU of the cause."""
    blamed = set(cause.gpus)
    return {node for node, gpus in test.ends if not blamed.isdisjoint(gpus)}
