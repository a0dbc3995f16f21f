"""Real nodes of two speeds that tell no difference: the first night is no pass, although no node is alone."""

import pytest

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.config.run import setup_of
from seatrial.model.verdict import Verdict
from tasks.check import compare
from tests.integration.conftest import LocalTestbed
from tests.stored_nights import as_before

FAST = ("node-0", "node-1", "node-2", "node-3")
SLOW = ("node-4", "node-5", "node-6", "node-7")


@pytest.mark.slow
def test_half_of_the_nodes_at_a_tenth_is_no_pass(local_testbed: LocalTestbed) -> None:
    """All links are throttled: what unthrottled ones carry is a matter of how busy the machine is."""
    faults = [{"node": name, "rate": "100mbit"} for name in FAST] + [{"node": name, "rate": "10mbit"} for name in SLOW]
    with local_testbed(nodes=8, faults=faults) as (run, testbed):
        step = connectivity(CheckContext(run, testbed))
    (judged,) = compare([step.check], setup_of(run.cluster), repeat=as_before)
    assert step.check.verdict is Verdict.PASS
    assert judged.verdict is not Verdict.PASS
    assert all(name in judged.reason or name in {s.name for s in judged.suspects} for name in SLOW)
    assert not {s.name for s in judged.suspects} - set(SLOW)
