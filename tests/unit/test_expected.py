"""Figures that somebody expects without having measured them: where they judge, and how they get on
with the others.
"""

from collections.abc import Sequence

import pytest

from seatrial.catalog import trainings
from seatrial.catalog.published import from_catalog, nearest_figures, published, swept_sizes
from seatrial.checks.collectives.section import SweepSizes
from seatrial.checks.suites import load_suite
from seatrial.checks.training.section import Training, TransformerSize, Workload
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import Knowledge, explained
from seatrial.judge.number import judge_number as judge
from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, LogsJudgement, judge_logs
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, Judgement
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.nccl import parse_text
from tests.sample_sweeps import CLUSTER, busbw, plateau

G, M = 1 << 30, 1 << 20
H100 = Setup("H100-SXM", 1, 8, 8)


def throughput(value: float, workload: Workload, ranks: int = 8) -> Measurement:
    where: dict[str, ConditionValue] = {"ranks": ranks, "batch_per_rank": workload.batch_per_rank}
    return Measurement("throughput", value, "samples/s", CLUSTER, where | workload.conditions())


def judged(m: Measurement, setup: Setup, siblings: Sequence[Measurement] = ()) -> Judgement:
    judgement = judge(m, published(m, setup, swept_sizes(siblings)(m)))
    assert judgement is not None
    return judgement


def a_log(gb_s: dict[int, float], settings: str = "", ranks: int = 8) -> str:
    """What all_reduce_perf prints of one node, with that busbw by message size."""
    lines = [*settings.splitlines(), "# Using devices"]
    lines += [
        f"#  Rank {n:2} Group  0 Pid {n + 9} on gpu-0 device {n:2} [0x0{n}] NVIDIA H100 80GB HBM3"
        for n in range(ranks)
    ]
    for size, rate in gb_s.items():
        time_us = size / (rate / (2 * (ranks - 1) / ranks)) / 1e3
        side = f"{time_us:10.2f} {rate / (2 * (ranks - 1) / ranks):8.2f} {rate:8.2f} 0"
        lines.append(f"{size:12} {size // 4:12} float sum -1 {side} {side}")
    return "\n".join(
        [*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 100.0", ""]
    )


def judge_log(text: str, config: LogsConfig) -> LogsJudgement:
    return judge_logs([Log("log", tuple(parse_text(text, "log")))], config)


def shown(check: Check, setup: Setup) -> Check:
    (judged_check,) = explained(assess([check], Knowledge(setup)).checks, setup)
    return judged_check


# NVLink of eight H100: 400 to 450 GB/s are expected, 480 were measured, and 460 is a floor


@pytest.mark.parametrize("gb_s", [400, 430, 450])
@pytest.mark.parametrize("largest", [8 * G, 16 * G])
def test_rate_that_a_recipe_expects_of_nvlink_passes(gb_s: float, largest: int) -> None:
    """430 GB/s at 16G once failed by the floor of 460 GB/s of another source."""
    judgement = judged(busbw(gb_s, largest, 8), H100)
    assert (judgement.verdict, judgement.source) == (Verdict.PASS, "catalog"), judgement.reason
    assert "gpu_cluster_testing" in judgement.reason.sentence


@pytest.mark.parametrize("lowest", [8 * 1024, 2 * M, 512 * M])
@pytest.mark.parametrize("largest", [8 * G, 16 * G])
def test_a_whole_sweep_that_ends_where_the_recipe_expects_it_passes(
    lowest: int, largest: int
) -> None:
    """Every size at the same part of what others measured: no size votes against the plateau."""
    sizes = SweepSizes(min_bytes=lowest, max_bytes=largest).sizes()
    text = a_log({size: 401 / measured_at(8 * G) * measured_at(size) for size in sizes})
    judgement = judge_log(text, LogsConfig("H100-SXM", 1, 8))
    assert judgement.verdict is Verdict.PASS, judgement.reason


def measured_at(size: int) -> float:
    """What others measured on eight H100, in GB/s; in proportion to the size below the smallest
    that they published.
    """
    baseline = from_catalog(H100, "all_reduce", max(size, M))
    assert baseline is not None
    return baseline.centre * min(1, size / M)


def test_rate_below_every_source_does_not_pass() -> None:
    assert judged(busbw(390, 16 * G, 8), H100).verdict is Verdict.DEGRADED
    assert judged(busbw(230, 16 * G, 8), H100).verdict is Verdict.FAIL


def test_rate_near_one_measurement_passes_below_the_floor_of_another_source() -> None:
    """H200: one source has a floor of 431 GB/s, another measured 482, of which 15 % less is
    expected.
    """
    h200 = Setup("H200-SXM", 1, 8, 8)
    verdicts = [judged(busbw(gb_s, 16 * G, 8), h200).verdict for gb_s in (435, 420, 405)]
    assert verdicts == [Verdict.PASS, Verdict.DEGRADED, Verdict.FAIL]


# The network alone: each GPU has one NIC of HDR, and 200 to 240 GB/s are those of eight

NETWORK = "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_ALGO=Ring"


def of_network(gb_s: float) -> LogsJudgement:
    """The verdict on a log of the recipe's command on one node."""
    text = a_log({size * G: gb_s for size in (1, 2, 4, 8)}, NETWORK)
    return judge_log(text, LogsConfig("H100-SXM", 1, 8, "IB-8x200G"))


@pytest.mark.parametrize(
    ("gb_s", "verdict"),
    [
        (240, Verdict.INCONCLUSIVE),
        (200, Verdict.INCONCLUSIVE),
        (23, Verdict.PASS),
        (2, Verdict.FAIL),
    ],
)
def test_network_arm_is_judged_by_the_nic_of_each_gpu(gb_s: float, verdict: Verdict) -> None:
    judgement = of_network(gb_s)
    assert judgement.verdict is verdict, judgement.reason


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("gb_s", [200, 240])
def test_hdr_between_nodes_passes_where_it_reaches_what_is_expected(
    nodes: int, gb_s: float
) -> None:
    siblings = [busbw(gb_s, size * G, 8 * nodes) for size in (1, 2, 4, 8)]
    setup = Setup("H100-SXM", nodes, 8, 8, "IB-8x200G", 450, 200, 1.0)
    assert judged(plateau(gb_s, 8 * nodes), setup, siblings).verdict is Verdict.PASS


# Training

RESNET = Workload(model="resnet50", batch_per_rank=64)
SHIPPED_RESNET = load_suite("resnet50-fp32").section(Training)
RECIPE = TransformerSize(layers=12, width=1024, heads=16, sequence_length=512, vocabulary=32_000)


@pytest.mark.parametrize(
    ("samples_s", "verdict"),
    [
        (14_000, Verdict.PASS),
        (20_000, Verdict.PASS),
        (10_000, Verdict.DEGRADED),
        (6_000, Verdict.FAIL),
    ],
)
def test_a_training_of_the_same_kind_is_judged_by_what_is_expected(
    samples_s: float, verdict: Verdict
) -> None:
    assert SHIPPED_RESNET  # the suite that measures it
    judgement = judged(throughput(samples_s, SHIPPED_RESNET.workload(gpus=True)), H100)
    assert (judgement.verdict, judgement.source) == (verdict, "catalog")
    assert (
        "14,000 samples/s expected of 8 H100-SXM that train resnet50 in fp32, batch 64"
        in judgement.reason.sentence
    )


def trained(samples_s: float, workload: Workload, setup: Setup = H100) -> Check:
    m = throughput(samples_s, workload, setup.ranks)
    return shown(Check("training", Verdict.PASS, uncoded("trained"), measurements=(m,)), setup)


@pytest.mark.parametrize(
    ("workload", "nodes", "difference"),
    [
        (Workload(model="resnet50", batch_per_rank=64, precision="bf16"), 1, "precision"),
        (Workload(model="resnet50", batch_per_rank=32), 1, "batch"),
        (RESNET, 2, "number of GPUs"),
        (Workload(model="resnet50", batch_per_rank=64, image_size=128), 1, "image size"),
        (Workload(model="transformer", batch_per_rank=32), 1, "model"),
        (Workload(model="transformer", transformer=RECIPE, batch_per_rank=64), 1, "batch"),
    ],
)
def test_different_training_is_shown_but_not_judged(
    workload: Workload, nodes: int, difference: str
) -> None:
    check = trained(8_000, workload, Setup("H100-SXM", nodes, 8, 8))
    assert (check.verdict, [j.source for j in check.judgements]) == (Verdict.PASS, ["sanity"])
    assert "not judged by the " in check.reason.sentence
    assert check.reason.sentence.endswith(f"differs in {difference}")


@pytest.mark.parametrize("samples_s", [500, 8_000])
def test_published_rate_that_no_gpu_can_reach_is_not_used(samples_s: float) -> None:
    check = trained(samples_s, Workload(model="transformer", transformer=RECIPE, batch_per_rank=32))
    assert (check.verdict, [j.source for j in check.judgements]) == (Verdict.PASS, ["sanity"])
    assert "more than an H100 has for fp32): it has no range to judge by" in check.reason.sentence


def test_training_on_hardware_without_figures_shows_none() -> None:
    assert "not judged by" not in trained(8_000, RESNET, Setup("B200-SXM", 1, 8, 8)).reason.sentence


def test_measured_training_figure_is_called_measured() -> None:
    reason = trained(8_000, RESNET, Setup("H200-SXM", 1, 8, 8)).reason
    assert "2,797 samples/s measured on 1 H200-SXM that trains resnet50 in bf16" in reason.sentence
    assert reason.sentence.endswith("differs in number of GPUs and precision")


def test_every_published_training_figure_has_plausible_values() -> None:
    for row in trainings():
        assert row.kind in ("expected", "measured"), row
        of_samples = row.unit == "samples/s"
        assert row.kind == "expected" or (row.low_rate is None) == of_samples, row
        assert row.source, row
        assert row.low_rate is None or 0 < row.low_rate < row.rate, row
    keys = {
        (row.hardware, row.gpus, row.model, row.precision, row.compile, row.batch_per_rank)
        for row in trainings()
    }
    assert len(keys) == len(trainings())


def test_published_matmul_rate_is_shown_but_not_judged() -> None:
    conditions: dict[str, ConditionValue] = {
        "device": "NVIDIA H100 80GB HBM3",
        "dtype": "bfloat16",
        "size": 8192,
    }
    m = Measurement("matmul", 500, "TFLOP/s", Subject("gpu", "node-0/gpu-0"), conditions)
    check = shown(Check("devices", Verdict.PASS, uncoded("ok"), measurements=(m,)), H100)
    assert check.verdict is Verdict.PASS
    assert (
        "not judged by the 794 TFLOP/s of matmul bf16 on H100-SXM (measured, stas00"
        in check.reason.sentence
    )


def tokens_per_gpu(value: float, **conditions: ConditionValue) -> Measurement:
    where: dict[str, ConditionValue] = {
        "ranks": 8,
        "batch_per_rank": 2,
        "model": "llama 8b",
        "precision": "bf16",
    }
    return Measurement(
        "tokens_per_gpu", value, "tokens/s", CLUSTER, {**where, "sequence": 8192, **conditions}
    )


@pytest.mark.parametrize(
    ("value", "conditions", "verdict"),
    [
        (5800.0, {}, Verdict.PASS),
        (4500.0, {}, Verdict.DEGRADED),  # 22 % below torchtitan's 5,762
        (2000.0, {}, Verdict.FAIL),
        (5800.0, {"compile": True}, Verdict.PASS),
        (5000.0, {"compile": True}, Verdict.DEGRADED),  # torchtitan's compiled 6,667
    ],
)
def test_a_published_training_judges_the_same_training(
    value: float, conditions: dict[str, ConditionValue], verdict: Verdict
) -> None:
    judgement = judged(tokens_per_gpu(value, **conditions), H100)
    assert (judgement.verdict, judgement.source) == (verdict, "catalog")
    assert "torchtitan" in judgement.reason.sentence or verdict is Verdict.PASS


def test_another_training_is_shown_beside_the_nearest_published_one() -> None:
    other = tokens_per_gpu(900.0, sequence=4096, parallel="tp 2")
    assert not published(other, H100, ())
    note = nearest_figures(Check("training", Verdict.PASS, Reason(), measurements=(other,)), H100)
    assert note[0].sentence.endswith("differs in sequence and parallel")
