"""What is created for cluster files of Docker, kept in tests/golden/docker.

`python -m tests.unit.docker.golden` writes the files anew; read what changed.
"""

from pathlib import Path
from typing import Any

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run
from seatrial.platforms import platform_for

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "docker"
FULL: dict[str, Any] = {
    "kind": "docker",
    "context": "lab",
    "gpus": [["GPU-5a1b"], [3]],
    "cdi": True,
    "ulimits": {"nofile": 65536, "stack": 67108864},
    "mounts": [
        {"source": "/data", "target": "/data"},
        {"source": "/s", "target": "/mnt/s", "read_only": False},
    ],
    "devices": ["/dev/infiniband"],
    "capabilities": ["SYS_PTRACE"],
    "shared_memory_gib": 2.5,
    "deadline_s": 600,
}


def clusters() -> dict[str, Cluster]:
    """By the name of the golden files."""
    examples = ROOT / "deployments" / "clusters"
    full = {
        "name": "full",
        "nodes": 2,
        "hardware": "H100-SXM",
        "gpus_per_node": 1,
        "env": {"NCCL_DEBUG": "WARN"},
    }
    amd = {
        "name": "amd",
        "nodes": 1,
        "hardware": "MI300X",
        "gpus_per_node": 2,
        "platform": {"kind": "docker"},
    }
    cpu = {"name": "cpu", "nodes": 2, "platform": {"kind": "docker"}, "keep": "on_failure"}
    return {
        "docker": load_cluster(examples / "docker.yaml"),
        "docker-one": load_cluster(examples / "docker-one.yaml"),
        "full": Cluster.model_validate(
            {**full, "platform": FULL, "image": "registry.example.com/acceptance:1"}
        ),
        "amd": Cluster.model_validate({**amd, "image": "registry.example.com/rocm:1"}),
        "cpu": Cluster.model_validate({**cpu, "image": {"build": "cpu", "builder": "buildah"}}),
    }


def rendered(name: str) -> dict[str, str]:
    """The files of that cluster."""
    cluster = clusters()[name]
    run = Run("20260102-0304-abcde", cluster, load_suite("quick"), Path("out"))
    return dict(platform_for(cluster).render(run).files)


def write() -> None:
    for name in clusters():
        for file, text in rendered(name).items():
            path = GOLDEN / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


if __name__ == "__main__":
    write()
