"""NVL72 with and without NVLink between nodes: what the catalog expects of four GB200 trays."""

import pytest

from seatrial.catalog.published import published
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.setup import NO_MNNVL, Setup

SIZE = 16 << 30


@pytest.mark.parametrize(
    ("fabric", "arm", "expected"),
    [("MNNVL", "", 882.51), ("MNNVL+EFA", NO_MNNVL, 191.40), ("EFA", "", 191.40), ("MNNVL", NO_MNNVL, None)],
)
def test_references_of_four_trays_depend_on_fabric_and_arm(fabric: str, arm: str, expected: float | None) -> None:
    conditions: dict[str, ConditionValue] = {"operation": "all_reduce", "message_bytes": SIZE, "ranks": 16}
    conditions |= {"arm": arm} if arm else {}
    measurement = Measurement("busbw", 190.0, "GB/s", Subject("cluster", "cluster"), conditions)
    setup = Setup("GB200-NVL72", 4, 4, 4, fabric, 900.0, None, 1.0)
    found = [baseline for baseline in published(measurement, setup, [SIZE]) if baseline.source == "catalog"]
    assert [baseline.centre for baseline in found] == ([pytest.approx(expected)] if expected else [])
