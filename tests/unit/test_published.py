"""What links, catalog and model say of one measurement, and the sizes of the sweep that it belongs to."""

from seatrial.catalog import with_links
from seatrial.catalog.published import published, swept_sizes
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.setup import Setup

G = 1 << 30
SUBJECT = Subject("cluster", "lab")
QUAD = with_links(Setup("H100-SXM", 4, 8, 8, "IB-8x400G"))


def measured(metric: str, operation: str, **conditions: ConditionValue) -> Measurement:
    return Measurement(metric, 150, "GB/s", SUBJECT, {"operation": operation, "ranks": 32, **conditions})


def test_each_sweep_has_its_own_sizes() -> None:
    """Operations, arms and algorithms are sweeps of their own; placements and sizes are rows of one."""
    rows = [
        measured("busbw", operation, message_bytes=size, placement=placement)
        for operation, sizes in (("all_reduce", (G, 2 * G)), ("alltoall", (4 * G,)))
        for size in sizes
        for placement in ("out_of_place", "in_place")
    ]
    ring = measured("busbw", "all_reduce", message_bytes=8 * G, placement="out_of_place", algorithm="Ring")
    sizes_of = swept_sizes([*rows, ring])
    assert sizes_of(measured("busbw_plateau", "all_reduce", max_bytes=2 * G)) == [G, 2 * G]
    assert sizes_of(rows[0]) == [G, 2 * G]
    assert sizes_of(measured("busbw_plateau", "alltoall", max_bytes=4 * G)) == [4 * G]
    assert sizes_of(measured("busbw_plateau", "all_reduce", max_bytes=8 * G, algorithm="Ring")) == [8 * G]
    assert sizes_of(measured("busbw_plateau", "all_gather", max_bytes=8 * G)) == []


def test_a_sweep_inside_a_node_has_its_largest_size() -> None:
    inside = measured("busbw_plateau", "all_reduce", max_bytes=8 * G, arm="intra")
    assert swept_sizes([inside])(inside) == [8 * G]


def test_the_catalog_comes_before_the_model_and_physics_beside_both() -> None:
    plateau = measured("busbw_plateau", "all_reduce", max_bytes=8 * G)
    assert [b.source for b in published(plateau, QUAD, [4 * G, 8 * G])] == ["physics", "model", "physics"]
    dozen = with_links(Setup("H100-SXM", 12, 8, 8, "IB-8x400G"))
    of_dozen = Measurement("busbw_plateau", 150, "GB/s", SUBJECT, {"operation": "all_reduce", "ranks": 96})
    assert [b.source for b in published(of_dozen, dozen, [4 * G, 8 * G])] == ["physics", "catalog", "physics"]
    assert published(measured("latency", "all_reduce", message_bytes=8), QUAD, [8]) == []
