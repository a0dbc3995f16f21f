"""What a log says of network, devices, hosts and algorithm, held against what it is said to be
of.
"""

from pathlib import Path

import pytest

from seatrial.catalog import unknown_fabric, with_links
from seatrial.catalog.log_facts import fabric_named
from seatrial.checks.collectives.problems import network_of
from seatrial.config.cluster import Cluster
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import Knowledge
from seatrial.logs.cluster import LogsConfig
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.nccl.transport import Nic
from tests.command_line import command
from tests.network_log import transport
from tests.unit.judge_traps.sweeplogs import (
    HEALTHY,
    IB,
    OVER_NODES,
    QUAD,
    G,
    judged,
    log_text,
    over_four_nodes,
)

INFO = "node-0:1:1 [0] NCCL INFO "


def devices(count: int, host: str = "node-0", link: str = "IB") -> str:
    listed = " ".join(f"[{i}]mlx5_{i}:1/{link}" for i in range(count))
    return f"{host}:1:1 [0] NCCL INFO NET/IB : Using {listed} [RO]; OOB eth0:10.0.0.1<0>"


# The network


@pytest.mark.parametrize(
    "line",
    [
        "NET/OFI Selected Provider is tcp",
        "NET/OFI Selected provider is tcp;ofi_rxm, fabric is 10.0.0.0/8 (found 1 nics)",
        "NET/OFI Selected provider is sockets",
        "NET/IB : No device found.",
        "Using network Socket",
        "Using network FastSocket",
    ],
)
@pytest.mark.parametrize(
    ("fabric", "verdict"),
    [
        *((fabric, Verdict.FAIL) for fabric in (IB, "gIB", "OFI", "FasTrak", "EFA", "EFA-3200G")),
        (None, Verdict.INCONCLUSIVE),
        ("Ethernet", Verdict.PASS),
    ],
)
def test_tcp_between_nodes_of_eight_gpus_does_not_pass(
    line: str, fabric: str | None, verdict: Verdict
) -> None:
    after = (
        [] if "Socket" in line or "No device" in line else [f"{INFO}Using network AWS Libfabric"]
    )
    text = over_four_nodes([INFO + line, *after], 0.03)
    result = judged(text, LogsConfig("H100-SXM", 4, 8, fabric))
    assert result.verdict is verdict, result.reason
    assert (line in result.reason.sentence) is (verdict is not Verdict.PASS), (
        "the line is the evidence"
    )


@pytest.mark.parametrize(("busbw", "verdict"), [(11.5, Verdict.INCONCLUSIVE), (60.0, Verdict.PASS)])
def test_rates_that_tcp_reaches_do_not_pass_without_a_named_fabric(
    busbw: float, verdict: Verdict
) -> None:
    result = judged(log_text([busbw] * 5, 32, 4), LogsConfig("H100-SXM", 4, 8))
    assert result.verdict is verdict
    assert ("is what TCP sockets reach: say --fabric" in result.reason.sentence) is (
        verdict is not Verdict.PASS
    )


def test_two_nodes_at_the_tcp_rate_of_a_tree_do_not_pass() -> None:
    """23.7 GB/s of busbw were measured on two nodes of eight H100 that had fallen back to TCP."""
    result = judged(log_text([20.0, 22.0, 23.0, 23.5, 23.7], 16, 2), LogsConfig("H100-SXM", 2, 8))
    assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("fabric", ["RoCE", "EFA", "NVLink", "Ethernet"])
def test_under_two_percent_of_gpu_links_never_passes_on_a_fabric_of_unknown_rate(
    fabric: str,
) -> None:
    slow, faster = (
        judged(log_text([rate] * 5, 32, 4), LogsConfig("H100-SXM", 4, 8, fabric))
        for rate in (8.9, 9.1)
    )
    reason = (
        "all_reduce between nodes reaches 8.90 GB/s, under 2 % of a GPU's links (450 GB/s); "
        f"fabric: {fabric}"
    )
    assert (slow.verdict, reason in slow.reason.sentence) == (Verdict.INCONCLUSIVE, True), (
        slow.reason
    )
    assert "under 2 %" not in faster.reason.sentence
    named = judged(log_text([4.4] * 5, 32, 4), LogsConfig("H100-SXM", 4, 8, "Ethernet-1x40G"))
    assert named.verdict is Verdict.PASS, "9 in 10 of what such links carry"


def test_a_run_far_below_its_gpus_links_does_not_pass_without_a_fabric() -> None:
    conditions: dict[str, ConditionValue] = {"operation": "all_reduce", "ranks": 32}
    sizes = [
        Measurement(
            "busbw", 5.0, "GB/s", Subject("cluster", ""), {**conditions, "message_bytes": G}
        )
    ]
    plateau = Measurement("busbw_plateau", 5.0, "GB/s", Subject("cluster", ""), conditions)
    check = Check("collectives", Verdict.PASS, uncoded("swept"), measurements=(*sizes, plateau))
    names = [f"node-{i}" for i in range(4)]
    setup = with_links(Setup("H100-SXM", 4, 8, 8))
    (judged_check,) = assess([check], Knowledge(setup, nodes=names)).checks
    assert (judged_check.verdict, judged_check.reason.code) == (
        Verdict.INCONCLUSIVE,
        "far-below-links",
    )


def test_misspelt_fabric_is_refused_with_the_nearest_and_all_known_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, cluster = tmp_path / "r.log", tmp_path / "c.yaml"
    log.write_text(log_text([5.0] * 5, 32, 4))
    for fabric, status in (
        ("IB-8x400", 2),
        ("ib-8x400G", 2),
        ("InfiniBand", 2),
        (IB, 1),
        ("IB-4x400G", 1),
    ):
        cluster.write_text(
            f"nodes: 4\nhardware: H100-SXM\ngpus_per_node: 8\nplatform: {{kind: slurm}}\n"
            f"fabric: {fabric}\n"
        )
        assert (
            command("judge", str(log), "--hardware", "H100-SXM", "--nodes", "4", "--fabric", fabric)
            == status
        )
        errors = capsys.readouterr().err
        assert command("render", str(cluster)) == (2 if status == 2 else 0)
        if status == 2:
            assert f"--fabric: unknown fabric '{fabric}'; " in errors
            assert f"line 5: fabric: unknown fabric '{fabric}'; " in capsys.readouterr().err
            assert ("nearest: IB-8x400G, " in errors) is (fabric != "InfiniBand")
            assert "known: EFA, EFA-3200G, " in errors
    assert command("baseline", "list", "--fabrics") == 0
    assert "IB-8x400G        400 GB/s\nMNNVL\n" in capsys.readouterr().out


def test_hardware_with_its_own_link_rates_accepts_any_fabric_name() -> None:
    described = {"name": "H100-SXM", "gpus_per_node": 8, "node_link_gb_s": 100.0}
    fields = {"name": "c", "nodes": 4, "platform": {"kind": "slurm"}, "fabric": "own rails"}
    assert Cluster.model_validate({**fields, "hardware": described}).fabric == "own rails"


@pytest.mark.parametrize(
    ("network", "fabric", "verdict"),
    [
        ("FasTrak", IB, Verdict.INCONCLUSIVE),
        ("IB", "EFA-3200G", Verdict.INCONCLUSIVE),
        ("GPUDirectTCPX_v7", "GPUDirect-TCPXO", Verdict.INCONCLUSIVE),
        ("IBext_v8", IB, Verdict.PASS),
        ("gIB", "RoCE-8x400G", Verdict.PASS),
        ("AWS Libfabric", "EFA-3200G", Verdict.PASS),
        ("AWS Libfabric", IB, Verdict.PASS),  # libfabric has verbs as well
    ],
)
def test_another_network_than_the_claimed_one_is_named(
    network: str, fabric: str, verdict: Verdict
) -> None:
    result = judged(
        over_four_nodes([f"{INFO}Using network {network}"]), LogsConfig("H100-SXM", 4, 8, fabric)
    )
    assert result.verdict is verdict, result.reason
    assert (f", not of {fabric}" in result.reason.sentence) is (verdict is not Verdict.PASS)


@pytest.mark.parametrize(
    ("line", "fabric"),
    [
        ("Using network FasTrak", "GPUDirect-TCPXO"),
        ("NET/OFI Selected provider is efa, fabric is efa (found 32 nics)", "EFA-3200G"),
        ("Using network IB", None),  # of any rate
        ("Using network AWS Libfabric", None),
    ],
)
def test_fabric_is_read_from_the_log_when_it_names_one(line: str, fabric: str | None) -> None:
    assert fabric_named("H100-SXM", transport([INFO + line])) == fabric


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (0.6, Verdict.DEGRADED)])
def test_a_fabric_that_the_log_names_has_a_reference(factor: float, verdict: Verdict) -> None:
    busbw = [factor * value for value in (120.0, 230.0, 298.0, 330.0, 339.0)]
    text = log_text(busbw, 16, 2, [f"{INFO}Using network FasTrak"])
    result = judged(text, LogsConfig("H100-SXM", 2, 8))
    assert (
        result.verdict,
        "held against GPUDirect-TCPXO, which the log names" in result.reason.sentence,
    ) == (
        verdict,
        True,
    )


@pytest.mark.parametrize("fabric", ["Ethernet", "tcp", "Ethernet-1x100G", "100GbE"])
def test_nccl_sockets_pass_on_an_ethernet_fabric(fabric: str) -> None:
    assert network_of(fabric) is None
    text = log_text([9.0] * 5, 32, 4, [f"{INFO}Using network Socket"])
    assert judged(text, LogsConfig("H100-SXM", 4, 8, fabric)).verdict is Verdict.PASS


def test_sockets_fail_also_where_results_were_not_checked() -> None:
    text = log_text(HEALTHY, 16, 2, ["node-0:1:1 [0] NCCL INFO Using network Socket"])
    unchecked = "\n".join(
        " ".join("N/A" if i in (8, 12) else word for i, word in enumerate(line.split()))
        if line[0].isdigit()
        else line
        for line in text.splitlines()
    )
    assert "N/A" in unchecked
    judgement = judged(unchecked, LogsConfig("H100-SXM", 2, 8, IB))
    assert judgement.verdict is Verdict.FAIL
    assert "went over sockets" in judgement.reason.sentence


def test_network_algorithm_and_protocol_are_reported() -> None:
    lines = [
        "node-0:1:1 [0] NCCL INFO Using network IB",
        "node-0:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
        f"node-0:1:1 [0] NCCL INFO AllReduce: {8 * G} Bytes -> Algo 1 proto 2 time 12.0",
    ]
    judgement = judged(log_text(HEALTHY, 16, 2, lines), LogsConfig("H100-SXM", 2, 8, IB))
    assert "over IB with GPUDirect RDMA, by Ring/Simple" in judgement.reason.sentence


def test_slow_log_with_a_disabled_link_and_no_control_fails() -> None:
    judgement = judged(log_text([value / 20 for value in HEALTHY], before=["NCCL_P2P_DISABLE=1"]))
    assert judgement.verdict is Verdict.FAIL
    assert "with NCCL_P2P_DISABLE=1" in judgement.reason.sentence


# Its devices


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([devices(6)], Verdict.DEGRADED),
        ([devices(8), devices(7, "node-2")], Verdict.DEGRADED),
        (
            [f"{INFO}NCCL_IB_HCA set by environment to mlx5_0,mlx5_1,mlx5_2,mlx5_3."],
            Verdict.DEGRADED,
        ),
        ([devices(8)], Verdict.PASS),
        ([devices(10)], Verdict.PASS),  # storage has NICs of its own
        ([f"{INFO}NCCL_IB_HCA set by environment to mlx5."], Verdict.PASS),
    ],
)
def test_fewer_network_devices_than_the_fabric_has_are_named(
    lines: list[str], verdict: Verdict
) -> None:
    result = judged(over_four_nodes([*lines, f"{INFO}Using network IB"]), QUAD)
    assert result.verdict is verdict, result.reason
    assert (f"and {IB} has 8" in result.reason.sentence) is (verdict is not Verdict.PASS)


@pytest.mark.parametrize(
    ("line", "nics"),
    [
        (
            (
                "NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [1]={[2] "
                "mlx5_0:1/RoCE} [RO]; OOB"
            ),
            3,
        ),
        (
            (
                "NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB "
                "ibp25s0:10.20.0.119<0>"
            ),
            2,
        ),
        (
            "NET/IB : Using [0]mlx5_bond_0:1/RoCE [1]mlx5_bond_1:1/RoCE [RO]; OOB bond0:10.0.0.1<0>",
            4,
        ),
        ("NET/OFI Selected Provider is efa (found 4 nics)", 4),
    ],
)
def test_network_devices_are_counted_in_each_format_of_nccl(line: str, nics: int) -> None:
    devices = transport([INFO + line])
    assert devices is not None
    assert devices.fewest_nics(Nic()) == ("node-0", nics)


# Hosts


@pytest.mark.parametrize("each", [8, None])
def test_log_with_more_hosts_than_claimed_is_inconclusive(each: int | None) -> None:
    """16 ranks on four hosts of four GPUs, claimed to be two nodes of eight."""
    text = log_text(OVER_NODES, 16, 4)
    result = judged(text, LogsConfig("H100-SXM", 2, each, IB))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the 16 ranks are on 4 hosts, not on 2" in result.reason.sentence
    assert (
        judged(
            log_text((*OVER_NODES[:-1], 380.0), 16, 2), LogsConfig("H100-SXM", 2, each, IB)
        ).verdict
        is Verdict.PASS
    )


# The algorithm

RING = (300.0, 340.0, 355.0, 365.0, 366.0)  # eight H100 or H200 without NVLS


@pytest.mark.parametrize(
    "setting",
    [
        f"{INFO}NCCL_NVLS_ENABLE set by environment to 0.",
        "export NCCL_NVLS_ENABLE=0",
        "NCCL_ALGO=Ring",
        "NCCL_ALGO=Ring,Tree",
        "NCCL_ALGO=^NVLS,NVLSTree",
    ],
)
@pytest.mark.parametrize("hardware", ["H100-SXM", "H200-SXM"])
def test_without_nvls_a_node_is_held_to_a_ring(setting: str, hardware: str) -> None:
    config = LogsConfig(hardware, 1, 8)
    assert judged(log_text(RING), config).verdict is not Verdict.PASS
    assert judged(log_text(RING, before=[setting]), config).verdict is Verdict.PASS
    slow = judged(log_text([0.6 * value for value in RING], before=[setting]), config)
    assert slow.verdict in (Verdict.DEGRADED, Verdict.FAIL)
    assert (
        judged(log_text([480.0] * 5, before=[setting]), config).verdict is Verdict.INCONCLUSIVE
    ), "no ring does that"


def test_b200_without_nvls_is_held_to_the_published_ring() -> None:
    busbw, before = (
        (499.0, 577.0, 627.0, 670.0, 677.0),
        [f"{INFO}NCCL_NVLS_ENABLE set by environment to 0."],
    )
    result = judged(log_text(busbw, before=before), LogsConfig("B200-SXM", 1, 8))
    assert (result.verdict, "by Ring/Tree" in result.reason.sentence) == (Verdict.PASS, True)


def test_two_nodes_without_nvls_are_judged_by_a_ring_but_may_exceed_it() -> None:
    config, before = LogsConfig("H100-SXM", 2, 8, "EFA-3200G"), ["NCCL_NVLS_ENABLE=0"]
    for value, verdict in ((365.0, Verdict.PASS), (440.0, Verdict.PASS), (200.0, Verdict.DEGRADED)):
        result = judged(
            log_text([0.8 * value, 0.9 * value, value, value, value], 16, 2, before), config
        )
        assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("fabric", "nearest"), [("IB-8x4000G", "IB-8x400G"), ("RoCE-8x40000G", "RoCE-8x400G")]
)
def test_a_rate_that_no_port_has_is_refused_with_the_nearest_fabric(
    fabric: str, nearest: str
) -> None:
    assert unknown_fabric("IB-8x56G") is None and unknown_fabric("Slingshot-4x240G") is None
    refused = unknown_fabric(fabric) or ""
    assert refused.startswith(f"unknown fabric '{fabric}'; nearest: {nearest}, ")
    assert "(a port has 10, 20, 25, 40, 50, 56, 100, 200, 400, 800, 1600)" in refused
