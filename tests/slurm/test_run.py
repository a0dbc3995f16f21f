"""`seatrial run` on a real Slurm: sbatch, one sshd per node, the whole chain, nothing left."""

from typing import Any

import pytest

from tests.e2e.conftest import Console

PATIENT = {"connectivity": {"timeout_s": 60}}  # four nodes and what else runs share two processors
TRAINING = {"steps": 5, "batch_per_rank": 2, "min_loss_drop": 0.01, "timeout_s": 120}


@pytest.mark.gate
def test_a_healthy_cluster_goes_through_the_whole_chain(slurm_console: Console, settings: dict[str, Any]) -> None:
    cluster, suite = slurm_console.cluster(2, platform=settings), slurm_console.suite(**PATIENT, training=TRAINING)
    finished = slurm_console.check(cluster, suite)
    assert finished.status == 0, finished.said
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass",
        "collectives": "pass",
        "training": "pass",
    }
    assert len(finished.document["nodes"]) == 2
    assert {node["name"] for node in finished.document["nodes"]} <= {"n0", "n1", "n2", "n3"}
