"""Find which nodes surely belong to a cut, leaf switch or socket, and which may or may not.

Pure.

A search finds one set of nodes; the tests may fit others that differ by a node. Each node is
weighed by its own tests, with all other nodes fixed (naive Bayes).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import log

import numpy as np

from seatrial.localize.cause import Cause, Sides, side_by_node
from seatrial.localize.criticism import slowed_operations
from seatrial.localize.effects import Effect
from seatrial.localize.group_tests import GroupTest, Names, joined
from seatrial.localize.observations import Floats, Ints, Observed
from seatrial.localize.posterior import Posterior

_STRAYS = 0.03  # share of strays: tests that are slow for unrelated reasons
_SURE = log(9)  # log odds from which a node is sure
_ByGroup = defaultdict[str, dict[int, float]]  # log odds of each node, by the index of a group


def unsure_nodes(posterior: Posterior, cause: Cause) -> Names:
    """Return the nodes whose odds to belong to a cause of several nodes, or to their side of a cut,
    are between 1:9 and 9:1.
    """
    if cause.kind == "cut":
        return _unsure_of_cut(posterior, cause)
    if cause.kind in ("leaf", "socket") and len(cause.nodes) > 1:
        return _unsure_of_set(posterior, cause)
    return ()


def with_variants(posterior: Posterior) -> Posterior:
    """Merge causes that differ from the likeliest one of an effect only in unsure nodes into that
    cause.
    """
    effects = [_with_variants(posterior, effect) for effect in posterior.effects]
    return replace(posterior, effects=tuple(effects))


def _with_variants(posterior: Posterior, effect: Effect) -> Effect:
    """Return the effect with the shares of variants of its likeliest cause added to that cause."""
    first, *others = effect.causes
    share, *shares = effect.shares
    causes = [first]
    own_shares = list[float]()
    differing = set[str]()
    unsure = set(unsure_nodes(posterior, first))
    for cause, own_share in zip(others, shares, strict=True):
        nodes = _difference(posterior, first, cause)
        doubtful = unsure
        if nodes:
            doubtful = unsure.union(unsure_nodes(posterior, cause))
        if nodes and nodes <= doubtful:
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
    """Return the nodes in which two leaves, two sockets or two bisections differ; empty for other
    causes.
    """
    if len(one.sides) > 2:
        return set()
    if len(one.sides) != len(other.sides):
        return set()
    if one.kind != other.kind:
        return set()
    if one.gpus != other.gpus:
        return set()
    nodes = set(one.nodes).symmetric_difference(other.nodes)
    if not one.sides:
        return nodes
    # The two cuts may name opposite sides
    rest = set(posterior.observed.nodes - nodes)
    return min(nodes, rest, key=len)


def _log_odds(posterior: Posterior, cause: Cause) -> Floats:
    """Return, for each test, the log odds that the cause affects it, given whether it is slow."""
    observed = posterior.left_to(cause)
    tests = posterior.tests_of(cause)
    within = slowed_operations(observed, tests)
    within &= ~observed.alone
    tests = tests[within[tests]]
    share = _share_slow(observed, tests)
    slow = log(share / _STRAYS)
    fine = log((1 - share) / (1 - _STRAYS))
    odds = np.where(observed.bad, slow, fine)
    # If no like test is slow, all may be slow
    flat = posterior.observed.levels.flat
    informative = within & ~flat[observed.like]
    slower = posterior.slower_than_by(cause)
    informative[tests] &= ~slower[tests]
    return np.where(informative, odds * observed.weight, 0.0)


def _share_slow(observed: Observed, tests: Ints) -> float:
    """Return the share of slow tests, clipped to twice the share of strays and to one minus that
    share.
    """
    if not len(tests):
        return 0.5
    share = observed.bad[tests].mean()
    return float(np.clip(share, 2 * _STRAYS, 1 - _STRAYS))


def _unsure_of_cut(posterior: Posterior, cause: Cause) -> Names:
    """Return the nodes that are about as likely in another group, or, with more than two groups, in
    one of their own.

    Also nodes that tests do not connect to most others, as they may be on either side together, and
    the nodes of the smaller of two groups that no slow test separates.
    """
    tests = posterior.observed.tests
    odds = _log_odds(posterior, cause)
    sides = cause.sides
    group_of = side_by_node(sides)
    with_group = _by_group(tests, odds, sides)
    chains = joined(tests, odds != 0)
    sizes = Counter(chains[node] for node in with_group)
    longest = max(sizes, key=sizes.__getitem__, default="")
    unsure = set[str]()
    if len(sides) > 2:
        unsure = _of_alike_groups(sides, with_group)
    # A slow test is evidence for a border, so the likeliest group has the least sum
    for node, across in with_group.items():
        own = across.pop(group_of[node])
        if len(sides) > 2:
            across[-1] = 0.0  # a group of its own
        gain = min(across.values()) - own
        if gain < _SURE or chains[node] != longest:
            unsure.add(node)
    return tuple(sorted(unsure))


def _by_group(tests: Sequence[GroupTest], odds: Floats, sides: Sides) -> _ByGroup:
    """Return, for each node and group, the summed log odds that a border is between them.

    Only tests whose other nodes are all in one group count.
    """
    group_of = side_by_node(sides)
    nothing = dict.fromkeys(range(len(sides)), 0.0)
    by_group: _ByGroup = defaultdict(nothing.copy)
    for test, log_odds in zip(tests, odds.tolist(), strict=True):
        for node in test.nodes:
            if node not in group_of:
                continue
            groups = {group_of.get(other) for other in test.nodes if other != node}
            if len(groups) != 1:
                continue
            group = groups.pop()
            if group is not None:
                by_group[node][group] += log_odds
    return by_group


def _of_alike_groups(sides: Sides, by_group: _ByGroup) -> set[str]:
    """Return, for each two groups that slow tests do not separate, the nodes of the smaller one."""
    nodes = set[str]()
    for one, other in combinations(range(len(sides)), 2):
        apart = sum(by_group[node][other] for node in sides[one])
        if apart < _SURE:
            smaller = min(sides[one], sides[other], key=len)
            nodes.update(smaller)
    return nodes


def _unsure_of_set(posterior: Posterior, cause: Cause) -> Names:
    """Return the nodes that are about as likely to be in the set as not.

    A slow test counts for a node if no other node of the test may be in the set. A fine test counts
    against all of its nodes; for causes at one end, by the same rule as a slow test.
    """
    users = [_users(test, cause) for test in posterior.observed.tests]
    odds = _log_odds(posterior, cause).tolist()
    unsure = set[str]()
    while True:
        possible = unsure.union(cause.nodes)
        evidence = _evidence(users, odds, cause, possible)
        more = {node for node, log_odds in evidence.items() if abs(log_odds) < _SURE}
        # A node that may be in the set may also explain tests of others
        if more <= unsure:
            return tuple(sorted(unsure))
        unsure |= more


def _evidence(
    users: Sequence[set[str]], odds: Sequence[float], cause: Cause, possible: set[str]
) -> dict[str, float]:
    """Return the log odds of each node to be in the set, if the nodes in `possible` may be
    in it.
    """
    evidence: dict[str, float] = defaultdict(float)
    for nodes, log_odds in zip(users, odds, strict=True):
        is_against_all = log_odds < 0 and not cause.at_one_end
        for node in nodes:
            shows = is_against_all or possible.intersection(nodes) <= {node}
            evidence[node] += log_odds * shows
    return evidence


def _users(test: GroupTest, cause: Cause) -> set[str]:
    """Return the nodes that take part in the test with a blamed GPU."""
    blamed = set(cause.gpus)
    return {node for node, gpus in test.ends if not blamed.isdisjoint(gpus)}
