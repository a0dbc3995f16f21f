"""What is submitted to RunAI, word by word, and what is made of its answers."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run
from seatrial.platforms import platform_for
from seatrial.platforms.runai import RunaiPlatform
from seatrial.platforms.runai.platform import pod_names, read_workload, submit_argv
from tests.cluster_files import refusal

GOLDEN = Path(__file__).parents[2] / "golden" / "runai"
EXAMPLE = Path(__file__).parents[3] / "deployments" / "clusters" / "gh200-runai.yaml"


def run_of(cluster: Cluster) -> Run:
    return Run("20260102-0304-abcde", cluster, load_suite("quick"), Path("out"))


def submitted(cluster: Cluster, **fields: Any) -> tuple[list[str], list[str]]:
    """The words of the submit, and the pods that are nodes."""
    settings = cluster.platform
    assert isinstance(settings, RunaiPlatform)
    settings = settings.model_copy(update=fields)
    return submit_argv(run_of(cluster), settings), pod_names(
        settings, "20260102-0304-abcde", cluster.nodes
    )


# Fields of the cluster, and of the platform
SUBMITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gh200-pytorch": ({}, {}),
    "gh200-mpi": ({}, {"framework": "mpi"}),
    "gb200-pytorch": ({"hardware": "GB200-NVL72"}, {"node_pool": "gb200"}),
    "one-node": ({"nodes": 1}, {}),
    "cpu": (
        {"nodes": 2, "gpus_per_node": None, "hardware": "cpu", "fabric": None, "slots_per_node": 2},
        {"node_pool": None, "extended_resources": {}, "capabilities": (), "large_shm": False},
    ),
    "full": (
        {"slots_per_node": 2},
        {
            "framework": "mpi",
            "capabilities": ("IPC_LOCK", "SYS_PTRACE"),
            "extended_resources": {"rdma/rdma_shared_device_b": 2, "rdma/rdma_shared_device_a": 4},
            "args": (
                "--node-type=gh200",
                "--image-pull-policy=IfNotPresent",
                "--existing-pvc=claimname=data,path=/data",
            ),
            "deadline_s": 600,
        },
    ),
}


def rendered(name: str) -> str:
    """Each as a line for the shell, one word on a line, the pods that are nodes below it."""
    document = yaml.safe_load(EXAMPLE.read_text())
    fields, platform = SUBMITS[name]
    document |= fields | {"platform": document["platform"] | platform, "name": "gh200"}
    cluster = Cluster.model_validate(
        {key: value for key, value in document.items() if value is not None}
    )
    argv, pods = submitted(cluster)
    words = " \\\n    ".join(map(shlex.quote, argv))
    return f"{words}\n" + "".join(f"# node: {pod}\n" for pod in pods)


@pytest.mark.parametrize("name", SUBMITS)
def test_submit_commands_match_the_golden_files(name: str) -> None:
    """`python -m tests.unit.runai.test_workload` writes them anew; read what changed."""
    assert rendered(name) == (GOLDEN / f"{name}.sh").read_text()


def test_every_golden_file_is_in_use() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(SUBMITS)


def test_render_prints_the_command() -> None:
    cluster = load_cluster(EXAMPLE)
    (text,) = platform_for(cluster).render(run_of(cluster)).files.values()
    assert text.startswith(
        "runai training pytorch submit seatrial-20260102-0304-abcde --project=infra "
    )


@pytest.mark.parametrize(
    ("document", "phase", "words"),
    [
        ({"actualPhase": "Running", "phase": "Pending"}, "Running", ()),
        (
            {"workload": {"phase": "Pending", "conditions": [{"message": "no quota"}]}},
            "Pending",
            ("no quota",),
        ),
        ({"status": {"phase": "Failed"}}, "Failed", ()),
        ({"phase": 7, "status": None}, "Unknown", ()),
        ({"phase": "x" * 200}, "Unknown", ()),
        ([{"phase": "Running"}], "Running", ()),
        ("text", "Unknown", ()),
        ({"phase": "Pending", "events": [{"message": "a\x1b[2Jb" + "c" * 1000}]}, "Pending", None),
    ],
)
def test_workload_descriptions_of_any_shape_are_read(
    document: Any, phase: str, words: tuple[str, ...] | None
) -> None:
    workload = read_workload(json.dumps(document))
    assert workload.phase == phase
    assert words is None or workload.messages == words
    assert "\x1b" not in workload.shown
    assert len(workload.shown) < 1000


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "Error: no such workload"])
def test_output_that_is_no_json_has_an_unknown_phase(text: str) -> None:
    assert read_workload(text).phase == "Unknown"


@pytest.mark.parametrize(
    ("platform", "problem"),
    [
        (
            {"args": ["--workers=9"]},
            "--workers is set by another field or by seatrial; leave it out",
        ),
        ({"args": ["-g 4"]}, "must be one option with its value"),
        ({"framework": "tf"}, "'pytorch' or 'mpi'"),
        ({"extended_resources": {"rdma/x": 0}}, "must be at least 1"),
        *(
            ({"extended_resources": {name: 1}}, "must be a resource of Kubernetes")
            for name in ("-x", "a b", "x" * 300)
        ),
    ],
)
def test_bad_settings_are_named(tmp_path: Path, platform: dict[str, Any], problem: str) -> None:
    settings = {"kind": "runai", "project": "infra", **platform}
    assert problem in refusal(tmp_path, image="r.example.com/i:1", platform=settings)


def test_runai_cluster_file_without_an_image_is_refused(tmp_path: Path) -> None:
    line = refusal(tmp_path, platform={"kind": "runai", "project": "infra"})
    assert "image: is needed, because platform runai starts the nodes from it" in line


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in SUBMITS:
        (GOLDEN / f"{each}.sh").write_text(rendered(each))
