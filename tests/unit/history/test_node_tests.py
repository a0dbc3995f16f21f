"""The test of each node that follows from a run."""

from unittest.mock import PropertyMock, patch

import pytest

from seatrial.history.node_tests import NOT_COMPARED, node_tests_of
from seatrial.model.result import RunResult
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
