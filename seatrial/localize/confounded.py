"""Findings that other causes explain equally well, and the test that would decide between them.
Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np

from seatrial.localize.cause import ALWAYS, Cause, cut_column
from seatrial.localize.criticism import LEAST_SLOW, slowed_operations
from seatrial.localize.findings import Finding, Findings, finding_of, named_of
from seatrial.localize.group_tests import Addresses, GroupTest, Names, joined
from seatrial.localize.next_test import NextTest, untested_pair
from seatrial.localize.observations import Band, Bools, Ints, Observed, numbered
from seatrial.localize.posterior import Posterior

_ALIKE = 0.3  # largest relative difference between the slowdowns of a cut and of a node behind it


def doubt_confounded(
    posterior: Posterior, findings: list[Finding], band: Band
) -> tuple[list[Finding], NextTest | None]:
    """Return the findings, with those that other causes explain equally well at most half sure, and
    the test that would decide.
    """
    next_tests = list[NextTest]()
    # Nodes that were never tested together: each is slow, or all are fine behind a slow switch
    if apart := _never_joined(posterior, findings):
        findings = _cut_or_nodes(posterior, findings, apart, band)
        first_two = sorted(apart)[:2]
        next_tests.append(NextTest(tuple(first_two)))
    if behind := _behind_a_cut(posterior, findings):
        findings = doubted(findings, behind)
        next_tests.append(_pair_across(posterior, behind[0]))
    findings = doubted(findings, _alone_behind_a_cut(posterior, findings))
    if or_nodes := _explained_by_nodes(posterior, findings):
        findings = doubted(findings, or_nodes)
        next_tests += _with_a_fine_node(posterior, or_nodes[0])
    if not next_tests:
        return findings, None
    return findings, next_tests[0]


def _cut_or_nodes(
    posterior: Posterior, findings: Findings, apart: set[str], band: Band
) -> list[Finding]:
    """Replace the findings of the nodes in `apart` by a cut around them and by each node, half
    sure.
    """
    others = [
        finding
        for finding in findings
        if finding.cause.kind not in ("cut", "node") or apart.isdisjoint(finding.cause.nodes)
    ]
    causes = _cut_and_nodes(posterior, apart)
    return others + [finding_of(posterior, cause, 0.5, band) for cause in causes]


def _cut_and_nodes(posterior: Posterior, apart: set[str]) -> list[Cause]:
    """Return the causes that may explain the nodes in `apart`: the cut around them, each node."""
    observed = posterior.observed
    others = observed.nodes - apart
    causes = [cut_column(observed, (apart, others)).cause]
    for column in posterior.columns:
        cause = column.cause
        # Without intermittent variants
        if cause.kind == "node" and cause.penetrance == ALWAYS and cause.name in apart:
            causes.append(cause)
    return causes


def doubted(findings: Findings, some: Findings) -> list[Finding]:
    """Return all findings, those in `some` with a confidence of at most 0.5."""
    every = list(findings)
    for i, finding in enumerate(findings):
        if finding in some:
            confidence = min(finding.confidence, 0.5)
            every[i] = replace(finding, confidence=confidence)
    return every


def _never_joined(posterior: Posterior, findings: Findings) -> set[str]:
    """Return two or more nodes that no test has in common: named nodes, or the nodes on the smaller
    side of a named cut, counting fine tests only.
    """
    observed = posterior.observed
    causes = [finding.cause for finding in named_of(findings)]
    named = {cause.nodes[0] for cause in causes if cause.kind == "node"}
    # A slow test of one node by itself goes over no switch
    for i in np.flatnonzero(observed.bad):
        own = observed.tests[i].nodes
        if len(own) == 1:
            named.discard(own[0])
    nodes = _without_common_test(observed.tests, named)
    if len(nodes) > 1:
        return nodes
    for cut in causes:
        # Of more than two groups, the rest is no side
        if cut.kind not in ("cut", "switch") or len(cut.sides) > 2:
            continue
        inside = set(cut.nodes)
        outside = set(observed.nodes - inside)
        side = min(inside, outside, key=len)
        # In operations that the cut does not slow, nodes are fine anyway
        fine = observed.fine & _slowed_by(posterior, cut)
        tests = [observed.tests[i] for i in np.flatnonzero(fine)]
        if _without_common_test(tests, side) == side:
            return side
    return set()


def _slowed_by(posterior: Posterior, cause: Cause) -> Bools:
    """Return the mask of all tests of the operations that a cause slows."""
    tests = posterior.tests_of(cause)
    return slowed_operations(posterior.left_to(cause), tests)


def _without_common_test(tests: Sequence[GroupTest], nodes: set[str]) -> set[str]:
    """Return the nodes that were never in a test with another of `nodes`."""
    if len(nodes) < 2:
        return nodes
    apart = set(nodes)
    for test in tests:
        met = nodes.intersection(test.nodes)
        if len(met) > 1:
            apart -= met
    return apart


def _behind_a_cut(posterior: Posterior, findings: Findings) -> list[Finding]:
    """Return the named links whose ends are not connected by fine tests: a cut between the ends
    explains them too.
    """
    observed = posterior.observed
    side_of = joined(observed.tests, observed.fine)
    behind = list[Finding]()
    for finding in named_of(findings):
        sides = {side_of[node] for node in finding.cause.nodes}
        if finding.kind == "link" and len(sides) > 1:
            behind.append(finding)
    return behind


def _alone_behind_a_cut(posterior: Posterior, findings: Findings) -> list[Finding]:
    """Return the node findings that are as slow as a cut, and in none of its groups or without a
    fast test: each node may be a side of it.
    """
    alone = list[Finding]()
    for cut, node in product(findings, findings):
        if (cut.kind, node.kind) != ("cut", "node"):
            continue
        is_alike = abs(node.slowdown - cut.slowdown) < _ALIKE * cut.slowdown
        is_inside = any(node.cause.name in side for side in cut.cause.sides)
        fastest = _fastest_of(posterior, node.cause)
        if is_alike and not (is_inside and fastest >= -node.slowdown / 2):
            alone.append(node)
    return alone


def _fastest_of(posterior: Posterior, cause: Cause) -> float:
    """Return the highest log ratio of the tests that a cause slows; infinite if there are none."""
    tests = posterior.tests_of(cause)
    slowed = _slowed_by(posterior, cause)
    values = posterior.observed.value[tests[slowed[tests]]]
    if not len(values):
        return inf
    return float(values.max())


def _explained_by_nodes(posterior: Posterior, findings: Findings) -> list[Finding]:
    """Return the named findings that other slow nodes, such as most of the nodes, explain too.

    Too few of their slow tests are between nodes that were fine in other tests; a blamed node
    itself counts as such a node.
    """
    named = named_of(findings)
    if not named:
        return []
    observed = posterior.observed
    clear = _clear_nodes(observed)
    explained = list[Finding]()
    for finding in named:
        cause = finding.cause
        known = clear
        if cause.kind in ("node", "gpu"):
            known = clear.union(cause.nodes)
        tests = posterior.tests_of(cause)
        bad = observed.bad_of(tests)
        telling = observed.within(known, bad)
        if len(telling) < LEAST_SLOW[cause.kind]:
            explained.append(finding)
    return explained


def _clear_nodes(observed: Observed) -> set[str]:
    """Return the nodes known to be fine: they were fine in a test while like tests were slow.

    If all like tests have the same speed, all of them may be slow, so they show nothing unless
    known fine nodes are among them. Tests under other conditions count as like tests.
    """
    alike = _kinds(observed)
    # First by kinds of tests of which some were slow, so that the level is not that of a fault
    slow = np.bincount(alike[observed.bad], minlength=len(alike))
    is_level_fine = slow > 0
    fine = observed.fine & is_level_fine[alike]
    clear = observed.nodes_of(np.flatnonzero(fine))
    # Then by kinds in which nodes known to be fine were fine
    others = observed.fine & ~fine
    others &= ~observed.fast
    of_clear_nodes = observed.within(clear, np.flatnonzero(others))
    is_level_fine[alike[of_clear_nodes]] = True
    # A test faster than the level shows that the level itself is slow
    is_level_fine[alike[observed.fast]] = False
    fine = observed.fine & is_level_fine[alike]
    return observed.nodes_of(np.flatnonzero(fine))


def _kinds(observed: Observed) -> Ints:
    """Return the kind of each test: collective, number of nodes and GPUs per node, whatever the
    conditions.
    """
    _, places = np.unique(observed.like, return_index=True)
    keys = []
    for i in places:
        test = observed.tests[i]
        gpus_each = test.like[-1]
        keys.append((test.collective, len(test.nodes), gpus_each))
    # One entry for each number in `like`
    kinds = numbered(keys)
    return kinds[observed.like]


def _with_a_fine_node(posterior: Posterior, finding: Finding) -> list[NextTest]:
    """Return a pair to test, if there is one: a fine node and a node of a slow test, without the
    blamed GPUs of a rail.
    """
    observed = posterior.observed
    clear = _clear_nodes(observed)
    tests = posterior.tests_of(finding.cause)
    doubtful = dict[str, None]()
    for i in observed.bad_of(tests):
        doubtful.update(dict.fromkeys(observed.tests[i].nodes))
    suspects = [node for node in doubtful if node not in clear]
    pair = untested_pair(observed.tests, suspects, sorted(clear))
    if pair is None:
        return []
    gpus: Addresses = ()
    if finding.kind == "rail":
        gpus = _without_address(observed.tests, finding.cause.name)
    return [NextTest(pair, gpus)]


def _without_address(tests: Sequence[GroupTest], address: str) -> Addresses:
    """Return GPUs for both nodes of a pair, as used in a test without `address`; empty if all tests
    used it.
    """
    others = set[Names]()
    for test in tests:
        for gpus in test.gpus:
            if address not in gpus:
                others.add(gpus)
    if not others:
        return ()
    return (min(others),) * 2


def _pair_across(posterior: Posterior, link: Finding) -> NextTest:
    """Return an untested pair of nodes, one connected by fine tests to each end of the link; else
    the two ends.
    """
    observed = posterior.observed
    sides = joined(observed.tests, observed.fine)
    tested = {frozenset(test.nodes) for test in observed.tests}
    # A cut between the ends slows all pairs across it, a bad link only its own pair
    ends = link.cause.nodes
    joined_with = []
    for end in ends:
        joined_with.append([node for node, side in sides.items() if side == sides[end]])
    for pair in product(*joined_with):
        if frozenset(pair) not in tested:
            return NextTest(pair)
    return NextTest(ends)
