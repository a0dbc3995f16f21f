"""Limits that know the algorithm, shares of them, thresholds beyond them, and what the catalog
knows of links.
"""

import json

import pytest

from seatrial.catalog import (
    devices,
    gpu_link_gb_s,
    node_link_gb_s,
    references,
    trainings,
    usual_gpus,
    with_links,
)
from seatrial.catalog.nearest import no_reference
from seatrial.catalog.physics import (
    from_physics,
    plateau_words,
    refuse_beyond_physics,
    wire,
    with_shares,
)
from seatrial.catalog.published import from_catalog, published, swept_sizes
from seatrial.config.cluster import Cluster
from seatrial.config.run import setup_of
from seatrial.judge.number import judge_number as judge
from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, Judgement
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.platforms.local import LocalPlatform
from seatrial.tasks.check import compare
from tests.command_line import command
from tests.sample_sweeps import plateau

G = 1 << 30
NODE = with_links(Setup("H100-SXM", 1, 8, 8, "NVLink"))
PAIR = with_links(Setup("H100-SXM", 2, 8, 8, "IB-8x400G"))


def judged(m: Measurement, setup: Setup) -> Judgement:
    """A plateau judged by what is published, after a sweep that ends at 8G."""
    sweep = Measurement(
        "busbw", m.value, "GB/s", m.subject, {**m.conditions, "message_bytes": 8 * G}
    )
    judgement = judge(m, published(m, setup, swept_sizes([sweep])(m)))
    assert judgement is not None
    return judgement


@pytest.mark.parametrize(
    ("setup", "measurement", "limit"),
    [
        (NODE, plateau(1, 8, algorithm="Ring"), 450),
        (NODE, plateau(1, 8), 700),  # NVLS: twice 7/9 of a link
        (NODE, plateau(1, 8, algorithm="NVLS"), 700),
        (NODE, plateau(1, 8, "all_gather"), 450),
        (PAIR, plateau(1, 16, algorithm="Ring"), 400),
        (PAIR, plateau(1, 16), 750),  # a tree over two nodes
        # NVLS in each node: 9/8 of the data
        (with_links(Setup("H100-SXM", 2, 8, 8)), plateau(1, 16), 750),
        (NODE, plateau(1, 8, algorithm="Ring/Tree"), 450),
        (PAIR, plateau(1, 16, "alltoall"), 93.75),
        (NODE, plateau(1, 8, "sendrecv"), 450),
        # Over the NICs of one rank and those of a neighbour
        (PAIR, plateau(1, 16, "sendrecv"), 100),
        (with_links(Setup("GB200-NVL72", 18, 4, 4, "MNNVL")), plateau(1, 72), 900 * 142 / 73),
    ],
)
def test_physical_limit_depends_on_operation_and_algorithm(
    setup: Setup, measurement: Measurement, limit: float
) -> None:
    baseline = from_physics(measurement, setup)
    assert baseline is not None
    assert baseline.centre == pytest.approx(limit)


@pytest.mark.parametrize(
    ("at", "verdict"), [({"algorithm": "Ring"}, Verdict.INCONCLUSIVE), ({}, Verdict.PASS)]
)
def test_two_nodes_may_exceed_the_ring_limit_unless_nccl_used_a_ring(
    at: dict[str, str], verdict: Verdict
) -> None:
    m = plateau(480, 16, **at)
    judgement = judge(m, published(m, PAIR, []))
    assert judgement is not None
    assert judgement.verdict is verdict


@pytest.mark.parametrize(
    ("setup", "measurement", "share"),
    [
        (NODE, plateau(481.5, 8), 1.07),
        # (1 + 1/8) of the data crosses a link: 700 GB/s
        (NODE, plateau(490, 8, algorithm="NVLS"), 0.7),
        (PAIR, plateau(380, 16), 0.95),
        (PAIR, plateau(75, 16, "alltoall"), 0.8),
        (NODE, plateau(360, 8, "sendrecv"), 0.8),
        # One of eight GPUs sends to the other node: 50 GB/s of NICs
        (PAIR, plateau(40, 16, "sendrecv"), 0.8),
    ],
)
def test_share_of_the_link_rate_is_computed_for_a_plateau(
    setup: Setup, measurement: Measurement, share: float
) -> None:
    check = with_shares(
        Check("collectives", Verdict.PASS, Reason(), measurements=(measurement,)), setup
    )
    recorded = check.measurements[-1]
    assert (recorded.metric, recorded.better, recorded.conditions) == (
        "busbw_share",
        None,
        measurement.conditions,
    )
    assert recorded.value == pytest.approx(share)
    assert f"{share:.0%}"[:-1] in plateau_words(check, setup)[0].sentence


def test_no_share_is_computed_without_a_known_link_rate() -> None:
    assert wire(plateau(300, 16), with_links(Setup("H100-SXM", 2, 8, 8, "EFA"))) is None
    assert wire(plateau(300, 8), with_links(Setup("T4", 1, 8, 8))) is None
    assert wire(plateau(300, 16, "hypercube"), PAIR) is None


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (4, Verdict.FAIL),
        (12, Verdict.DEGRADED),
        (30, Verdict.DEGRADED),
        (45, Verdict.PASS),
        (441, Verdict.INCONCLUSIVE),
    ],
)
def test_sendrecv_is_judged_by_the_link_rates(value: float, verdict: Verdict) -> None:
    assert judged(plateau(value, 16, "sendrecv"), PAIR).verdict is verdict


@pytest.mark.parametrize(
    ("value", "verdict"), [(4.5, Verdict.FAIL), (12, Verdict.DEGRADED), (15, Verdict.PASS)]
)
def test_a_fraction_of_the_links_is_no_pass_even_without_a_reference(
    value: float, verdict: Verdict
) -> None:
    setup = with_links(Setup("H100-SXM", 10, 8, 8, "IB-8x400G"))
    judgement = judged(plateau(value, 80, "gather"), setup)
    assert judgement.verdict is verdict
    assert ("that node links of 400 GB/s allow" in judgement.reason.sentence) is (
        verdict is not Verdict.PASS
    )


def test_part_of_a_node_is_judged_by_its_share_of_the_nics() -> None:
    assert (
        judged(plateau(45, 2), with_links(Setup("H100-SXM", 2, 1, 1, "IB-8x400G"))).verdict
        is Verdict.PASS
    )


def test_a_threshold_beyond_physics_is_refused_in_one_line() -> None:
    refuse_beyond_physics(plateau(0, 16), 700, PAIR)
    with pytest.raises(InputError) as refused:
        refuse_beyond_physics(plateau(0, 16), 900, PAIR)
    assert str(refused.value) == (
        "busbw_plateau of all_reduce: a threshold of 900 GB/s is beyond the 750 GB/s that "
        "all_reduce over 16 ranks can"
        " reach on node links of 400 GB/s; no run reaches more than 750"
    )


# The catalog


@pytest.mark.parametrize(
    ("fabric", "rate"),
    [
        ("IB-8x400G", 400),
        ("EFA-3200G", 400),
        ("EFA-400G", 50),
        ("GPUDirect-TCPXO", 200),
        ("EFA", None),
        (None, None),
    ],
)
def test_link_rate_is_read_from_the_fabric_name(fabric: str | None, rate: float | None) -> None:
    assert node_link_gb_s(fabric) == rate


def test_link_rates_of_the_cluster_file_take_precedence() -> None:
    assert with_links(Setup("H100-SXM", 2, 8, 8, "IB-8x400G", 300.0, 100.0)).gpu_link_gb_s == 300
    assert (gpu_link_gb_s("H200-SXM"), usual_gpus("GB200-NVL72"), usual_gpus("cpu")) == (
        450,
        4,
        None,
    )


def test_every_published_device_figure_has_plausible_values() -> None:
    assert {d.kind for d in devices()} == {"measured", "floor", "datasheet", "expected"}
    keys = [(d.hardware, d.metric, d.kind, d.source) for d in devices()]
    assert len(set(keys)) == len(keys)
    assert all(d.value > 0 and d.unit and d.source for d in devices())


def test_measured_memory_copy_figures_are_below_the_data_sheet() -> None:
    sheet = {(d.hardware, d.metric): d.value for d in devices() if d.kind == "datasheet"}
    for d in devices():
        if d.metric == "memory_copy":
            assert d.value < sheet[d.hardware, "memory_bandwidth"], d


def test_every_hardware_of_the_catalog_has_its_links() -> None:
    assert [r.hardware for r in references() if gpu_link_gb_s(r.hardware) is None] == []


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        (Setup("X999", 2, 8, 8, "IB"), "hardware X999 is not in the catalog"),
        (
            Setup("H100-SXM", 16, 8, 8, "IB-8x400G"),
            "12 nodes of 8 H100-SXM over IB-8x400G, differs in node count",
        ),
        (Setup("B200-SXM", 4, 8, 8, "RoCE-8x400G"), "over EFA-3200G, differs in fabric"),
        (Setup("H200-SXM", 4, 8, 8), "differs in fabric (name the fabric: EFA-3200G)"),
        (Setup("A100-SXM", 1, 4, 4), "differs in GPUs per node"),
        (
            Setup("GH200", 2, 4, 4, "Slingshot-4x200G"),
            "nothing is published for all_reduce on GH200",
        ),
        (Setup("V100-SXM", 1, 8, 8), "is for 8G"),
    ],
)
def test_a_missing_reference_has_a_reason(setup: Setup, why: str) -> None:
    reason = no_reference(setup, "all_reduce").sentence
    assert reason.startswith("no comparable reference: ")
    assert reason.endswith(why)


def test_known_algorithm_is_judged_by_references_of_the_same_algorithm() -> None:
    h200 = Setup("H200-SXM", 1, 8, 8)
    ring, nvls, tree = (
        from_catalog(h200, "all_reduce", 16 * G, algorithm=a) for a in ("Ring", "NVLS", "Tree")
    )
    assert ring and nvls and tree
    assert (ring.centre, nvls.centre) == (367.61, 482.26)
    assert tree.centre == 431.0, "no tree is published: what does not say how it was measured"


def test_reason_names_the_nearest_catalog_row() -> None:
    cluster = Cluster.model_validate(
        {
            "name": "lab",
            "nodes": 3,
            "gpus_per_node": 8,
            "hardware": "H100-SXM",
            "fabric": "IB-8x400G",
        }
        | {"platform": LocalPlatform(kind="local")}
    )
    (check,) = compare(
        [Check("collectives", Verdict.PASS, uncoded("swept"), measurements=(plateau(380, 24),))],
        setup_of(cluster),
    )
    assert check.reason.sentence.endswith(
        "12 nodes of 8 H100-SXM over IB-8x400G, differs in node count"
    )
    assert [m.metric for m in check.measurements] == ["busbw_plateau", "busbw_share"]


# seatrial baseline list


def test_the_catalog_is_listed_with_kinds_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("baseline", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        len([line for line in lines if line.strip()])
        == len(references()) + len(devices()) + len(trainings()) + 3
    )
    assert command("baseline", "list", "--hardware", "H200-SXM", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["hardware"] for part in document.values() for row in part} == {"H200-SXM"}
    assert {"kind", "source"} <= set(document["collectives"][0])
