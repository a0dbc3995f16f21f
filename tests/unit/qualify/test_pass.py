"""A pass: what is tested in which order, and what follows for each node."""

from dataclasses import replace

import pytest

from seatrial.config.qualify import Qualify
from seatrial.history.node_tests import NOT_COMPARED
from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.choose import Selection
from seatrial.qualify.coverage import coverage
from seatrial.qualify.cycle import Outcome, run_pass
from seatrial.qualify.evidence import Evidence
from seatrial.qualify.summary import pass_result, standing_result
from tests.suspects import suspect_names
from tests.unit.qualify.played import LIVE, NOW, PlayedCluster, idle, node_test

FAIL, SLOW, OPEN = (
    (Verdict.FAIL, "ecc"),
    (Verdict.DEGRADED, "slow"),
    (Verdict.INCONCLUSIVE, "gave-way"),
)

DUE = Selection()


def passed(played: PlayedCluster, selection: Selection = DUE, settings: Qualify = LIVE) -> Outcome:
    return run_pass(played.at_work(settings), selection)


def test_nodes_are_tested_alone_and_then_in_pairs() -> None:
    played = PlayedCluster.of(idle("n0", "n1", "n4", "n5", "n8"))
    outcome = passed(played)
    assert played.batches[:2] == [("qualify", ("n0", "n1", "n4", "n5")), ("qualify", ("n8",))]
    assert {suite for suite, _ in played.batches[2:]} == {"qualify-pairs"}
    assert len(played.batches) == 4
    assert (played.calls, outcome.common) == ([], None)
    played.batches.clear()
    passed(played)  # no node is due, and some pairs of leaf switches are
    assert {suite for suite, _ in played.batches} == {"qualify-pairs"}


def test_a_node_at_the_gate_is_let_in_after_a_pass_that_was_compared() -> None:
    played = PlayedCluster.of([ServiceNode("n0", "gated"), ServiceNode("n1", "gated")])
    played.verdicts = {"n1": (Verdict.PASS, NOT_COMPARED)}
    outcome = passed(played)
    assert played.calls == [("let in", "n0")]
    assert outcome.nodes("leave") == ["n1"]
    result = pass_result("p", "c", NOW, NOW, outcome, DUE)
    assert result.reason.sentence == "2 nodes passed, 1 of them compared with nothing"


@pytest.mark.parametrize("state", ["idle", "gated"])
def test_a_failure_keeps_a_node_out_and_a_dry_run_changes_nothing(state: str) -> None:
    node = replace(idle("n0")[0], state="gated" if state == "gated" else "idle")
    for settings, calls in ((Qualify(), []), (LIVE, [("put out", "n0", "ecc")])):
        played = PlayedCluster.of([node])
        played.verdicts = {"n0": FAIL}
        outcome = passed(played, settings=settings)
        assert outcome.nodes("keep out") == ["n0"]
        assert played.calls == calls
        result = pass_result("p", "c", NOW, NOW, outcome, DUE)
        assert (result.verdict, result.reason.code) == (Verdict.FAIL, "qualify-kept-out")
        assert suspect_names(result) == ["n0"]


def test_slow_node_is_kept_out_only_after_a_second_test() -> None:
    played = PlayedCluster.of(idle("n0", "n1"), [node_test("n1", days=1)])
    played.verdicts = {"n0": SLOW}
    assert passed(played).nodes("keep out") == []
    outcome = passed(played)
    assert played.batches[0] == ("qualify", ("n0",))
    assert outcome.nodes("keep out") == ["n0"]
    assert played.calls == [("put out", "n0", "slow")]


def test_a_test_that_gave_way_counts_for_nothing_and_is_tried_again() -> None:
    played = PlayedCluster.of([ServiceNode("n0", "gated")])
    played.verdicts = {"n0": OPEN}
    outcome = passed(played)
    result = pass_result("p", "c", NOW, NOW, outcome, DUE)
    assert (played.calls, outcome.decisions, result.verdict) == ([], [], Verdict.INCONCLUSIVE)
    played.verdicts = {}
    passed(played)
    assert played.calls == [("let in", "n0")]


def test_more_than_a_third_of_a_batch_that_fail_alike_have_a_common_cause() -> None:
    played = PlayedCluster.of(idle("n0", "n1", "n4", "n5"))
    played.verdicts = {"n0": FAIL, "n4": FAIL}
    outcome = passed(played)
    assert (played.calls, outcome.nodes("keep out")) == ([], [])
    assert (outcome.common or Reason()).code == "qualify-common-cause"
    assert "2 of the last 4" in str(outcome.common)
    played = PlayedCluster.of(idle("n0", "n1", "n4", "n5"))
    played.verdicts = {"n0": FAIL, "n4": (Verdict.FAIL, "xid")}
    assert passed(played).common is None
    assert played.calls == [("put out", "n0", "ecc"), ("put out", "n4", "xid")]


def test_consecutive_equal_failures_have_a_common_cause() -> None:
    past = [node_test("n1", Verdict.FAIL, 2, "ecc"), node_test("n2", Verdict.FAIL, 1, "ecc")]
    played = PlayedCluster.of([ServiceNode("n0", "gated")], past)
    played.verdicts = {"n0": FAIL}
    assert "3 of the last 3" in str(passed(played).common)
    assert "3 of the last 3" in str(passed(played).common)  # as long as no other node passes
    played = PlayedCluster.of([ServiceNode("n0", "gated")], [*past, node_test("n3", days=0.5)])
    played.verdicts = {"n0": FAIL}
    assert passed(played).common is None


def test_nodes_that_fail_again_one_after_the_other_have_no_common_cause() -> None:
    names = ("n0", "n4", "n8")
    past = [node_test(name, Verdict.DEGRADED, 3 - i, "slow") for i, name in enumerate(names)]
    played = PlayedCluster.of(idle(*names), [past[0], node_test("n1", days=2.5), *past[1:]])
    played.verdicts = dict.fromkeys(names, SLOW)
    outcome = passed(played)
    assert outcome.common is None
    assert outcome.nodes("keep out") == [*names]


def test_a_node_that_was_slow_with_two_proven_partners_is_kept_out() -> None:
    names = ("n0", "n1", "n4")
    past = [node_test(name, days=1) for name in names]
    slow = [
        node_test("n0", Verdict.DEGRADED, 0.9, "slow", "n1"),
        node_test("n1", Verdict.DEGRADED, 0.9, "slow", "n0"),
    ]
    cleared = [node_test("n1", days=0.5, partner="n8"), node_test("n4", days=0.5, partner="n8")]
    played = PlayedCluster.of(idle(*names), [*past, *slow, *cleared])
    played.verdicts = {"n0": SLOW, "n4": SLOW}
    outcome = passed(played)
    assert played.batches[0] == ("qualify-pairs", ("n0", "n4"))
    assert outcome.nodes("keep out") == ["n0"]


def test_a_named_node_is_tested_again_and_let_in() -> None:
    past = [node_test("n0", Verdict.FAIL, 1, "ecc")]
    played = PlayedCluster.of(
        [ServiceNode("n0", "out", is_ours=True), ServiceNode("n1", "busy", why="job 7")], past
    )
    outcome = passed(played, Selection(("n0", "n1")))
    assert played.calls == [("let in", "n0")]
    assert outcome.refused == ["n1: is not idle (job 7)"]
    result = pass_result("p", "c", NOW, NOW, outcome, Selection(("n0", "n1")))
    assert result.verdict is Verdict.INCONCLUSIVE


def test_watch_option_waits_for_busy_nodes_that_are_due() -> None:
    busy = replace(idle("n1")[0], state="busy", why="job 7")
    played = PlayedCluster.of([*idle("n0"), busy])
    passed(played)
    assert (played.batches, played.waits) == ([("qualify", ("n0",))], 0)
    passed(played, Selection(watch=True))
    assert played.waits == 3
    assert ("qualify", ("n1",)) in played.batches
    young = PlayedCluster.of(
        [*idle("n0"), busy], [node_test("n0", days=1), node_test("n1", days=1)]
    )
    passed(young, Selection(watch=True))
    assert (young.batches, young.waits) == ([], 0)


def test_a_refusal_of_the_scheduler_is_reported() -> None:
    played = PlayedCluster.of(idle("n0"))
    played.verdicts, played.refuses = {"n0": FAIL}, True
    outcome = passed(played)
    (refusal,) = outcome.failed
    assert (refusal.sentence, refusal.code) == ("n0: no right to drain", "node-unfit")
    assert "no right to drain" in pass_result("p", "c", NOW, NOW, outcome, DUE).reason.sentence


def test_node_stays_a_suspect_until_it_is_back_in_service() -> None:
    played = PlayedCluster.of(
        [*idle("n0", "n4"), ServiceNode("n1", "out", why="ecc in run r", is_ours=True)]
    )
    played.verdicts = {"n0": FAIL}
    outcome = passed(played)
    evidence = Evidence.of(played.past, played.now)
    covered = coverage(played.nodes(), evidence, LIVE, 8, {"n4/gpu-0": NOW})
    base = pass_result("p", "c", NOW, NOW, outcome, DUE)
    result = standing_result(base, played.nodes(), outcome, evidence, covered)
    assert set(suspect_names(result)) == {"n0", "n1"}
    assert [check.name for check in result.checks] == ["gate", "coverage"]
    later = standing_result(base, played.nodes(), Outcome(), evidence, covered)
    assert set(suspect_names(later)) == {"n0", "n1"}


def test_coverage_lists_the_age_of_each_node_gpu_and_pair() -> None:
    nodes = idle("n0", "n1", "n4")
    tests = [
        node_test("n0", days=2),
        node_test("n1", days=8),
        node_test("n0", days=2, partner="n4"),
    ]
    covered = coverage(nodes, Evidence.of(tests, NOW), LIVE, 2, {"n0/gpu-0": tests[0].ended})
    assert covered.overdue_nodes == ["n4", "n1"]
    assert covered.share == pytest.approx(1 / 3)
    assert [name for name, age in covered.gpus.items() if age is not None] == ["n0/gpu-0"]
    assert {pair: age is not None for pair, age in covered.pairs.items()} == {
        ("leaf-0", "leaf-0"): False,
        ("leaf-0", "leaf-1"): True,
    }
    assert covered.gpu_hours_week == pytest.approx(2 * 8 * 300 / 3600)
    first, gpus, pairs, cost = covered.lines()
    assert first == "1 of 3 nodes passed within 7 days; n[1,4]: never tested"
    assert gpus == "5 of 6 GPUs: never tested"
    assert pairs == "1 of 2 pairs of leaf switches passed within 30 days"
    assert cost == "checks took 1.3 GPU hours in the last 7 days"
