"""What is said of nodes by their inventory: who is blamed, what is only a remark."""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.connectivity.inventory import attributes, broken_gpus, impaired_gpus, remarks
from seatrial.checks.connectivity.versions import old_drivers
from seatrial.checks.contract import CheckContext, StepResult
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import read_answer
from seatrial.remote.node_probe import Inventory
from tests.fake_platform import FakePlatform
from tests.fake_platform.node import Program
from tests.suspects import kinds_and_names, suspect_names

GPU = {
    "name": "gpu-0",
    "pci": "00000000:1B:00.0",
    "model": "NVIDIA H100 80GB HBM3",
    "memory_mib": 196_608,
    "vbios": "96.00.61.00.01",
    "ecc": "Enabled",
    "ecc_uncorrected": 0,
    "slowdown": [],
    "power_limit_w": 700.0,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "rows_pending": False,
    "rows_failed": False,
    "nvlinks": [26.562] * 18,
    "numa": 0,
}
PORT = {"port": "mlx5_0/1", "kind": "InfiniBand", "up": True, "gbit_s": 400.0, "numa": 0}


def inventory(gpus: int = 2, **changes: Any) -> Inventory:
    """A node of so many GPUs; the last has the changes."""
    listed = [
        {**GPU, "name": f"gpu-{i}", **(changes if i == gpus - 1 else {})} for i in range(gpus)
    ]
    return read_answer(Inventory, json.dumps({"gpus": listed, "ports": [PORT]}))


def node(**fields: Any) -> Inventory:
    return read_answer(Inventory, json.dumps({"gpus": [GPU], "ports": [PORT], **fields}))


def test_healthy_nodes_get_no_remarks() -> None:
    nodes = {"node-0": inventory(), "node-1": inventory()}
    assert (broken_gpus(nodes), impaired_gpus(nodes), remarks(nodes, {})) == ([], [], [])
    assert remarks({"node-0": Inventory(), "node-1": Inventory()}, {}) == []


def test_damage_that_the_gpu_reports_is_blamed() -> None:
    nodes = {
        "node-0": inventory(),
        "node-1": inventory(rows_failed=True, ecc_uncorrected=3),
        "node-2": inventory(ecc_uncorrected=3),
        "node-3": inventory(slowdown=["hardware slowdown", "thermal slowdown"]),
    }
    (broken,) = broken_gpus(nodes)
    assert (broken.name, broken.evidence.code) == ("node-1", "gpu-rows-failed")
    assert broken.evidence.sentence.startswith("gpu-1: ")
    impaired = {suspect.name: str(suspect.evidence) for suspect in impaired_gpus(nodes)}
    assert impaired == {
        "node-2/gpu-1": "3 uncorrectable ECC errors since the driver was loaded",
        "node-3/gpu-1": "is slowed down: hardware slowdown, thermal slowdown",
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows_pending": True}, "node-1/gpu-1: rows of its memory wait to be remapped"),
        ({"processes": 2}, "node-1/gpu-1: 2 processes use it already"),
        ({"pcie_width": 8}, "node-1/gpu-1: its PCIe link has 8 of 16 lanes"),
        ({"nvlinks": [26.562] * 17 + [0]}, "node-1/gpu-1: 1 of 18 links to other GPUs are down"),
        (
            {"vbios": "96.00.30.00.01"},
            "VBIOS of node-1 is 1 x 96.00.30.00.01, 1 x 96.00.61.00.01, 96.00.61.00.01 on 2",
        ),
        (
            {"model": "AMD Instinct MI300X", "memory_mib": 196_592},
            "GPU model of node-1 is 1 x AMD Instinct MI300X",
        ),
        (
            {"memory_mib": 98_304},
            "GPU memory of node-1 is 1 x 192 GiB, 1 x 96 GiB, 192 GiB on 2 of 3 nodes",
        ),
        (
            {"power_limit_w": 500},
            "power limit of node-1 is 1 x 500 W, 1 x 700 W, 700 W on 2 of 3 nodes",
        ),
    ],
)
def test_harmless_differences_between_nodes_are_remarks(
    changes: dict[str, Any], words: str
) -> None:
    nodes = {"node-0": inventory(), "node-1": inventory(**changes), "node-2": inventory()}
    assert (broken_gpus(nodes), impaired_gpus(nodes)) == ([], [])
    assert any(remark.sentence.startswith(words) for remark in remarks(nodes, {})), remarks(
        nodes, {}
    )


def test_same_remark_about_many_gpus_is_made_once() -> None:
    nodes = {f"node-{i}": inventory(processes=1) for i in range(50)}
    (remark,) = remarks(nodes, {})
    assert "and 46 more" in remark.sentence


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"memlock_kib": 64}, "memlock of node-1 is 64 KiB, unlimited on 2 of 3 nodes"),
        ({"hugepages": 512}, "hugepages of node-1 is 512, 0 on 2 of 3 nodes"),
        ({"ports": []}, None),
        (
            {"ports": [{**PORT, "up": False}]},
            "network ports of node-1 is 1 x InfiniBand down at 400 Gb/s, 1 x InfiniBand up",
        ),
        ({"shm_gb": 0.1}, "/dev/shm of node-1 is smaller than 1 GB"),
        ({"disk_free_gb": 0.5}, "less than 2 GB are free in /tmp of node-1"),
    ],
)
def test_limits_and_ports_are_compared(fields: dict[str, Any], words: str | None) -> None:
    healthy = {"memlock_kib": -1, "hugepages": 0, "shm_gb": 64.0, "disk_free_gb": 100.0}
    nodes = {
        "node-0": node(**healthy),
        "node-1": node(**{**healthy, **fields}),
        "node-2": node(**healthy),
    }
    assert [remark.sentence.startswith(words) for remark in remarks(nodes, {}) if words] == (
        [True] if words else []
    )


def test_many_different_values_make_one_remark() -> None:
    nodes = {f"node-{i}": inventory(gpus=1, vbios=f"96.{i}" if i > 5 else "96") for i in range(15)}
    (remark,) = remarks(nodes, {})
    assert remark.sentence.startswith(
        "VBIOS of node-6, node-7, node-8, node-9 and 5 more is one of 9 other values, 96 on 6 of 15"
    )


def test_nodes_of_different_models_may_differ() -> None:
    nodes = {"node-0": inventory(), "node-1": inventory(vbios="other")}
    assert remarks(nodes, {"node-0": "H100", "node-1": "A100"}) == []
    assert len(remarks(nodes, {"node-0": "H100", "node-1": "H100"})) == 1


def test_numa_affinity_is_compared_on_nodes_with_several_numa_nodes() -> None:
    assert "GPUs and ports by NUMA node" not in attributes(inventory())
    assert attributes(inventory(numa=1))["GPUs and ports by NUMA node"] == (
        "node 0: 1 GPUs, 1 ports; node 1: 1 GPUs, 0 ports"
    )


def test_errors_of_the_driver_are_one_remark_each() -> None:
    def xid(number: int, **changes: Any) -> dict[str, Any]:
        return {
            "kind": "Xid",
            "number": number,
            "pci": "0000:1b:00",
            "count": 2,
            "age_s": 7200.0,
            **changes,
        }

    nodes = {
        "node-0": node(xids=[xid(79), xid(31)]),
        "node-1": node(xids=[xid(79, age_s=60.0), xid(12028, kind="SXid")]),
        "node-2": node(xids=None),
    }
    fell_off, switch = remarks(nodes, {})
    assert fell_off.sentence.startswith(
        "Xid 79 (GPU fell off the bus) 4 times on node-0, node-1, last "
    )
    assert switch.sentence.startswith("SXid 12028 (NVSwitch error) 2 times on node-1")


@pytest.mark.parametrize(
    ("driver", "cuda", "old"),
    [
        ("550.54.15", "13.0.48", True),
        ("580.65.06", "13.0.48", False),
        ("550.54.15", "12.8.57", False),
        ("470.57.02", "12.8.57", True),
        ("525.59", "12.0.1", True),
        ("", "13.0.48", False),
        ("550.54.15", "", False),
        ("550.54.15", "99.1", False),
        ("garbage", "13.x", False),
        ("١٢.5", "13.0", False),
    ],
)
def test_driver_too_old_for_its_cuda_version_is_noted(driver: str, cuda: str, old: bool) -> None:
    noted = old_drivers(
        {"node-0": {"driver": driver, "cuda": cuda}, "node-1": {"driver": None, "cuda": None}}
    )
    assert bool(noted) is old
    assert (
        not old or f"driver {driver} on node-0 is older than CUDA {cuda} needs" in noted[0].sentence
    )


def prints(text: str) -> Program:
    return lambda request: text


def connectivity_of(platform: FakePlatform, cluster: Cluster, folder: Path) -> StepResult:
    run = Run("run-1", cluster, load_suite("quick"), folder)
    try:
        return connectivity(CheckContext(run, platform.launch(run)))
    finally:
        platform.teardown("run-1")


def connectivity_of_answers(folder: Path, answers: dict[str, str]) -> StepResult:
    """Connectivity of three nodes; those of `answers` print that as their inventory."""
    platform = FakePlatform(nodes=3)
    for name, text in answers.items():
        platform.nodes[name].programs["inventory.py"] = prints(text)
    return connectivity_of(platform, platform.cluster(), folder)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"requires_reset": True}, "gpu-requires-reset", "gpu-0: it requires a reset"),
        (
            {"recovery": "Drain and Reset"},
            "gpu-recovery-action",
            "gpu-0: the driver asks for: Drain and Reset",
        ),
        (
            {"fabric_state": "In Progress", "fabric_status": "N/A"},
            "gpu-fabric-down",
            "fabric manager: In Progress",
        ),
        (
            {"fabric_state": "Completed", "fabric_status": "Insufficient Resources"},
            "gpu-fabric-down",
            "Insufficient",
        ),
    ],
)
def test_a_gpu_that_asks_for_a_reset_or_has_no_fabric_is_blamed(
    fields: dict[str, Any], code: str, words: str
) -> None:
    (suspect,) = broken_gpus({"node-1": inventory(1, **fields)})
    assert (suspect.name, suspect.evidence.code, words in suspect.evidence.sentence) == (
        "node-1",
        code,
        True,
    )


def test_healthy_h100_is_not_blamed() -> None:
    """As driver 580 reports a single H100: fabric N/A, recovery action None."""
    well = {"recovery": "None", "fabric_state": "N/A", "fabric_status": "N/A"}
    assert broken_gpus({"node-1": inventory(1, **well)}) == []


def test_a_node_with_a_broken_gpu_is_set_aside(tmp_path: Path) -> None:
    result = connectivity_of_answers(
        tmp_path, {"node-1": inventory(rows_failed=True).model_dump_json()}
    )
    assert (result.check.verdict, result.check.reason.code) == (Verdict.FAIL, "gpu-rows-failed")
    assert suspect_names(result.check) == ["node-1"]
    assert [node.name for node in result.testbed.nodes] == ["node-0", "node-2"]


def test_connectivity_is_not_run_when_no_node_has_its_gpus(tmp_path: Path) -> None:
    platform = FakePlatform(nodes=2)
    cluster = platform.cluster(hardware="H100-SXM", gpus_per_node=8)
    for fake in platform.nodes.values():
        fake.facts["gpus"] = 0
    with pytest.raises(MissingError, match="none of 2 nodes has a GPU"):
        connectivity_of(platform, cluster, tmp_path)


def test_impaired_gpu_is_a_suspect_and_its_node_stays(tmp_path: Path) -> None:
    result = connectivity_of_answers(
        tmp_path, {"node-1": inventory(ecc_uncorrected=3).model_dump_json()}
    )
    assert result.check.verdict is Verdict.DEGRADED
    assert kinds_and_names(result.check) == [("gpu", "node-1/gpu-1")]
    assert len(result.testbed.nodes) == 3


@pytest.mark.parametrize(
    "text", ["", "Killed", '{"gpus": "many"}', '{"gpus": [{"name": "gpu-0\\u001b"}]}', "[" * 10_000]
)
def test_a_node_that_gives_no_inventory_is_named_and_not_blamed(tmp_path: Path, text: str) -> None:
    result = connectivity_of_answers(tmp_path, {"node-1": text})
    assert (result.check.verdict, result.check.suspects) == (Verdict.PASS, ())
    assert [note.sentence for note in result.notes if note.code == "inventory-unknown"] == [
        "node-1 gave no inventory"
    ]
