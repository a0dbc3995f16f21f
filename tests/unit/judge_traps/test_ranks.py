"""Logs that fool others by who took part: that is named before any number counts."""

import pytest

from seatrial.judge.logs import LogsConfig
from seatrial.model.verdict import Verdict
from tests.unit.judge_traps.sweeplogs import HEALTHY, M, judged, log_text


def test_twelve_gpus_asked_and_four_in_one_pod() -> None:
    judgement = judged(log_text(HEALTHY, ranks=4), LogsConfig("H100-SXM", 3, 4, "IB-8x400G"))
    assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, "all_reduce: 4 of 12 ranks took part")
    assert judgement.checks[0].judgements == (), "no number is judged"


def test_all_ranks_on_one_node_of_two() -> None:
    judgement = judged(log_text(HEALTHY, ranks=8, nodes=1), LogsConfig("H100-SXM", 2, 4, "IB-8x400G"))
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason == "all_reduce: all 8 ranks ran on 1 of 2 nodes: node-0"
    spread = judged(log_text(HEALTHY, ranks=8, nodes=2), LogsConfig("H100-SXM", 2, 4, "IB-8x400G"))
    assert spread.verdict is Verdict.PASS


def test_nodes_that_share_a_host_name_are_not_counted_by_it() -> None:
    text = log_text(HEALTHY, ranks=8, nodes=2).replace("node-1", "node-0")
    assert judged(text, LogsConfig("H100-SXM", 2, 4, "IB-8x400G")).verdict is Verdict.PASS


def test_nccl_tests_without_mpi_is_named() -> None:
    alone = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20",
        "# Using devices",
        "#  Rank 0 Group  0 Pid {pid} on {host} device  0 [0x07] NVIDIA H100 80GB HBM3",
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        f"{M} {M // 4} float sum -1 10.0 104.86 0.00 0 10.0 104.86 0.00 0",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 0",
    ]
    both = "\n".join("\n".join(alone).format(pid=pid, host=f"node-{pid}") for pid in (1, 2))
    judgement = judged(both, LogsConfig("H100-SXM", 2, 1))
    assert judgement.verdict is Verdict.FAIL
    assert "1 of 2 ranks took part: nccl-tests was not built with MPI=1" in judgement.reason


def test_seven_of_eight_gpus_are_named_whether_or_not_anybody_said_eight() -> None:
    text = log_text(HEALTHY, ranks=7)
    assert judged(text).reason == "all_reduce: 7 of 8 ranks took part"
    assert judged(text).verdict is Verdict.FAIL
    unsaid = judged(text, LogsConfig("H100-SXM", 1))
    assert unsaid.verdict is Verdict.INCONCLUSIVE
    assert unsaid.reason.startswith("7 of 8 ranks took part, 8 GPUs per node being usual for H100-SXM")


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 3), (15, 2), (8, 10), (6, 3)])
def test_a_number_that_no_nodes_alike_can_have_is_a_fault_also_where_nobody_said_how_many(
    ranks: int, nodes: int
) -> None:
    """And one pod of three, also where its GPUs divide."""
    judgement = judged(log_text(HEALTHY, ranks), LogsConfig("H100-SXM", nodes, None, "IB-8x400G"))
    assert (judgement.verdict, judgement.reason) == (
        Verdict.FAIL,
        f"all_reduce: {ranks} of {8 * nodes} ranks took part",
    )
