"""The model of what healthy nodes reach of their links, and how it judges plateaus without a
published row.
"""

from dataclasses import replace

import pytest

from seatrial.catalog import Reference, references, with_links
from seatrial.catalog.published import published as published_baselines
from seatrial.catalog.published import swept_sizes
from seatrial.catalog.reach import FLOOR, LOW, SMALLEST_BYTES, from_reach, model, one_nic_less
from seatrial.judge.number import judge_number as judge
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from tests.sample_sweeps import busbw, plateau

G = 1 << 30
SIZES = [1 * G, 2 * G, 4 * G, 8 * G]


def ib(nodes: int, fabric: str | None = "IB-8x400G") -> Setup:
    return with_links(Setup("H100-SXM", nodes, 8, 8, fabric))


def swept(whole: Measurement) -> list[Measurement]:
    """The sizes of the sweep that the plateau summarises."""
    return [
        replace(whole, metric="busbw", conditions={**whole.conditions, "message_bytes": size})
        for size in SIZES
    ]


def verdict_of(
    value: float, setup: Setup, operation: str = "all_reduce"
) -> tuple[Verdict, str | None]:
    whole = plateau(value, setup.ranks, operation)
    judgement = judge(whole, published_baselines(whole, setup, swept_sizes(swept(whole))(whole)))
    assert judgement is not None
    return judgement.verdict, judgement.reason.code


@pytest.mark.parametrize("nodes", [4, 8, 16])
@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (104, Verdict.FAIL),
        (180, Verdict.FAIL),
        (220, Verdict.DEGRADED),
        (297, Verdict.DEGRADED),
        (375, Verdict.PASS),
    ],
)
def test_a_known_fabric_has_an_expected_range_at_every_scale(
    nodes: int, value: float, verdict: Verdict
) -> None:
    code = "within-interval" if verdict is Verdict.PASS else "worse-than-model"
    assert verdict_of(value, ib(nodes)) == (verdict, code)


def test_catalog_row_takes_precedence_over_the_model() -> None:
    assert verdict_of(380, ib(12)) == (Verdict.PASS, "within-interval")
    assert verdict_of(220, ib(12)) == (Verdict.DEGRADED, "worse-than-catalog")


@pytest.mark.parametrize(
    ("operation", "slow", "well"),
    [
        ("all_gather", 160, 340),
        ("reduce_scatter", 160, 340),
        ("broadcast", 160, 340),
        ("alltoall", 20, 45),
        ("sendrecv", 2, 45),
        ("gather", 0.5, 45),
        ("scatter", 0.5, 45),
    ],
)
def test_every_collective_is_held_to_the_links(operation: str, slow: float, well: float) -> None:
    assert verdict_of(slow, ib(4), operation)[0] is Verdict.FAIL
    assert verdict_of(well, ib(4), operation)[0] is Verdict.PASS


def test_model_gives_no_baseline_without_a_fabric_of_known_rate() -> None:
    for fabric in (None, "EFA"):
        assert from_reach(plateau(9.9, 16), ib(2, fabric), SIZES) is None


@pytest.mark.parametrize("sizes", [[8], [64 << 20, 128 << 20], [1 << 20, 4 << 20, 16 << 20]])
def test_model_gives_no_baseline_for_sweeps_of_small_sizes(sizes: list[int]) -> None:
    assert from_reach(plateau(100, 32), ib(4), sizes) is None


@pytest.mark.parametrize("sizes", [[16 * G], [8 * G, 16 * G], [8, 16 * G], SIZES])
def test_model_expects_the_same_plateau_for_one_or_many_sizes(sizes: list[int]) -> None:
    baseline = from_reach(plateau(150, 32), ib(4), sizes)
    assert baseline is not None
    assert baseline.centre == pytest.approx(388, rel=0.02)


@pytest.mark.parametrize(
    ("rates", "is_less"),
    [
        ({G: 306, 4 * G: 327, 16 * G: 333}, True),  # seven of eight NICs
        ({G: 330, 4 * G: 334, 16 * G: 335}, True),
        ({16 * G: 335}, True),
        ({G: 346, 4 * G: 369, 16 * G: 376}, False),
        ({G: 318, 4 * G: 337, 16 * G: 343}, False),  # a cloud that is 10 % slower
        ({2 * G: 364, 4 * G: 316, 16 * G: 320}, False),  # published, over 80 H100
        ({1 << 28: 200}, False),  # latency decides
    ],
)
def test_sweep_no_faster_than_with_one_nic_fewer_is_noticed(
    rates: dict[int, float], is_less: bool
) -> None:
    sweep = [busbw(rate, size, 64) for size, rate in rates.items()]
    reason = one_nic_less(sweep, ib(8))
    assert ((reason or Reason()).code == "one-nic-less") is is_less
    for other in ({"operation": "all_gather"}, {"algorithm": "NVLSTree"}):
        assert (
            one_nic_less([busbw(rate, size, 64, **other) for size, rate in rates.items()], ib(8))
            is None
        )
    assert one_nic_less(sweep, ib(8, "IB-4x400G")) is None, (
        "of four it is a quarter, which the model finds"
    )


def test_model_inside_a_node_covers_only_rings() -> None:
    node = with_links(Setup("H100-SXM", 1, 8, 8))
    assert from_reach(plateau(365, 8, "alltoall"), node, SIZES) is None
    assert from_reach(plateau(365, 2), with_links(Setup("H100-SXM", 1, 2, 2)), SIZES) is None
    assert from_reach(plateau(365, 4), with_links(Setup("V100-SXM", 1, 4, 4)), SIZES) is None
    for algorithm in ("Ring", "Ring/Tree"):
        baseline = from_reach(plateau(365, 8, algorithm=algorithm), node, SIZES)
        assert baseline is not None
        assert baseline.centre == pytest.approx(353, rel=0.02), (
            "81 % of the 450 GB/s of GPU links, at 4G"
        )


def published() -> list[Reference]:
    """What was measured on two and more nodes, at sizes that the model is asked for."""
    return [
        row
        for row in references()
        if row.nodes > 1 and row.kind == "measured" and row.message_bytes >= SMALLEST_BYTES
    ]


def test_model_calls_no_published_measurement_slow() -> None:
    """All measured rows are above 80 % of the model, and all but trees over two nodes below 115 %
    of it.
    """
    for row in published():
        setup = with_links(
            Setup(row.hardware, row.nodes, row.gpus_per_node, row.gpus_per_node, row.fabric)
        )
        measured = busbw(row.busbw_gb_s, row.message_bytes, setup.ranks, operation=row.collective)
        modelled = model(measured, setup, row.message_bytes)
        if modelled is None:
            assert setup.node_link_gb_s is None, row
            continue
        assert row.busbw_gb_s > LOW * modelled > FLOOR * modelled, row
        if row.nodes > 2 or row.collective != "all_reduce":
            assert row.busbw_gb_s < 1.15 * modelled, row


def test_gpus_without_links_of_their_own_are_not_held_to_the_nics() -> None:
    """PCIe carries what a GPU of eight sends; a single GPU sends over its NIC alone."""
    rtx = with_links(Setup("RTX-PRO-6000", 2, 8, 8, "RoCE-8x400G"))
    assert verdict_of(40, rtx)[0] is Verdict.PASS
    one = with_links(Setup("RTX-PRO-6000", 2, 1, 1, "RoCE-1x400G"))
    assert verdict_of(15, one) == (Verdict.FAIL, "worse-than-model")
