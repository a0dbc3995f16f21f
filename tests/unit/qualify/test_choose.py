"""Which nodes a pass tests, alone and in pairs."""

from datetime import timedelta

import pytest

from seatrial.history.node_tests import UNATTRIBUTED, NodeTest
from seatrial.model.errors import InputError
from seatrial.model.verdict import Verdict
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.choose import Selection, batches, candidates, may_test
from seatrial.qualify.evidence import GAVE_WAY, Evidence
from seatrial.qualify.pairs import choose_pair, proven, slow_with
from tests.unit.qualify.played import NOW, idle, node_test

WEEK, MONTH = timedelta(days=7), timedelta(days=30)
FAIL, SLOW, OPEN = Verdict.FAIL, Verdict.DEGRADED, Verdict.INCONCLUSIVE

DUE = Selection()


def chosen(nodes: list[ServiceNode], *tests: NodeTest, selection: Selection = DUE) -> list[str]:
    return [node.name for node in candidates(nodes, Evidence.of(tests, NOW), selection, WEEK)]


@pytest.mark.parametrize(
    ("tests", "due"),
    [
        ([], True),
        ([node_test("n0", days=3)], False),
        ([node_test("n0", days=3.5)], True),
        ([node_test("n0", days=3.5), node_test("n0", OPEN, 1, GAVE_WAY)], True),
        ([node_test("n0", days=1), node_test("n0", OPEN, 0.5, GAVE_WAY)], False),
        ([node_test("n0", days=1), node_test("n0", SLOW, 0.5, "slow")], True),
        ([node_test("n0", days=1), node_test("n0", OPEN, 0.5, UNATTRIBUTED)], True),
        ([node_test("n0", SLOW, 0.6, "slow"), node_test("n0", SLOW, 0.5, "slow")], False),
        ([node_test("n0", SLOW, 4.6, "slow"), node_test("n0", SLOW, 4.5, "slow")], True),
    ],
)
def test_node_is_due_by_age_or_after_a_doubtful_test(tests: list[NodeTest], due: bool) -> None:
    assert chosen(idle("n0"), *tests) == ["n0"] * due


def test_nodes_are_chosen_by_gate_then_doubt_then_age() -> None:
    nodes = [*idle("n0", "n1", "n2", "n3"), ServiceNode("n4", "gated"), ServiceNode("n5", "busy")]
    nodes.append(ServiceNode("n6", "gated", has_failed=True))
    tests = [
        node_test("n0", days=5),
        node_test("n1", days=6),
        node_test("n2", days=2),
        node_test("n2", SLOW, 1, "s"),
    ]
    assert chosen(nodes, *tests) == ["n4", "n2", "n3", "n1", "n0"]
    assert chosen(nodes, *tests, selection=Selection(idle=False)) == ["n4"]
    assert chosen(nodes, *tests, selection=Selection(gated=False)) == ["n2", "n3", "n1", "n0"]


def test_named_nodes_are_candidates_whatever_their_age_and_state() -> None:
    nodes = [
        *idle("n0"),
        ServiceNode("n1", "busy", why="job 7"),
        ServiceNode("n2", "out", is_ours=True),
    ]
    nodes.append(ServiceNode("n3", "out"))
    selection = Selection(("n2", "n1", "n0", "n2", "n3"))
    taken = candidates(nodes, Evidence.of([node_test("n0")], NOW), selection, WEEK)
    assert [(node.name, may_test(node)) for node in taken] == [
        ("n2", True),
        ("n1", False),
        ("n0", True),
        ("n3", False),
    ]
    with pytest.raises(InputError, match="node 'n9': is no node"):
        chosen(nodes, selection=Selection(("n9",)))


@pytest.mark.parametrize(
    ("name", "legal"), [("node10", "nearest: n10"), ("x", r"legal: n\[10-12\]")]
)
def test_a_mistyped_node_is_refused_with_the_nearest_else_the_legal_ones(
    name: str, legal: str
) -> None:
    with pytest.raises(InputError, match=f"; {legal}$"):
        chosen(idle("n10", "n11", "n12"), selection=Selection((name,)))


def test_a_node_at_the_gate_or_in_doubt_has_a_job_of_its_own() -> None:
    nodes = [ServiceNode("n9", "gated"), *idle("n0", "n1", "n2", "n3")]
    evidence = Evidence.of([node_test("n1", FAIL, 1, "ecc")], NOW)
    # one test that failed for sure is no doubt: the fault is known
    assert [[n.name for n in batch] for batch in batches(nodes, evidence, 2)] == [
        ["n9"],
        ["n1"],
        ["n0", "n2"],
        ["n3"],
    ]


def pair(nodes: list[ServiceNode], *tests: NodeTest, among: tuple[str, ...] = ()) -> set[str]:
    chosen = choose_pair(nodes, Evidence.of(tests, NOW), MONTH, among)
    return {node.name for node in chosen or ()}


def test_the_oldest_pair_of_leaf_switches_comes_first() -> None:
    nodes = idle("n0", "n1", "n4", "n8")
    tests = [
        *(node_test(a, days=20, partner=b) for a, b in (("n0", "n1"), ("n0", "n4"), ("n1", "n8"))),
        node_test("n4", days=25, partner="n8"),
    ]
    assert pair(nodes, *tests) == {"n4", "n8"}
    young = [node_test(t.node, days=10, partner=t.partner) for t in tests]
    assert pair(nodes, *young) == set()
    assert pair(nodes, *young, among=("n1",)) & {"n1"}


def test_partners_rotate_within_a_pair_of_leaf_switches() -> None:
    nodes = idle("n0", "n1", "n4", "n5")
    tests = [node_test("n0", days=20, partner="n4"), node_test("n4", days=20, partner="n0")]
    tests += [node_test(a, days=16, partner=b) for a, b in (("n0", "n1"), ("n4", "n5"))]
    assert pair(nodes, *tests) == {"n1", "n5"}  # n0 and n4 met last time


def test_a_node_that_was_slow_meets_another_partner() -> None:
    nodes = idle("n0", "n1", "n4")
    slow = [node_test("n0", SLOW, 1, "slow", "n1"), node_test("n1", SLOW, 1, "slow", "n0")]
    assert pair(nodes, *slow) in ({"n0", "n4"}, {"n1", "n4"})
    assert pair(idle("n0", "n1"), *slow) == set()  # neither could clear the other
    assert slow_with(slow[:1]) == ["n1"]


def test_only_nodes_that_passed_lately_are_partners() -> None:
    nodes = [*idle("n0", "n1", "n2"), ServiceNode("n3", "busy")]
    tests = [
        node_test("n0", days=1),
        node_test("n1", days=8),
        node_test("n2", days=2),
        node_test("n2", SLOW, 1, "s"),
    ]
    assert [
        node.name for node in proven(nodes, Evidence.of([*tests, node_test("n3")], NOW), WEEK)
    ] == ["n0"]
