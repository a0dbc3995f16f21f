"""Findings that other causes explain as well for want of a test that tells them apart, and that test. Pure."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from seatrial.localize.criticism import LEAST_SLOW, slowed_operations
from seatrial.localize.findings import Finding
from seatrial.localize.next_test import NextTest
from seatrial.localize.observations import GroupTest, Observed, numbered
from seatrial.localize.posterior import Posterior


def never_joined(posterior: Posterior, findings: Sequence[Finding]) -> set[str]:
    """Return two or more nodes that no test joins: those that are named, or fine nodes on one side of a named cut."""
    observed, named = posterior.observed, [finding for finding in findings if finding.named]
    nodes = _without_common_test(
        observed.tests, {finding.cause.nodes[0] for finding in named if finding.cause.kind == "node"}
    )
    if len(nodes) > 1:
        return nodes
    for cut in (finding.cause for finding in named if finding.kind == "cut"):
        fine = np.flatnonzero(observed.fine & slowed_operations(observed, posterior.tests_of(cut)))
        side = min(set(cut.nodes), set(observed.nodes.difference(cut.nodes)), key=len)
        if _without_common_test([observed.tests[i] for i in fine], side) == side:
            return side
    return set()


def _without_common_test(tests: Sequence[GroupTest], nodes: set[str]) -> set[str]:
    """Return those of the nodes that no test (`among` those given, or all) joins with another of them."""
    met = [nodes.intersection(test.nodes) for test in tests] if len(nodes) > 1 else []
    return nodes - {node for some in met if len(some) > 1 for node in some}


def behind_a_cut(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """Return the named links whose ends no chain of fine tests joins: a cut between the ends explains them too."""
    links = [finding for finding in findings if finding.cause.kind == "link" and finding.named]
    sides = _joined(posterior.observed) if links else {}
    return [link for link in links if sides[link.cause.nodes[0]] != sides[link.cause.nodes[1]]]


def explained_by_nodes(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """Return the named findings that other slow nodes explain too, such as most of the nodes.

    Too few of their slow tests are of nodes that were fine in another one, apart from the node that is named itself.
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
    alike = numbered((test.collective, len(test.nodes), test.like[-1]) for test in firsts)[observed.like]
    told = np.bincount(alike[observed.bad], minlength=len(firsts)) > 0
    clear = observed.nodes_of(np.flatnonzero(told[alike] & observed.fine))
    fine = np.flatnonzero(observed.fine & ~observed.fast & ~told[alike])
    told[[alike[i] for i in fine if clear.issuperset(observed.tests[i].nodes)]] = True
    told[alike[observed.fast]] = False
    return observed.nodes_of(np.flatnonzero(told[alike] & observed.fine))


def with_a_fine_node(posterior: Posterior, finding: Finding) -> NextTest | None:
    """Return a pair to test: a node that was fine, and one of a slow test, without the GPUs that are blamed."""
    observed, tests = posterior.observed, posterior.tests_of(finding.cause)
    clear = _clear_nodes(observed)
    doubtful = [n for i in tests[observed.bad[tests]] for n in observed.tests[i].nodes if n not in clear]
    met = {frozenset(test.nodes) for test in observed.tests}
    pairs = [(node, fine) for node in dict.fromkeys(doubtful) for fine in sorted(clear)]
    pair = next((pair for pair in pairs if frozenset(pair) not in met), pairs[0] if pairs else None)
    gpus = {each for test in observed.tests for each in test.gpus if finding.cause.name not in each}
    return NextTest(pair, (min(gpus),) * 2 if gpus and finding.kind == "rail" else ()) if pair else None


def _joined(observed: Observed) -> dict[str, str]:
    """Return for each node the first of the nodes that chains of fine tests join it with."""
    above = {node: node for test in observed.tests for node in test.nodes}

    def first(node: str) -> str:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for test, is_fine in zip(observed.tests, observed.fine, strict=True):
        for node in test.nodes[1:] if is_fine else ():
            above[first(node)] = first(test.nodes[0])
    return {node: first(node) for node in above}


def pair_across(posterior: Posterior, link: Finding) -> NextTest:
    """Return an untested pair of nodes, each joined by fine tests with one end of the link; without one, the ends."""
    sides, met = _joined(posterior.observed), {frozenset(test.nodes) for test in posterior.observed.tests}
    ends = [[node for node, side in sides.items() if side == sides[end]] for end in link.cause.nodes]
    return next(
        (NextTest(pair) for pair in product(*ends) if frozenset(pair) not in met), NextTest(link.cause.nodes[:2])
    )
