"""The sources of baselines: the catalog's table, physics and pins."""

import math
from collections import Counter
from datetime import UTC, datetime

import pytest

from seatrial.catalog import known_hardware, references, with_links
from seatrial.catalog.physics import from_physics
from seatrial.catalog.published import from_catalog, published, swept_sizes
from seatrial.config.cluster import Cluster
from seatrial.config.run import setup_of
from seatrial.history import Pin
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import _rate
from seatrial.judge.number import from_pin
from seatrial.judge.number import judge_number as judge
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.setup import ARMS, Setup
from seatrial.model.verdict import Verdict
from seatrial.platforms.local import LocalPlatform
from tests import sample_sweeps
from tests.stored_nights import knowing

G = 1 << 30
M = 1 << 20
H200 = Setup("H200-SXM", 1, 8, 8, "NVLink")


def busbw(
    value: float, size: int = 16 * G, operation: str = "all_reduce", ranks: int = 8
) -> Measurement:
    return sample_sweeps.busbw(value, size, ranks, operation=operation)


def catalog(setup: Setup, size: int = 16 * G, operation: str = "all_reduce") -> Baseline:
    baseline = from_catalog(setup, operation, size)
    assert baseline is not None, (setup, size, operation)
    return baseline


# The shipped table


def test_every_catalog_row_has_plausible_values() -> None:
    operations = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall"}
    for row in references():
        assert row.collective in operations, row
        assert row.kind in {"measured", "floor", "expected"}, row
        assert row.arm in {"", *ARMS}, row
        assert row.low_gb_s is None or 0 < row.low_gb_s < row.busbw_gb_s, row
        assert 0 < row.busbw_gb_s < 2000, row
        assert row.message_bytes >= M, row
        assert row.message_bytes % M == 0, row
        assert row.nodes >= 1, row
        assert 1 <= row.gpus_per_node <= 16, row
        assert all((row.fabric, row.source)), row
        assert row.hardware in known_hardware(), row


def test_the_catalog_has_no_duplicate_rows() -> None:
    keys = Counter(
        (
            r.hardware,
            r.gpus_per_node,
            r.nodes,
            r.fabric,
            r.collective,
            r.algorithm,
            r.arm,
            r.message_bytes,
            r.kind,
        )
        for r in references()
    )
    assert [key for key, count in keys.items() if count > 1] == []


def test_no_floor_is_above_what_was_measured_at_its_size() -> None:
    for floor in (row for row in references() if row.kind == "floor"):
        setup = Setup(
            floor.hardware, floor.nodes, floor.gpus_per_node, floor.gpus_per_node, floor.fabric
        )
        assert catalog(setup, floor.message_bytes, floor.collective).centre >= floor.busbw_gb_s, (
            floor
        )


MEASURED = [row for row in references() if row.kind == "measured"]


def test_published_measurement_passes_its_own_reference() -> None:
    """The best of its size passes. One of another algorithm may be degraded, and fails only below a
    published floor.
    """
    for row in MEASURED:
        setup = Setup(row.hardware, row.nodes, row.gpus_per_node, row.gpus_per_node, row.fabric)
        baseline = catalog(setup, row.message_bytes, row.collective)
        judged = judge(
            busbw(row.busbw_gb_s, row.message_bytes, row.collective, setup.ranks), [baseline]
        )
        assert judged is not None, row
        if row.busbw_gb_s == baseline.centre:
            assert judged.verdict is Verdict.PASS, judged.reason
        elif judged.verdict is Verdict.FAIL:
            assert "floor" in judged.reason.sentence, row


# What the catalog says


def test_an_exact_size_gives_the_published_figure_and_names_its_floor() -> None:
    baseline = catalog(H200)
    assert (baseline.centre, baseline.low) == (482.26, 431.0)
    assert baseline.floor == pytest.approx(0.85 * 482.26), (
        "what the other source has for healthy does not fail"
    )
    assert "482 GB/s measured on 1 node of 8 H200-SXM over NVLink at 16G (stas00" in baseline.detail
    assert "floor is 431 GB/s at 16G (Azure" in baseline.detail


def test_between_sizes_the_catalog_interpolates_on_log_scales_and_says_so() -> None:
    baseline = catalog(H200, 2 * G)
    assert baseline.centre == pytest.approx(math.sqrt(463.58 * 473.10))
    assert "interpolated on log scales between 464 at 1G and 473 at 4G" in baseline.detail
    assert baseline.floor == pytest.approx(baseline.centre / 2)


@pytest.mark.parametrize(
    "setup",
    [
        Setup("H999", 1, 8, 8, "NVLink"),
        Setup("H200-SXM", 1, 3, 3, "NVLink"),
        Setup("H200-SXM", 3, 8, 8, "EFA-3200G"),
        Setup("H200-SXM", 1, 8, 8, "PCIe"),
        Setup("H200-SXM", 4, 8, 8, None),
        Setup("GB200-NVL72", 4, 4, 4, None),
    ],
)
def test_configuration_that_nobody_published_has_no_reference(setup: Setup) -> None:
    assert from_catalog(setup, "all_reduce", 16 * G) is None


def test_outside_the_published_sizes_only_a_plateau_compares() -> None:
    assert from_catalog(H200, "all_reduce", 64 * 1024) is None
    assert from_catalog(H200, "all_reduce", 32 * G) is None
    beyond = from_catalog(H200, "all_reduce", 32 * G, plateau=True)
    assert beyond is not None
    assert beyond.centre == 482.26
    assert from_catalog(H200, "all_reduce", 64 * 1024, plateau=True) is None


def test_one_node_needs_no_named_fabric() -> None:
    assert from_catalog(Setup("H200-SXM", 1, 8, 8), "all_reduce", 16 * G) == from_catalog(
        H200, "all_reduce", 16 * G
    )


def test_catalog_row_with_only_a_floor_is_a_baseline() -> None:
    baseline = catalog(Setup("V100-SXM", 1, 8, 8, "NVLink"), 8 * G)
    assert (baseline.low, baseline.floor) == (110.0, 110.0)
    assert baseline.detail.startswith(
        "the floor of 110 GB/s for 1 node of 8 V100-SXM over NVLink at 8G (Azure"
    )


def test_lower_bound_of_two_nodes_allows_a_ring_where_the_reference_is_none() -> None:
    baseline = catalog(Setup("H200-SXM", 2, 8, 8, "EFA-3200G"))
    assert baseline.low == pytest.approx(486.8 * 0.7)


def test_catalog_reference_needs_all_gpus_of_a_node() -> None:
    assert published(busbw(100, ranks=7), H200, []) == []
    assert [b.source for b in published(busbw(100, ranks=8), H200, [])] == ["catalog"]


def test_a_plateau_is_held_against_the_largest_size_that_was_swept() -> None:
    siblings = [busbw(400, 128 * M), busbw(460, G), busbw(900, 16 * G, "all_gather")]
    plateau = sample_sweeps.plateau(450, 8)
    (baseline,) = published(plateau, H200, swept_sizes(siblings)(plateau))
    assert baseline.centre == 463.58
    assert published(plateau, H200, []) == []


# Physics

# Data sheets, GB/s in one direction: NVLink or xGMI per GPU, NICs per node.
GPU_LINKS = {"A100": 300, "H100": 450, "H200": 450, "V100": 150, "MI300X": 448}
NODE_LINKS = {
    "IB-8x400G": 400,
    "EFA-3200G": 400,
    "GPUDirect-TCPXO": 200,
    "EFA-400G": 50,
    "IB-8x200G": 200,
}


def test_published_measurements_pass_the_physical_limit() -> None:
    for row in MEASURED:
        gpu = GPU_LINKS.get(row.hardware.split("-")[0], 900)
        setup = Setup(
            row.hardware,
            row.nodes,
            row.gpus_per_node,
            row.gpus_per_node,
            row.fabric,
            gpu,
            NODE_LINKS.get(row.fabric),
        )
        m = busbw(row.busbw_gb_s, row.message_bytes, row.collective, setup.ranks)
        baseline = from_physics(m, setup)
        judged = judge(m, [baseline] if baseline else [])
        assert judged is not None, row
        assert judged.verdict is Verdict.PASS, judged.reason


def test_more_than_the_links_carry_is_inconclusive_however_good_the_history() -> None:
    setup = Setup("cpu", 4, 0, 1, node_link_gb_s=1.0)
    m = busbw(5.0, 16 * M, ranks=4)
    check = Check("collectives", Verdict.PASS, Reason(), measurements=(m,))
    (assessed,) = assess([check], knowing(setup, [check] * 12)).checks
    (judged,) = assessed.judgements
    assert (judged.verdict, judged.source) == (Verdict.INCONCLUSIVE, "physics")
    assert judged.expected.high == pytest.approx(1.575)
    assert judged.reason.sentence == (
        "all_reduce busbw 5 GB/s at 16M is 233 % above the 1.50 GB/s that all_reduce over 4 ranks "
        "can reach"
        " on node links of 1 GB/s, so it was not measured over those links"
    )


def test_physical_limit_needs_link_rates_and_a_busbw_metric() -> None:
    assert from_physics(busbw(1e9), H200) is None
    assert (
        from_physics(
            Measurement("throughput", 1e9, "samples/s", Subject("cluster", "c")),
            Setup("X", 1, 8, 8, None, 1),
        )
        is None
    )


@pytest.mark.parametrize(
    ("operation", "then", "rate"),
    [("all_reduce", 8, 1.0), ("alltoall", 8, (4 / 7) / (12 / 15)), ("all_reduce", 1, 1.0)],
)
def test_expected_rate_over_fewer_ranks_scales_with_what_links_carry(
    operation: str, then: int, rate: float
) -> None:
    """Of 16 ranks on nodes of 4, a rank sends 12 of 15 parts to other nodes; of 8 ranks, 4 of 7."""
    setup = Setup("X", 4, 4, 4, node_link_gb_s=100.0)
    assert _rate(busbw(1, operation=operation, ranks=16), then, setup) == pytest.approx(rate)


# Pins


def _pin(low: float | None, high: float | None, unit: str = "GB/s") -> Pin:
    return Pin("s", 400.0, low, high, unit, "ann", datetime(2026, 11, 2, tzinfo=UTC))


def test_pin_gives_a_baseline_with_its_own_bounds() -> None:
    baseline = from_pin(busbw(1), _pin(380, None))
    assert baseline is not None
    assert (baseline.low, baseline.floor) == (380, 190)
    assert baseline.detail == "the 400 GB/s that ann pinned on 2026-11-02"


def test_pin_without_a_bound_on_the_bad_side_or_in_another_unit_is_ignored() -> None:
    assert from_pin(busbw(1), _pin(None, 500)) is None
    assert from_pin(busbw(1), _pin(380, None, "Gb/s")) is None


def test_setup_is_taken_from_the_cluster_file() -> None:
    cluster = Cluster(name="lab", nodes=4, slots_per_node=2, platform=LocalPlatform(kind="local"))
    assert setup_of(cluster) == Setup("cpu", 4, 0, 2)
    assert setup_of(cluster).ranks == 8


# What links, catalog and model say of one measurement, and the sizes of the sweep that it belongs
# to.


G = 1 << 30
SUBJECT = Subject("cluster", "lab")
QUAD = with_links(Setup("H100-SXM", 4, 8, 8, "IB-8x400G"))


def measured(metric: str, operation: str, **conditions: ConditionValue) -> Measurement:
    return Measurement(
        metric, 150, "GB/s", SUBJECT, {"operation": operation, "ranks": 32, **conditions}
    )


def test_sizes_are_collected_per_operation_arm_and_algorithm() -> None:
    """Operations, arms and algorithms are separate sweeps; placements and sizes are rows of one
    sweep.
    """
    rows = [
        measured("busbw", operation, message_bytes=size, placement=placement)
        for operation, sizes in (("all_reduce", (G, 2 * G)), ("alltoall", (4 * G,)))
        for size in sizes
        for placement in ("out_of_place", "in_place")
    ]
    ring = measured(
        "busbw", "all_reduce", message_bytes=8 * G, placement="out_of_place", algorithm="Ring"
    )
    sizes_of = swept_sizes([*rows, ring])
    assert sizes_of(measured("busbw_plateau", "all_reduce", max_bytes=2 * G)) == [G, 2 * G]
    assert sizes_of(rows[0]) == [G, 2 * G]
    assert sizes_of(measured("busbw_plateau", "alltoall", max_bytes=4 * G)) == [4 * G]
    assert sizes_of(measured("busbw_plateau", "all_reduce", max_bytes=8 * G, algorithm="Ring")) == [
        8 * G
    ]
    assert sizes_of(measured("busbw_plateau", "all_gather", max_bytes=8 * G)) == []


def test_largest_size_of_an_intra_node_plateau_is_its_swept_size() -> None:
    inside = measured("busbw_plateau", "all_reduce", max_bytes=8 * G, arm="intra")
    assert swept_sizes([inside])(inside) == [8 * G]


def test_catalog_takes_precedence_over_model_and_physics_is_always_listed() -> None:
    plateau = measured("busbw_plateau", "all_reduce", max_bytes=8 * G)
    assert [b.source for b in published(plateau, QUAD, [4 * G, 8 * G])] == [
        "physics",
        "model",
        "physics",
    ]
    dozen = with_links(Setup("H100-SXM", 12, 8, 8, "IB-8x400G"))
    of_dozen = Measurement(
        "busbw_plateau", 150, "GB/s", SUBJECT, {"operation": "all_reduce", "ranks": 96}
    )
    assert [b.source for b in published(of_dozen, dozen, [4 * G, 8 * G])] == [
        "physics",
        "catalog",
        "physics",
    ]
    assert published(measured("latency", "all_reduce", message_bytes=8), QUAD, [8]) == []
