"""The test of each node that follows from a run."""

from dataclasses import replace
from unittest.mock import PropertyMock, patch

import pytest

from seatrial.history.node_tests import NOT_COMPARED, node_tests_of
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult, Suspect
from seatrial.model.verdict import Verdict
from tests.unit.history.stored import a_run


def test_coverage_of_a_run_is_computed_once_for_all_nodes() -> None:
    run = a_run(1, nodes=[{"name": f"node-{n}"} for n in range(50)])
    with patch.object(RunResult, "coverage", PropertyMock(return_value=run.coverage)) as counted:
        tests = list(node_tests_of(run))
    assert counted.call_count == 1
    assert {(test.verdict, test.code) for test in tests} == {(Verdict.PASS, NOT_COMPARED)}


@pytest.mark.parametrize(
    ("nodes", "partners"), [(1, [None]), (2, ["node-1", "node-0"]), (3, [None] * 3)]
)
def test_partner_of_a_node_is_known_only_in_runs_of_two_nodes(
    nodes: int, partners: list[str | None]
) -> None:
    run = a_run(1, nodes=[{"name": f"node-{n}"} for n in range(nodes)])
    assert [test.partner for test in node_tests_of(run)] == partners


def test_pass_beside_a_node_that_failed_is_as_blind_as_a_pass_of_all() -> None:
    """Nothing was compared: the failure of one node is no baseline of another."""
    refused = Reason.of("ssh-refused", address="10.0.0.2", port=222)
    suspect = Suspect("node", "node-1", 1.0, refused, verdict=Verdict.FAIL)
    check = Check("connectivity", Verdict.FAIL, refused, suspects=(suspect,))
    nodes = [{"name": "node-0"}, {"name": "node-1"}]
    run = replace(a_run(1, nodes=nodes), verdict=Verdict.FAIL, reason=refused, checks=(check,))
    outcomes = [(test.verdict, test.code) for test in node_tests_of(run)]
    assert outcomes == [(Verdict.PASS, NOT_COMPARED), (Verdict.FAIL, "ssh-refused")]
