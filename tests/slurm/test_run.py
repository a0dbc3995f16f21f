"""`seatrial run` on a real Slurm: sbatch, one sshd per node, the whole chain, nothing left."""

import signal
from typing import Any

import pytest

from tests.e2e.conftest import Console, until
from tests.site import PATIENCE_S
from tests.slurm.cluster import SlurmCluster

PATIENT = {"connectivity": {"timeout_s": 60}}  # four nodes and what else runs share two processors
TRAINING = {"steps": 5, "batch_per_rank": 2, "min_loss_drop": 0.01, "timeout_s": 300}


@pytest.mark.gate
def test_a_healthy_cluster_goes_through_the_whole_chain(
    slurm_console: Console, settings: dict[str, Any]
) -> None:
    cluster, suite = (
        slurm_console.cluster(2, platform=settings),
        slurm_console.suite(**PATIENT, training=TRAINING),
    )
    finished = slurm_console.check(cluster, suite)
    assert finished.status == 0, finished.output
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass",
        "collectives": "pass",
        "training": "pass",
    }
    assert len(finished.document["nodes"]) == 2
    assert {node["name"] for node in finished.document["nodes"]} <= {"n0", "n1", "n2", "n3"}


def test_ranks_that_srun_starts_go_through_the_whole_chain(
    slurm_console: Console, settings: dict[str, Any]
) -> None:
    platform = {**settings, "launch": "srun", "mpi_plugin": "none"}
    cluster = slurm_console.cluster(
        2, platform=platform, mpi={"mpirun": "/nowhere/mpirun"}, slots_per_node=2
    )
    finished = slurm_console.check(cluster, slurm_console.suite(**PATIENT, training=TRAINING))
    assert finished.status == 0, finished.output
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass",
        "collectives": "pass",
        "training": "pass",
    }
    log = (slurm_console.folder / "out" / "logs" / "all_reduce.log").read_text()
    assert " srun --jobid=" in log.splitlines()[0]
    assert "mpirun" not in log


def test_a_run_whose_job_ends_is_inconclusive_and_blames_no_node(
    slurm: SlurmCluster, slurm_console: Console, settings: dict[str, Any]
) -> None:
    sweep: dict[str, Any] = {
        "operations": ["all_reduce"],
        "cpu": {"min_bytes": "1M", "max_bytes": "16M", "iterations": 10000},
    }
    sweep["gpu"] = sweep["cpu"]
    suite = slurm_console.suite(**PATIENT, collectives={**sweep, "timeout_s": 120})
    process = slurm_console.start(
        "run", slurm_console.cluster(2, platform=settings), "--suite", suite, "--out", "out"
    )
    log = slurm_console.folder / "out" / "logs" / "all_reduce.log"
    until(lambda: log.exists() or process.poll() is not None)
    job = slurm.command("squeue", "--noheader", "--format=%i").strip()
    slurm.command("scontrol", "update", "timelimit=0", f"jobid={job}")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, f"{out}\n{err}"
    assert out.splitlines()[-1].startswith("inconclusive: collectives:"), out
    assert "reached its time limit" in out.splitlines()[-1]


def test_a_killed_run_is_reaped(
    slurm: SlurmCluster, slurm_console: Console, settings: dict[str, Any]
) -> None:
    cluster = slurm_console.cluster(2, platform=settings)
    process = slurm_console.start(
        "run", cluster, "--suite", slurm_console.suite(**PATIENT), "--out", "out"
    )
    until(lambda: "RUNNING" in slurm.command("squeue", "--noheader", "--format=%T"))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert slurm.left()
    reaped = slurm_console.run("reap", cluster)
    assert reaped.status == 0, reaped.output
    slurm.wait_until_idle()
    assert slurm.left() == set()
