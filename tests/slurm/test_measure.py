"""The script that is submitted by hand, by sbatch on a real Slurm; `seatrial judge` reads what it
wrote.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.cli.nodes import single_file
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms import platform_for
from tests.slurm.cluster import SlurmCluster

# In place of nccl-tests, which needs GPUs: rank 0 tells what the test sets.
ALL_REDUCE_PERF = """\
#!/bin/sh
[ "$SLURM_PROCID" = 0 ] || exit 0
echo "# test P2P=${NCCL_P2P_DISABLE:-}${NCCL_P2P_LEVEL:-} ALGO=${NCCL_ALGO:-} ranks=$SLURM_NTASKS args=$*"
"""


def submitted(slurm: SlurmCluster, folder: Path, **fields: Any) -> tuple[str, Path]:
    """What the job printed, and the folder of its logs."""
    cluster = Cluster.model_validate({"name": "hand", "nodes": 2, **fields})
    run = Run("by-hand", cluster, load_suite("quick"), folder)
    script = folder / "measure.sbatch"
    script.write_text(platform_for(cluster).render(run).files["measure.sbatch"])
    for name in ("collective", "training"):
        (folder / f"{name}.pyz").write_bytes(single_file(name))
    # Ends with the job's own status
    command = ["sbatch", "--parsable", "--wait", f"--chdir={folder}", str(script)]
    job = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False
    ).stdout.strip()
    for node in slurm.names:  # torch's own cache, of whoever submits it
        slurm.in_node(node, "rm", "-rf", "/tmp/torchinductor_root")
    there = Path(fields["platform"].get("output", folder))
    return (there / f"seatrial-{job}.out").read_text(), there / f"seatrial-{job}"


@pytest.fixture
def folder(slurm: SlurmCluster, tmp_path: Path) -> Path:
    """On the file system that the nodes share."""
    folder = slurm.shared / tmp_path.name
    folder.mkdir()
    return folder


def output_line(log: Path) -> str:
    """What the stand-in for nccl-tests printed, between lines of srun's own."""
    return next(line for line in log.read_text().splitlines() if line.startswith("# test"))


def judged(log: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "seatrial", "judge", str(log), "--json", *words]
    document: dict[str, Any] = json.loads(
        subprocess.run(command, capture_output=True, check=False).stdout
    )
    return document


def test_nodes_without_gpus_are_measured_by_the_probes(
    slurm: SlurmCluster, folder: Path, settings: dict[str, Any]
) -> None:
    elsewhere = folder / "output"
    elsewhere.mkdir()
    printed, logs = submitted(
        slurm, folder, platform={**settings, "mpi_plugin": "none", "output": str(elsewhere)}
    )
    assert {path.name for path in logs.iterdir()} == {
        "hostnames.log",
        "all_reduce.log",
        "training.log",
    }
    assert "exit status" not in printed
    assert judged(logs, "--hardware", "cpu", "--nodes", "2")["verdict"] == "pass"
    assert '"event"' in (logs / "training.log").read_text()


def test_every_test_of_nccl_gets_its_ranks_and_its_environment(
    slurm: SlurmCluster, folder: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = folder / "bin" / "all_reduce_perf"
    tool.parent.mkdir()
    tool.write_text(ALL_REDUCE_PERF)
    tool.chmod(0o755)
    monkeypatch.setenv(
        "PATH", f"{tool.parent}:{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    )
    gpus = {"hardware": "H100-SXM", "gpus_per_node": 2}
    printed, logs = submitted(slurm, folder, **gpus, platform={**settings, "mpi_plugin": "none"})
    first = {
        path.stem: output_line(path).partition(" args")[0]
        for path in logs.glob("*.log")
        if path.stem not in ("hostnames", "training")
    }
    nodes = (logs / "hostnames.log").read_text().split()
    assert len(set(nodes)) == 2
    assert first == {
        "all_reduce": "# test P2P= ALGO= ranks=4",
        "network": "# test P2P=1 ALGO=Ring ranks=4",
        "latency": "# test P2P= ALGO= ranks=4",
        **{f"intra-{node}": "# test P2P=NVL ALGO= ranks=2" for node in nodes},
    }
    assert "training: exit status" in printed  # there is no CUDA, and the script says so
