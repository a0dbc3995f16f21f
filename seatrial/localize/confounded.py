"""Findings that other causes explain as well for want of a test that tells them apart, and that
test. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from seatrial.localize.causes import ALWAYS, Cause, cut_column
from seatrial.localize.criticism import LEAST_SLOW, slowed_operations
from seatrial.localize.findings import Finding, finding_of
from seatrial.localize.group_tests import GroupTest, joined
from seatrial.localize.next_test import NextTest, untested_pair
from seatrial.localize.observations import Band, Observed, numbered
from seatrial.localize.posterior import Posterior

_ALIKE = 0.3  # of a cut's slowdown, by which that of a node behind it may differ


def doubt_confounded(
    posterior: Posterior, findings: list[Finding], band: Band
) -> tuple[list[Finding], NextTest | None]:
    """Return the findings, at most half sure of those that other causes explain as well, and a test
    of which it is.
    """
    next_tests = list[NextTest]()
    # Fine with each other behind a slow switch, or each of them slow
    if apart := _never_joined(posterior, findings):
        findings = _cut_or_nodes(posterior, findings, apart, band)
        next_tests.append(NextTest(tuple(sorted(apart)[:2])))
    if behind := _behind_a_cut(posterior, findings):
        findings = doubted(findings, behind)
        next_tests.append(_pair_across(posterior, behind[0]))
    findings = doubted(findings, _alone_behind_a_cut(posterior, findings))
    if or_nodes := _explained_by_nodes(posterior, findings):
        findings = doubted(findings, or_nodes)
        next_tests += _with_a_fine_node(posterior, or_nodes[0])
    return findings, next(iter(next_tests), None)


def _cut_or_nodes(
    posterior: Posterior, findings: Sequence[Finding], apart: set[str], band: Band
) -> list[Finding]:
    """Return the findings with those of the nodes that are `apart` replaced: by a cut around them
    and each of them, half sure.
    """
    doubtful = list[Finding]()
    for finding in findings:
        cause = finding.cause
        if cause.kind not in ("cut", "node") or apart.isdisjoint(cause.nodes):
            doubtful.append(finding)
    cut = cut_column(posterior.observed, (apart, posterior.observed.nodes - apart)).cause
    causes = {cut.name: cut}
    for column in posterior.columns:
        cause = column.cause
        if cause.kind == "node" and cause.name in apart and cause.penetrance == ALWAYS:
            causes[cause.name] = cause
    for cause in causes.values():
        doubtful.append(finding_of(posterior, cause, 0.5, band))
    return doubtful


def doubted(findings: Sequence[Finding], some: Sequence[Finding]) -> list[Finding]:
    """Return all findings, `some` of them with a confidence of at most a half."""
    every = list(findings)
    for i, finding in enumerate(findings):
        if finding in some:
            every[i] = replace(finding, confidence=min(finding.confidence, 0.5))
    return every


def _never_joined(posterior: Posterior, findings: Sequence[Finding]) -> set[str]:
    """Return two or more nodes that no test joins: those that are named, or fine nodes on one side
    of a named cut.
    """
    observed = posterior.observed
    causes = [finding.cause for finding in findings if finding.named]
    named = {cause.nodes[0] for cause in causes if cause.kind == "node"}
    nodes = _without_common_test(observed.tests, named)
    if len(nodes) > 1:
        return nodes
    for cut in causes:
        if cut.kind not in ("cut", "switch"):
            continue
        slowed = slowed_operations(posterior.left_to(cut), posterior.tests_of(cut))
        fine = [observed.tests[i] for i in np.flatnonzero(observed.fine & slowed)]
        inside = set(cut.nodes)
        outside = set(observed.nodes.difference(cut.nodes))
        side = min(inside, outside, key=len)
        if _without_common_test(fine, side) == side:
            return side
    return set()


def _without_common_test(tests: Sequence[GroupTest], nodes: set[str]) -> set[str]:
    """Return those of the nodes that none of the tests joins with another of them."""
    if len(nodes) < 2:
        return nodes
    apart = set(nodes)
    for test in tests:
        met = nodes.intersection(test.nodes)
        if len(met) > 1:
            apart -= met
    return apart


def _behind_a_cut(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """Return the named links whose ends no chain of fine tests joins: a cut between the ends
    explains them too.
    """
    links = [finding for finding in findings if finding.cause.kind == "link" and finding.named]
    if not links:
        return []
    side_of = joined(posterior.observed.tests, posterior.observed.fine)
    behind = list[Finding]()
    for link in links:
        one, other = link.cause.nodes
        if side_of[one] != side_of[other]:
            behind.append(link)
    return behind


def _alone_behind_a_cut(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """Return the named nodes that are as slow as what crosses a cut, without a fast test: each may
    be a side of it.
    """
    alone = list[Finding]()
    for cut, node in product(findings, findings):
        if cut.kind != "cut" or node.kind != "node":
            continue
        if abs(node.slowdown - cut.slowdown) < _ALIKE * cut.slowdown:
            tests = posterior.tests_of(node.cause)
            slowed = slowed_operations(posterior.left_to(node.cause), tests)
            values = posterior.observed.value[tests[slowed[tests]]]
            if len(values) and values.max() < -node.slowdown / 2:
                alone.append(node)
    return alone


def _explained_by_nodes(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """Return the named findings that other slow nodes explain too, such as most of the nodes.

    Too few of their slow tests are of nodes that were fine in another one, apart from the node that
    is named itself.
    """
    named = [finding for finding in findings if finding.named]
    if not named:
        return []
    observed = posterior.observed
    clear = _clear_nodes(observed)

    def is_sure(cause: Cause) -> bool:
        known = clear
        if cause.kind in ("node", "gpu"):
            known = clear.union(cause.nodes)
        tests = posterior.tests_of(cause)
        bad = observed.bad_of(tests)
        sure = sum(known.issuperset(observed.tests[i].nodes) for i in bad)
        return sure >= LEAST_SLOW[cause.kind]

    return [finding for finding in named if not is_sure(finding.cause)]


def _clear_nodes(observed: Observed) -> set[str]:
    """Return nodes that were fine where others were slow, or where such nodes were too.

    Where all tests are alike, all may be slow. Those under other conditions count as alike.
    """
    _, places = np.unique(observed.like, return_index=True)
    firsts = [observed.tests[i] for i in places]
    # By kind of like tests
    kind = numbered((test.collective, len(test.nodes), test.like[-1]) for test in firsts)
    alike = kind[observed.like]
    # First where a test of the same kind was slow
    has_slow = np.bincount(alike[observed.bad], minlength=len(firsts)) > 0
    clear = observed.nodes_of(np.flatnonzero(has_slow[alike] & observed.fine))
    # Then also where nodes that are clear were fine, unless a fast test shows the level to be slow
    fine = np.flatnonzero(observed.fine & ~observed.fast & ~has_slow[alike])
    of_clear_nodes = [i for i in fine if clear.issuperset(observed.tests[i].nodes)]
    has_slow[alike[of_clear_nodes]] = True
    has_slow[alike[observed.fast]] = False
    return observed.nodes_of(np.flatnonzero(has_slow[alike] & observed.fine))


def _with_a_fine_node(posterior: Posterior, finding: Finding) -> list[NextTest]:
    """Return a pair to test, if any: a node that was fine, and one of a slow test, without the GPUs
    that are blamed.
    """
    observed = posterior.observed
    clear = _clear_nodes(observed)
    tests = posterior.tests_of(finding.cause)
    doubtful = dict[str, None]()
    for i in observed.bad_of(tests):
        for node in observed.tests[i].nodes:
            if node not in clear:
                doubtful[node] = None
    pair = untested_pair(observed.tests, doubtful, sorted(clear))
    if pair is None:
        return []
    if finding.kind != "rail":
        return [NextTest(pair)]
    others = {
        gpus for test in observed.tests for gpus in test.gpus if finding.cause.name not in gpus
    }
    if not others:
        return [NextTest(pair)]
    alike = min(others)
    return [NextTest(pair, (alike, alike))]


def _pair_across(posterior: Posterior, link: Finding) -> NextTest:
    """Return an untested pair of nodes, each joined by fine tests with one end of the link; without
    one, the ends.
    """
    observed = posterior.observed
    sides = joined(observed.tests, observed.fine)
    tested = {frozenset(test.nodes) for test in observed.tests}
    ends = link.cause.nodes[:2]
    one, other = ([node for node, side in sides.items() if side == sides[end]] for end in ends)
    for pair in product(one, other):
        if frozenset(pair) not in tested:
            return NextTest(pair)
    return NextTest(ends)
