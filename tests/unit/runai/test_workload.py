"""What is submitted to RunAI, word by word, and what is made of its answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError
from seatrial.platforms import platform_for
from seatrial.platforms.runai.config import RunaiPlatform
from seatrial.platforms.runai.workload import pod_names, read_workload, submit_argv

EXAMPLE = Path(__file__).parents[3] / "deployments" / "clusters" / "gh200-runai.yaml"


def run_of(cluster: Cluster) -> Run:
    return Run("20260102-0304-abcde", cluster, load_suite("quick"), Path("out"))


def submitted(cluster: Cluster, **fields: Any) -> tuple[list[str], list[str]]:
    """The words of the submit, and the pods that are nodes."""
    settings = cluster.platform
    assert isinstance(settings, RunaiPlatform)
    settings = settings.model_copy(update=fields)
    return submit_argv(run_of(cluster), settings), pod_names(settings, "20260102-0304-abcde", cluster.nodes)


def test_three_nodes_of_pytorch_are_a_master_and_two_workers() -> None:
    argv, pods = submitted(load_cluster(EXAMPLE))
    assert argv == [
        "runai", "training", "pytorch", "submit", "seatrial-20260102-0304-abcde",
        "--project=infra", "--image=registry.example.com/seatrial/acceptance-arm64:1",
        "--workers=2", "--gpu-devices-request=4", "--node-pools=gh200", "--large-shm", "--capability=IPC_LOCK",
        "--extended-resource=rdma/rdma_shared_device_a=4",
        "--command", "--", "sleep", "14400",
    ]  # fmt: skip
    assert pods == [f"seatrial-20260102-0304-abcde-{role}" for role in ("master-0", "worker-0", "worker-1")]


def test_three_nodes_of_mpi_are_three_workers_beside_a_launcher() -> None:
    argv, pods = submitted(load_cluster(EXAMPLE), framework="mpi", args=("--node-type=gh200",), large_shm=False)
    assert argv == [
        "runai", "training", "mpi", "submit", "seatrial-20260102-0304-abcde",
        "--project=infra", "--image=registry.example.com/seatrial/acceptance-arm64:1",
        "--workers=3", "--gpu-devices-request=4", "--slots-per-worker=4", "--node-pools=gh200",
        "--capability=IPC_LOCK", "--extended-resource=rdma/rdma_shared_device_a=4", "--node-type=gh200",
        "--command", "--", "sleep", "14400",
    ]  # fmt: skip
    assert pods == [f"seatrial-20260102-0304-abcde-worker-{i}" for i in range(3)]


def test_render_prints_the_command() -> None:
    cluster = load_cluster(EXAMPLE)
    (text,) = platform_for(cluster).render(run_of(cluster)).files.values()
    assert text.startswith("runai training pytorch submit seatrial-20260102-0304-abcde --project=infra ")


@pytest.mark.parametrize(
    ("document", "phase", "words"),
    [
        ({"actualPhase": "Running", "phase": "Pending"}, "Running", ()),
        ({"workload": {"phase": "Pending", "conditions": [{"message": "no quota"}]}}, "Pending", ("no quota",)),
        ({"status": {"phase": "Failed"}}, "Failed", ()),
        ({"phase": 7, "status": None}, "Unknown", ()),
        ({"phase": "x" * 200}, "Unknown", ()),
        ([{"phase": "Running"}], "Running", ()),
        ("text", "Unknown", ()),
        ({"phase": "Pending", "events": [{"message": "a\x1b[2Jb" + "c" * 1000}]}, "Pending", None),
    ],
)
def test_answers_are_read_whatever_their_shape(document: Any, phase: str, words: tuple[str, ...] | None) -> None:
    workload = read_workload(json.dumps(document))
    assert workload.phase == phase
    assert words is None or workload.words == words
    assert "\x1b" not in workload.shown
    assert len(workload.shown) < 1000


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "Error: no such workload"])
def test_what_is_no_json_is_an_unknown_phase(text: str) -> None:
    assert read_workload(text).phase == "Unknown"


@pytest.mark.parametrize(
    ("platform", "problem"),
    [
        ("args: ['--workers=9']", "--workers is set by another field or by seatrial; leave it out"),
        ("args: ['-g 4']", "must be one option with its value"),
        ("framework: tf", "'pytorch' or 'mpi'"),
        ("extended_resources: {rdma/x: 0}", "greater than or equal to 1"),
    ],
)
def test_bad_settings_are_named(tmp_path: Path, platform: str, problem: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"nodes: 2\nimage: r.example.com/i:1\nplatform: {{kind: runai, project: infra, {platform}}}\n")
    with pytest.raises(InputError) as caught:
        load_cluster(file)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_image_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("nodes: 2\nplatform: {kind: runai, project: infra}\n")
    with pytest.raises(InputError, match="image: is needed, because platform runai starts the nodes from it"):
        load_cluster(file)


@pytest.mark.parametrize("name", ["-x", "a b", "x" * 300])
def test_what_is_no_resource_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be a resource of Kubernetes"):
        RunaiPlatform.model_validate({"kind": "runai", "project": "infra", "extended_resources": {name: 1}})
