"""Several logs that are judged together: control arms, and the worst one speaks."""

import pytest

from seatrial.judge.logs import Log, LogsConfig, judge_logs
from seatrial.model.verdict import Verdict
from tests.unit.judge_traps.sweeplogs import H100, HEALTHY, log, log_text

GB200 = LogsConfig("GB200-NVL72", 2, 4, "MNNVL")


@pytest.mark.parametrize(
    ("switch", "asked"),
    [
        ("NCCL_MNNVL_ENABLE=0", GB200),
        ("node-0:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.", H100),
        ("mpirun -x NCCL_IB_DISABLE=1 all_reduce_perf -b 8", LogsConfig("H100-SXM", 2, 4, "IB-8x400G")),
        ("NCCL_NET=Socket", LogsConfig("H100-SXM", 2, 4, "IB-8x400G")),
    ],
)
def test_a_control_that_is_as_fast_as_its_treatment_is_none(switch: str, asked: LogsConfig) -> None:
    """NVLink off: 837.76 GB/s, on: 838.07, and the published validation passed."""
    on = log("on", log_text([837.76] * 5 if asked is GB200 else HEALTHY, 8, asked.nodes))
    off = log("off", log_text([838.07] * 5 if asked is GB200 else HEALTHY, 8, asked.nodes, [switch]))
    judgement = judge_logs([on, off], asked)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "off is no control" in judgement.reason
    assert "so the switch did nothing or the link is not used" in judgement.reason


def test_a_control_that_is_slower_is_neither_flagged_nor_blamed() -> None:
    on = log("on", log_text(HEALTHY))
    off = log("off", log_text([value / 20 for value in HEALTHY], before=["NCCL_P2P_DISABLE=1"]))
    judgement = judge_logs([on, off], H100)
    assert judgement.verdict is Verdict.PASS
    assert "with NCCL_P2P_DISABLE=1" in judgement.reason
    assert "a control arm, held against nothing" in judgement.reason


@pytest.mark.parametrize(
    ("switch", "asked", "ranks"),
    [
        ("NCCL_IB_DISABLE=1", H100, 8),  # one node has no network to miss
        ("NCCL_P2P_DISABLE=1", LogsConfig("H100-SXM", 2, 1, "IB-1x400G"), 2),  # a GPU alone has no neighbour
        ("NCCL_IB_DISABLE=0", LogsConfig("H100-SXM", 2, 4, "IB-8x400G"), 8),
    ],
)
def test_a_switch_that_need_not_show_makes_no_control(switch: str, asked: LogsConfig, ranks: int) -> None:
    values = HEALTHY if ranks == 8 else [value / 10 for value in HEALTHY]
    pair = [log("a", log_text(values, ranks, asked.nodes)), log("b", log_text(values, ranks, asked.nodes, [switch]))]
    assert judge_logs(pair, asked).verdict is Verdict.PASS


def test_a_log_that_holds_nothing_keeps_the_others_from_passing() -> None:
    judgement = judge_logs([log("a", log_text(HEALTHY)), Log("b", ())], H100)
    assert (judgement.verdict, judgement.reason) == (Verdict.INCONCLUSIVE, "b: no nccl-tests output in it")


def test_the_worst_log_speaks_for_all_and_every_judgement_names_its_log() -> None:
    slow = log_text([value / 4 for value in HEALTHY])
    judgement = judge_logs([log("a", log_text(HEALTHY)), log("b", slow)], H100)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason.startswith("b: all_reduce busbw_plateau 119 GB/s, catalog 480 GB/s (75 % less)")
    assert {j.measurement.conditions["log"] for c in judgement.checks for j in c.judgements} == {"a", "b"}
