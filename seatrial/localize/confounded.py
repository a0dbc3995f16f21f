"""Findings that other causes explain as well for want of a test that tells them apart, and that
test. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from seatrial.localize.causes import ALWAYS, cut_column
from seatrial.localize.criticism import LEAST_SLOW, slowed_operations
from seatrial.localize.findings import Finding, finding_of
from seatrial.localize.membership import joined
from seatrial.localize.next_test import NextTest
from seatrial.localize.observations import Band, GroupTest, Observed, numbered
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
        findings = [
            f
            for f in findings
            if apart.isdisjoint(f.cause.nodes) or f.cause.kind not in ("cut", "node")
        ]
        cut = cut_column(posterior.observed, (apart, posterior.observed.nodes - apart)).cause
        nodes = (
            c.cause for c in posterior.columns if c.cause.kind == "node" and c.cause.name in apart
        )
        always = {cause.name: cause for cause in (cut, *nodes) if cause.penetrance == ALWAYS}
        findings += [finding_of(posterior, cause, 0.5, band) for cause in always.values()]
        next_tests.append(NextTest(tuple(sorted(apart)[:2])))
    if behind := _behind_a_cut(posterior, findings):
        findings = doubted(findings, behind)
        next_tests.append(_pair_across(posterior, behind[0]))
    findings = doubted(findings, _alone_behind_a_cut(posterior, findings))
    if or_nodes := _explained_by_nodes(posterior, findings):
        findings = doubted(findings, or_nodes)
        next_tests += _with_a_fine_node(posterior, or_nodes[0])
    return findings, next(iter(next_tests), None)


def doubted(findings: Sequence[Finding], some: Sequence[Finding]) -> list[Finding]:
    """Return all findings, `some` of them with a confidence of at most a half."""
    return [replace(f, confidence=min(f.confidence, 0.5)) if f in some else f for f in findings]


def _never_joined(posterior: Posterior, findings: Sequence[Finding]) -> set[str]:
    """Return two or more nodes that no test joins: those that are named, or fine nodes on one side
    of a named cut.
    """
    observed, named = posterior.observed, [finding for finding in findings if finding.named]
    nodes = _without_common_test(
        observed.tests,
        {finding.cause.nodes[0] for finding in named if finding.cause.kind == "node"},
    )
    if len(nodes) > 1:
        return nodes
    for cut in (finding.cause for finding in named if finding.kind == "cut"):
        fine = np.flatnonzero(
            observed.fine & slowed_operations(posterior.left_to(cut), posterior.tests_of(cut))
        )
        side = min(set(cut.nodes), set(observed.nodes.difference(cut.nodes)), key=len)
        if _without_common_test([observed.tests[i] for i in fine], side) == side:
            return side
    return set()


def _without_common_test(tests: Sequence[GroupTest], nodes: set[str]) -> set[str]:
    """Return those of the nodes that none of the tests joins with another of them."""
    met = [nodes.intersection(test.nodes) for test in tests] if len(nodes) > 1 else []
    return nodes - {node for some in met if len(some) > 1 for node in some}


def _behind_a_cut(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """Return the named links whose ends no chain of fine tests joins: a cut between the ends
    explains them too.
    """
    links = [finding for finding in findings if finding.cause.kind == "link" and finding.named]
    sides = joined(posterior.observed.tests, posterior.observed.fine) if links else {}
    return [link for link in links if sides[link.cause.nodes[0]] != sides[link.cause.nodes[1]]]


def _alone_behind_a_cut(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """Return the named nodes that are as slow as what crosses a cut, without a fast test: each may
    be a side of it.
    """
    alone = list[Finding]()
    for cut, node in product(findings, findings):
        if (
            cut.kind == "cut"
            and node.kind == "node"
            and abs(node.slowdown - cut.slowdown) < _ALIKE * cut.slowdown
        ):
            tests = posterior.tests_of(node.cause)
            slowed = tests[slowed_operations(posterior.left_to(node.cause), tests)[tests]]
            alone += (
                [node]
                if len(slowed) and posterior.observed.value[slowed].max() < -node.slowdown / 2
                else []
            )
    return alone


def _explained_by_nodes(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """Return the named findings that other slow nodes explain too, such as most of the nodes.

    Too few of their slow tests are of nodes that were fine in another one, apart from the node that
    is named itself.
    """
    observed, named = posterior.observed, [finding for finding in findings if finding.named]
    clear = _clear_nodes(observed) if named else set()

    def is_sure(finding: Finding) -> bool:
        own = finding.cause.nodes if finding.cause.kind in ("node", "gpu") else ()
        tests = posterior.tests_of(finding.cause)
        bad = tests[observed.bad[tests]]
        sure = [i for i in bad if clear.union(own).issuperset(observed.tests[i].nodes)]
        return len(sure) >= LEAST_SLOW[finding.cause.kind]

    return [finding for finding in named if not is_sure(finding)]


def _clear_nodes(observed: Observed) -> set[str]:
    """Return nodes that were fine where others were slow, or where such nodes were too.

    Where all tests are alike, all may be slow. Those under other conditions count as alike.
    """
    firsts = [observed.tests[i] for i in np.unique(observed.like, return_index=True)[1]]
    alike = numbered((test.collective, len(test.nodes), test.like[-1]) for test in firsts)[
        observed.like
    ]
    has_slow = np.bincount(alike[observed.bad], minlength=len(firsts)) > 0
    clear = observed.nodes_of(np.flatnonzero(has_slow[alike] & observed.fine))
    fine = np.flatnonzero(observed.fine & ~observed.fast & ~has_slow[alike])
    has_slow[[alike[i] for i in fine if clear.issuperset(observed.tests[i].nodes)]] = True
    has_slow[alike[observed.fast]] = False
    return observed.nodes_of(np.flatnonzero(has_slow[alike] & observed.fine))


def _with_a_fine_node(posterior: Posterior, finding: Finding) -> list[NextTest]:
    """Return a pair to test, if any: a node that was fine, and one of a slow test, without the GPUs
    that are blamed.
    """
    observed, tests = posterior.observed, posterior.tests_of(finding.cause)
    clear, met = _clear_nodes(observed), {frozenset(test.nodes) for test in observed.tests}
    bad = (observed.tests[i] for i in tests[observed.bad[tests]])
    doubtful = dict.fromkeys(node for test in bad for node in test.nodes if node not in clear)
    pair = min(
        product(doubtful, sorted(clear)), key=lambda pair: frozenset(pair) in met, default=None
    )
    gpus = {each for test in observed.tests for each in test.gpus if finding.cause.name not in each}
    alike = (min(gpus),) * 2 if gpus and finding.kind == "rail" else ()
    return [NextTest(pair, alike)] if pair else []


def _pair_across(posterior: Posterior, link: Finding) -> NextTest:
    """Return an untested pair of nodes, each joined by fine tests with one end of the link; without
    one, the ends.
    """
    observed = posterior.observed
    sides = joined(observed.tests, observed.fine)
    met = {frozenset(test.nodes) for test in observed.tests}
    one, other = (
        [node for node, side in sides.items() if side == sides[end]] for end in link.cause.nodes
    )
    for pair in product(one, other):
        if frozenset(pair) not in met:
            return NextTest(pair)
    return NextTest(link.cause.nodes[:2])
