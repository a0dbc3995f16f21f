"""NVL72 with and without NVLink between nodes: what the catalog expects of four GB200 trays."""

import pytest

from seatrial.catalog import with_links
from seatrial.catalog.published import published
from seatrial.history.past import RunContext
from seatrial.judge.knowledge import knowledge_of
from seatrial.judge.number import judge_number
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.setup import NO_MNNVL, Setup
from seatrial.model.verdict import Verdict

SIZE = 16 << 30


@pytest.mark.parametrize(
    ("fabric", "arm", "expected"),
    [
        ("MNNVL", "", 882.51),
        ("MNNVL+EFA", NO_MNNVL, 191.40),
        ("EFA", "", 191.40),
        ("MNNVL", NO_MNNVL, None),
    ],
)
def test_references_of_four_trays_depend_on_fabric_and_arm(
    fabric: str, arm: str, expected: float | None
) -> None:
    conditions: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "message_bytes": SIZE,
        "ranks": 16,
    }
    conditions |= {"arm": arm} if arm else {}
    measurement = Measurement("busbw", 190.0, "GB/s", Subject("cluster", "cluster"), conditions)
    setup = Setup("GB200-NVL72", 4, 4, 4, fabric, 900.0, None, 1.0)
    baselines = [
        baseline
        for baseline in published(measurement, setup, [SIZE])
        if baseline.source == "catalog"
    ]
    assert [baseline.centre for baseline in baselines] == (
        [pytest.approx(expected)] if expected else []
    )


@pytest.mark.parametrize("fabric", ["MNNVL+EFA", "MNNVL+IB", "MNNVL+IB-4x400G"])
@pytest.mark.parametrize("algorithm", [None, "Ring"])
def test_nvlink_bandwidth_is_possible_for_racks_joined_by_a_network(
    fabric: str, algorithm: str | None
) -> None:
    conditions: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "message_bytes": SIZE,
        "ranks": 16,
    }
    conditions |= {"algorithm": algorithm} if algorithm else {}
    measurement = Measurement("busbw", 882.0, "GB/s", Subject("cluster", "cluster"), conditions)
    setup = with_links(Setup("GB200-NVL72", 4, 4, 4, fabric))
    judgement = judge_number(measurement, published(measurement, setup, [SIZE]))
    assert judgement is not None
    assert judgement.verdict is Verdict.PASS, judgement.reason


@pytest.mark.parametrize(
    ("domains", "arm", "expected"),
    [
        (("rack-1", "rack-1", "rack-1", "rack-1"), "", [882.51]),
        (("rack-1", "rack-1", "rack-1", "rack-1"), NO_MNNVL, [191.40]),
        (("rack-1", "rack-1", "rack-1", "rack-2"), "", []),
        (("rack-1", "rack-1", "rack-1", ""), "", []),
        (("rack-1", "rack-1", "rack-1"), "", []),
    ],
)
def test_nodes_of_one_nvlink_domain_are_judged_by_nvlink(
    domains: tuple[str, ...], arm: str, expected: list[float]
) -> None:
    conditions: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "message_bytes": SIZE,
        "ranks": 16,
    }
    conditions |= {"arm": arm} if arm else {}
    measurement = Measurement("busbw", 190.0, "GB/s", Subject("cluster", "cluster"), conditions)
    nodes = [{"name": f"tray-{i}", "nvlink_domain": domain} for i, domain in enumerate(domains)]
    context = RunContext("lab", "nightly", nodes=nodes)
    setup = knowledge_of([], Setup("GB200-NVL72", 4, 4, 4, "MNNVL+EFA"), None, context).setup
    baselines = [
        baseline
        for baseline in published(measurement, setup, [SIZE])
        if baseline.source == "catalog"
    ]
    assert [baseline.centre for baseline in baselines] == [pytest.approx(each) for each in expected]
