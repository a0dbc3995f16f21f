"""Logs that fool others by the way that the data went."""

import pytest

from seatrial.judge.logs import LogsConfig
from seatrial.model.verdict import Verdict
from tests.unit.judge_traps.sweeplogs import HEALTHY, G, judged, log_text


@pytest.mark.parametrize("fabric", ["IB-8x400G", "gIB", "OFI", "FasTrak", "EFA-3200G"])
def test_sockets_fail_where_a_fabric_was_meant(fabric: str) -> None:
    evidence = "node-0:1:1 [0] NCCL INFO Using network Socket"
    judgement = judged(log_text(HEALTHY, 16, 2, [evidence]), LogsConfig("H100-SXM", 2, 8, fabric))
    assert judgement.verdict is Verdict.FAIL
    assert f"went over sockets, not over {fabric}: {evidence}" in judgement.reason


def test_sockets_fail_also_where_results_were_not_checked() -> None:
    text = log_text(HEALTHY, 16, 2, ["node-0:1:1 [0] NCCL INFO Using network Socket"])
    unchecked = "\n".join(
        " ".join("N/A" if i in (8, 12) else word for i, word in enumerate(line.split())) if line[0].isdigit() else line
        for line in text.splitlines()
    )
    assert "N/A" in unchecked
    judgement = judged(unchecked, LogsConfig("H100-SXM", 2, 8, "IB-8x400G"))
    assert judgement.verdict is Verdict.FAIL
    assert "went over sockets" in judgement.reason


def test_network_algorithm_and_protocol_are_reported() -> None:
    lines = [
        "node-0:1:1 [0] NCCL INFO Using network IB",
        "node-0:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
        f"node-0:1:1 [0] NCCL INFO AllReduce: {8 * G} Bytes -> Algo 1 proto 2 time 12.0",
    ]
    judgement = judged(log_text(HEALTHY, 16, 2, lines), LogsConfig("H100-SXM", 2, 8, "IB-8x400G"))
    assert "over IB with GPUDirect RDMA, by Ring/Simple" in judgement.reason


def test_a_link_that_is_switched_off_with_nothing_to_compare_is_a_fault() -> None:
    judgement = judged(log_text([value / 20 for value in HEALTHY], before=["NCCL_P2P_DISABLE=1"]))
    assert judgement.verdict is Verdict.FAIL
    assert "with NCCL_P2P_DISABLE=1" in judgement.reason
