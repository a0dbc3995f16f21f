"""Every published log reads as its index entry says, and names the network; so do those of
docs/gpu-results.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.causes import classify
from seatrial.nccl import Sweep, parse_file
from tests.network_log import transport

LOGS = Path(__file__).parents[2] / "golden" / "nccl-logs"
PAGE = Path(__file__).parents[3] / "docs" / "gpu-results"
INFO = "gpu-3:4242:4250 [5] NCCL INFO"
_WORST_FIRST = ("failed", "error", "truncated", "ok")
INDEX: list[dict[str, Any]] = [
    json.loads(line) for line in (LOGS / "index.jsonl").read_text().splitlines()
]

# What the index knows from around the log, and the log itself does not say: (our reading, why).
NOT_IN_THE_LOG: dict[tuple[str, str], tuple[object, str]] = {
    ("coreweave_h100_64sharp_kubectl", "ranks"): (
        96,
        "the index leaves it open; busbw/algbw = 1.9792 says 96",
    ),
    ("nccltests338_h20_cuda_not_initialized_mpirun_abort", "ranks"): (
        None,
        "no Rank line, no command line",
    ),
    ("nccltests92_invalid_device_ordinal", "collective"): (
        None,
        "a header of before 2.16 and no row",
    ),
    ("rccltests50_mi210_internal_error", "collective"): (None, "a header of rccl-tests and no row"),
    ("sophia_a100_16ranks_many_failures", "collective"): (
        None,
        "a header of before 2.16 and no row",
    ),
    ("sophia_a100_16ranks_prterun_abort", "collective"): (
        None,
        "a header of before 2.16 and no row",
    ),
}
CONTRACT = {
    "collective", "version", "ranks", "devices", "rows", "out_of_bounds", "avg_busbw", "outcome", "errors",
}  # fmt: skip


def _reading(sweeps: list[Sweep]) -> dict[str, Any]:
    """What the index says of a file, from our sweeps."""
    rows = [row for sweep in sweeps for row in sweep.rows]
    wrong = [sweep.wrong_total for sweep in sweeps if sweep.wrong_total is not None]
    collectives = {sweep.collective for sweep in sweeps}
    ranks = {sweep.ranks for sweep in sweeps if sweep.ranks is not None}
    return {
        "collective": collectives.pop() if len(collectives) == 1 else "multi",
        "ranks": ranks.pop() if len(ranks) == 1 else None,
        "rows": len(rows),
        "peak": max(
            (row.out_of_place.busbw_gb_s or 0 for row in rows if row.out_of_place), default=None
        ),
        "average": sweeps[0].avg_busbw_gb_s if len(sweeps) == 1 else None,
        "bounds": sweeps[0].out_of_bounds if len(sweeps) == 1 else None,
        "wrong": sum(wrong) if wrong else None,
        "outcome": min(
            (sweep.outcome for sweep in sweeps), key=_WORST_FIRST.index, default="error"
        ),
    }


def _expected(entry: dict[str, Any]) -> dict[str, Any]:
    expected = {
        "collective": None if entry["collective"] == "none" else entry["collective"],
        "ranks": entry["nranks"],
        "rows": entry["rows"],
        "peak": entry["max_busbw_out_of_place"],
        "average": entry["avg_busbw_footer"],
        "bounds": entry["oob_footer"][0] if entry["oob_footer"] else None,
        "wrong": entry["wrong_total"],
        "outcome": entry["outcome"],
    }
    ours = {
        field: ours for (name, field), (ours, _) in NOT_IN_THE_LOG.items() if name == entry["name"]
    }
    return expected | ours


@pytest.mark.parametrize("entry", INDEX, ids=[entry["name"] for entry in INDEX])
def test_each_golden_log_reads_as_its_index_entry(entry: dict[str, Any]) -> None:
    sweeps = parse_file(LOGS / f"{entry['name']}.log")
    assert _reading(sweeps) == _expected(entry)


@pytest.mark.parametrize(
    "entry",
    [entry for entry in INDEX if "sweeps" in entry],
    ids=[e["name"] for e in INDEX if "sweeps" in e],
)
def test_each_sweep_of_a_golden_log_reads_as_its_index_entry(entry: dict[str, Any]) -> None:
    sweeps = [sweep for sweep in parse_file(LOGS / f"{entry['name']}.log") if sweep.rows]
    ours = [
        (s.collective, len(s.rows), s.peak_busbw_gb_s, s.avg_busbw_gb_s, s.out_of_bounds)
        for s in sweeps
    ]
    assert ours == [
        (
            sweep["collective"],
            sweep["rows"],
            sweep["max_busbw_out_of_place"],
            sweep["avg_busbw_footer"],
            sweep["oob_footer"][0] if sweep["oob_footer"] else None,
        )
        for sweep in entry["sweeps"]
    ]


@pytest.mark.parametrize("entry", INDEX, ids=[entry["name"] for entry in INDEX])
def test_the_json_of_each_sweep_has_all_fields(entry: dict[str, Any]) -> None:
    sweeps = parse_file(LOGS / f"{entry['name']}.log")
    for sweep in json.loads(json.dumps([sweep.to_dict() for sweep in sweeps], allow_nan=False)):
        assert set(sweep) == CONTRACT
        assert sweep["outcome"] != "error" or sweep["errors"], "an error names its cause"
        for row in sweep["rows"]:
            assert set(row) == {
                "size",
                "count",
                "type",
                "redop",
                "root",
                "out_of_place",
                "in_place",
            }
            assert set(row["out_of_place"]) == {"time_us", "algbw", "busbw", "wrong"}


@pytest.mark.parametrize(
    "name",
    [e["name"] for e in INDEX if e["outcome"] == "ok" and e["avg_busbw_footer"]
     and not any(word in e["name"] + e["notes"] for word in ("elided", "cut", "thinned", "kept", "trimmed"))],
)  # fmt: skip
def test_the_rows_average_to_the_footer(name: str) -> None:
    """Nothing is lost, doubled or shifted: the footer's average is the mean of every busbw of both
    sides.
    """
    if name == "awsome_p5en_topology_elided":
        pytest.skip("rows were cut out")
    (sweep,) = parse_file(LOGS / f"{name}.log")
    values = [
        side.busbw_gb_s for row in sweep.rows for side in row.sides if side.busbw_gb_s is not None
    ]
    assert sum(values) / len(values) == pytest.approx(sweep.avg_busbw_gb_s, rel=0.002, abs=0.01)


def test_versions_and_devices_are_read() -> None:
    (sweep,) = parse_file(LOGS / "dgxspark103_gb10_v2200_cut.log")
    assert sweep.version == "2.20.0"
    device = sweep.devices[1]
    assert (device.rank, device.host, device.device, device.pci, device.name) == (
        1, "spark-dbf4", 0, "000f:01:00", "NVIDIA GB10",
    )  # fmt: skip
    (rccl,) = parse_file(LOGS / "rccl_mi300x_16ranks.log")
    assert (rccl.version, len(rccl.devices), rccl.devices[15].host) == (
        "develop:448c4c7",
        16,
        "gpu-56",
    )
    (unnamed,) = parse_file(LOGS / "rccl_mi355x_16ranks_no_devname_no_footer.log")
    assert unnamed.devices[0].name == ""


def test_rows_glued_to_host_names_are_read_to_the_digit() -> None:
    """`root -1` and `#wrong 0` stick to a host name that itself begins with digits."""
    (sweep,) = parse_file(LOGS / "wh8_h100_g2_nvls_nccl_info.log")
    row = sweep.rows[1]
    assert (row.size, row.count, row.type, row.redop, row.root) == (
        536870912,
        134217728,
        "float",
        "sum",
        -1,
    )
    assert row.in_place is not None and row.out_of_place is not None
    assert (row.in_place.time_us, row.in_place.busbw_gb_s, row.in_place.wrong) == (
        2637.55,
        203.55,
        0,
    )
    assert row.out_of_place.wrong == 0


def test_causes_name_host_and_reason() -> None:
    def first(name: str) -> str:
        return parse_file(LOGS / f"{name}.log")[0].errors[0]

    assert first("nccltests369_gh200_device_busy").startswith(
        "CUDA failure (CUDA-capable device(s) is/are busy"
    )
    assert "gpu-1-1" in first("nccltests369_gh200_device_busy")
    assert first("awsome868_mpijob_resolve_hostname_orte").startswith(
        "host name cannot be resolved on nccl-tests-worker-3"
    )
    assert first("mpioperator424_permission_denied_orte").startswith(
        "ssh permission denied on tensorflow-benchmarks-worker-1"
    )
    assert first("nccltests299_prte_ssh_refused").startswith("ssh connection refused")
    assert first("xxrjun_h100_n2g1_alltoall_nccl_failure").startswith(
        "a remote process exited on cnode2-016"
    )
    assert first("polaris_launch_failed_pmi_port").startswith("launch failed on x3006c0s1b1n0")


def test_transport_shows_a_fallback_to_sockets() -> None:
    evidence = transport((LOGS / "wh8_h100_g2_nvls_nccl_info.log").read_text().splitlines())
    assert evidence is not None
    assert evidence.networks == ("Socket",) and evidence.sockets_only
    assert evidence.nodes == 1


def test_transport_shows_efa_without_gpu_direct() -> None:
    evidence = transport((LOGS / "awsdoeks_t4_efa_tagged_nccl_info.log").read_text().splitlines())
    assert evidence is not None
    assert (evidence.networks, evidence.gpu_direct) == (("AWS Libfabric",), False)
    assert not evidence.sockets_only


def test_transport_shows_gpu_direct_and_is_none_without_nccl_lines() -> None:
    evidence = transport(
        [
            f"0: {INFO} Assigned NET plugin gIB to comm",
            f"0: {INFO} Channel 00/0 : 0[0] -> 8[0] [send] via NET/gIB/0/GDRDMA",
            f"0: {INFO} comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0",
        ]
    )
    assert evidence is not None
    assert (evidence.networks, evidence.gpu_direct, evidence.nodes) == (("gIB",), True, 2)
    assert transport(["no NCCL log at all", "NET is down"]) is None


def sweep(name: str) -> Sweep:
    (made,) = parse_file(PAGE / name)
    return made


@pytest.mark.parametrize(
    ("name", "ranks", "model", "rows"),
    [
        ("h100-four-nodes.log", 4, "NVIDIA H100 80GB HBM3", 6),
        ("h100-slow-node.log", 4, "NVIDIA H100 80GB HBM3", 6),
        ("h200-killed-rank.log", 4, "NVIDIA H200", 1),
        ("h200-one-rank.log", 1, "NVIDIA H200", 14),
    ],
)
def test_all_rows_ranks_and_devices_of_real_logs_are_read(
    name: str, ranks: int, model: str, rows: int
) -> None:
    made = sweep(name)
    assert (made.collective, made.ranks, len(made.rows)) == ("all_reduce", ranks, rows)
    assert {device.name for device in made.devices} == {model}
    assert all(row.out_of_place and row.out_of_place.wrong == 0 for row in made.rows)


def test_times_of_a_healthy_and_a_slow_node_are_read() -> None:
    healthy, slow = (
        sweep(f"h100-{name}.log").rows[-1].out_of_place for name in ("four-nodes", "slow-node")
    )
    assert (healthy and healthy.time_us, slow and slow.time_us) == (108_900, 2_118_670)


def test_the_rank_that_was_killed_is_told_from_those_that_noticed() -> None:
    first = classify((PAGE / "h200-killed-rank.log").read_text().splitlines())[0]
    assert (first.host, "killed by a signal" in first.cause) == ("10.77.0.4", True), (
        "as mpirun calls node-2"
    )
