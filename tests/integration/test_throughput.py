"""The throughput of real nodes: the slow one is named on the first night, and nobody where all are
well.
"""

import logging
import time
from typing import Any

import pytest

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.config.run import setup_of
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.tasks.check import compare
from seatrial.text.words import quantity
from tests.integration.conftest import LocalTestbed
from tests.stored_nights import as_before
from tests.suspects import kinds_and_names, suspect_names


def egress(check: Check) -> dict[str, float]:
    measurements: list[Measurement] = [m for m in check.measurements if m.metric == "tcp_egress"]
    assert {m.unit for m in measurements} == {"MB/s"}
    return {m.subject.name: m.value for m in measurements}


def first_night(local_testbed: LocalTestbed, **fields: Any) -> tuple[Check, Check]:
    """What connectivity finds, and what becomes of it without any history."""
    with local_testbed(nodes=4, **fields) as (run, testbed):
        step = connectivity(CheckContext(run, testbed))
    (judged,) = compare([step.check], setup_of(run.cluster), repeat=as_before)
    return step.check, judged


def test_a_throttled_node_is_the_suspect(
    local_testbed: LocalTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="seatrial")
    check, judged = first_night(local_testbed, faults=[{"node": "node-2", "rate": "200mbit"}])
    assert check.verdict is Verdict.DEGRADED
    assert [suspect.evidence.code for suspect in check.suspects] == ["tcp-node-slow"]
    assert 10 < egress(check)["node-2"] < 26
    assert (
        min(mb_s for name, mb_s in egress(check).items() if name != "node-2")
        > 3 * egress(check)["node-2"]
    )
    assert judged.verdict in (Verdict.DEGRADED, Verdict.FAIL)
    assert set(kinds_and_names(judged)) == {("node", "node-2")}
    assert (
        f"tcp_egress {quantity(egress(check)['node-2'], 'MB/s')} on node-2: "
        in judged.reason.sentence
    )
    assert "MB/s; node-2: sends 2" in caplog.text


def test_healthy_nodes_pass(local_testbed: LocalTestbed) -> None:
    _, judged = first_night(local_testbed)
    assert (judged.verdict, judged.suspects) == (Verdict.PASS, ())
    assert judged.reason.sentence.endswith("as expected by peers")


@pytest.mark.slow
def test_very_slow_link_is_measured_within_a_minute(local_testbed: LocalTestbed) -> None:
    started = time.monotonic()
    check, judged = first_night(local_testbed, faults=[{"node": "node-2", "rate": "100kbit"}])
    assert time.monotonic() - started < 60
    assert egress(check)["node-2"] < 1
    assert set(suspect_names(judged)) == {"node-2"}
