"""Logs that fool others by what was measured, and what it is held against."""

import pytest

from seatrial.catalog.published import from_catalog
from seatrial.judge.logs import LogsConfig
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from tests.unit.judge_traps.sweeplogs import HEALTHY, G, M, judged, log_text


def test_the_average_of_a_mixed_sweep_counts_for_nothing() -> None:
    slow = log_text([value / 4 for value in HEALTHY]).replace("123.4", "480.0")
    assert judged(log_text(HEALTHY).replace("123.4", "1.2")).verdict is Verdict.PASS
    assert judged(slow).verdict is Verdict.FAIL


@pytest.mark.parametrize(("algorithm", "verdict"), [("Ring", Verdict.INCONCLUSIVE), ("NVLS", Verdict.PASS)])
def test_what_is_impossible_for_a_ring_is_not_for_nvls(algorithm: str, verdict: Verdict) -> None:
    judgement = judged(log_text([550.0] * 5, before=[f"export NCCL_ALGO={algorithm}"]))
    assert judgement.verdict is verdict
    assert f"by {algorithm}" in judgement.reason


def test_a_ring_is_held_against_rings() -> None:
    """367 GB/s is what a ring reaches on H200, and 24 % below what NVLS does."""
    busbw = (300.0, 330.0, 355.0, 365.0, 367.0)
    sizes = (512 * M, G, 4 * G, 8 * G, 16 * G)
    h200 = LogsConfig("H200-SXM", 1, 8)
    assert judged(log_text(busbw, sizes=sizes, before=["NCCL_ALGO=Ring all_reduce_perf"]), h200).verdict is Verdict.PASS
    assert judged(log_text(busbw, sizes=sizes), h200).verdict is Verdict.FAIL


def test_the_same_reference_as_in_a_run() -> None:
    """What `judge` holds a plateau against is what the catalog says of the largest size."""
    (check,) = judged(log_text(HEALTHY)).checks
    plateau = next(j for j in check.judgements if j.measurement.metric == "busbw_plateau")
    baseline = from_catalog(Setup("H100-SXM", 1, 8, 8), "all_reduce", 8 * G, plateau=True)
    assert baseline is not None
    assert plateau.expected.low == baseline.low
