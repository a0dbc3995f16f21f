"""What is submitted for cluster files of Slurm, kept in tests/golden/slurm.

`python -m tests.unit.slurm.golden` writes the files anew; read what changed.
"""

from pathlib import Path
from typing import Any

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run
from seatrial.platforms import platform_for

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "slurm"
FULL: dict[str, Any] = {
    "partition": "gpu",
    "account": "acceptance",
    "qos": "high",
    "reservation": "maintenance.1",
    "constraint": "[rack1|rack2]&h100",
    "nodelist": "gpu-[01-02]",
    "exclude": "gpu-[07,09]",
    "switches": "1@30:00",
    "gres": "gpu:h100:8",
    "args": ["--mem=0", "--comment=trial"],
    "modules": ["openmpi/4.1", "cuda"],
    "output": "/shared/measured",
}


DESCRIBED = {
    "name": "full",
    "nodes": 2,
    "hardware": "H100-SXM",
    "gpus_per_node": 8,
    "env": {"NCCL_DEBUG": "WARN"},
}


def clusters() -> dict[str, tuple[Cluster, str]]:
    """Cluster and suite by the name of the golden files."""
    image = "nvcr.io/nvidia/pytorch:25.08-py3@sha256:" + "0" * 64
    mounts = [
        {"source": "/data", "target": "/data"},
        {"source": "/scratch", "target": "/tmp/x", "read_only": False},
    ]
    pyxis = {"kind": "slurm", "runtime": "pyxis", "mounts": mounts}
    apptainer = {
        "kind": "slurm",
        "runtime": "apptainer",
        "launch": "srun",
        "mounts": mounts,
        "modules": ["apptainer"],
    }
    return {
        "pyxis": (
            Cluster.model_validate({**DESCRIBED, "image": image, "platform": pyxis}),
            "quick",
        ),
        "apptainer": (
            Cluster.model_validate(
                {**DESCRIBED, "image": "/shared/trials.sif", "platform": apptainer}
            ),
            "quick",
        ),
        "h100-pyxis": (
            load_cluster(ROOT / "deployments" / "clusters" / "h100-slurm-pyxis.yaml"),
            "nightly",
        ),
        "h100": (load_cluster(ROOT / "deployments" / "clusters" / "h100-slurm.yaml"), "nightly"),
        "cpu": (
            Cluster.model_validate({"name": "cpu", "nodes": 4, "platform": {"kind": "slurm"}}),
            "quick",
        ),
        "one-gpu": (
            Cluster.model_validate(
                {**DESCRIBED, "nodes": 1, "gpus_per_node": 1, "platform": {"kind": "slurm"}}
            ),
            "nightly",
        ),
        "full": (
            Cluster.model_validate({**DESCRIBED, "platform": {"kind": "slurm", **FULL}}),
            "quick",
        ),
    }


def rendered(name: str) -> dict[str, str]:
    """The files of that cluster, with a home that is the same on every machine."""
    cluster, suite = clusters()[name]
    files = (
        platform_for(cluster)
        .render(Run("20260102-0304-abcde", cluster, load_suite(suite), Path("out")))
        .files
    )
    return {file: text.replace(str(Path.home()), "/home/user") for file, text in files.items()}


def write() -> None:
    for name in clusters():
        for file, text in rendered(name).items():
            if file != "node.sh":  # of scripts that ship
                path = GOLDEN / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)


if __name__ == "__main__":
    write()
