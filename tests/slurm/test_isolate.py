"""A node of a real Slurm is drained, and put back."""

from typing import Any

import pytest

from seatrial.config.cluster import Cluster
from seatrial.model.errors import InputError
from seatrial.platforms import isolator_for
from tests.slurm.cluster import SlurmCluster


def test_a_node_is_drained_and_released(slurm: SlurmCluster, settings: dict[str, Any]) -> None:
    cluster = Cluster.model_validate(
        {"name": "c", "nodes": 2, "platform": settings, "isolate": {"dry_run": False}}
    )
    isolator = isolator_for(cluster)
    node = slurm.command("sinfo", "--noheader", "--Node", "--format=%N").split()[0]
    with pytest.raises(InputError, match="seatrial has not isolated it"):
        isolator.release(node)
    assert isolator.isolate(node, "run-1", "tcp-node-slow")
    assert _state(slurm, node) == "drained seatrial run run-1: tcp-node-slow"
    assert not isolator.isolate(node, "run-2", "tcp-node-slow")
    isolator.release(node)
    assert _state(slurm, node) == "idle none"


def _state(slurm: SlurmCluster, node: str) -> str:
    """State and reason, without the mark of a node that is slow to answer."""
    return (
        slurm.command("sinfo", "--noheader", f"--nodes={node}", "--format=%T %E")
        .strip()
        .replace("*", "")
    )
