"""`launch: srun` on a real Slurm: what ranks get, which nodes take part, and that nothing of a step
outlives it.
"""

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.testbed import Testbed
from seatrial.remote.mpi import mpirun
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.node_setup import set_up_node
from tests.quick_run import launched, quick_run
from tests.site import PATIENCE_S
from tests.slurm.cluster import SlurmCluster


@pytest.fixture
def srun_nodes(settings: dict[str, Any], tmp_path: Path) -> Iterator[Testbed]:
    platform = {**settings, "launch": "srun", "mpi_plugin": "none"}
    gpus = {"hardware": "H100-SXM", "gpus_per_node": 2, "env": {"NCCL_DEBUG": "WARN"}}
    with launched(quick_run(tmp_path, nodes=3, **gpus, platform=platform)) as srun_nodes:
        set_up_node(srun_nodes, srun_nodes.head, 30).transport.close()
        yield srun_nodes


def lines(result: MpiResult) -> list[str]:
    """Without those of srun itself."""
    return [line for line in result.lines if not line.startswith("srun: ")]


def test_a_rank_has_a_gpu_of_its_own_and_the_runs_environment(srun_nodes: Testbed) -> None:
    names = (
        "SLURM_PROCID",
        "SLURMD_NODENAME",
        "NCCL_DEBUG",
        "NCCL_TESTS_DEVICE",
        "NCCL_NET",
        "SLURM_GPUS_PER_TASK",
    )
    command = "echo " + " ".join(f"${name}" for name in (*names, "CUDA_VISIBLE_DEVICES"))
    result = mpirun(
        srun_nodes, ["sh", "-c", command], timeout_s=PATIENCE_S, env={"NCCL_NET": "Socket"}
    )
    assert result.ok, result.lines
    answers = [line.rsplit(" ", 1) for line in sorted(lines(result))]
    assert [first for first, _ in answers] == [
        f"{rank} {node.name} WARN 0 Socket 1"
        for rank, node in enumerate(node for node in srun_nodes.nodes for _ in range(2))
    ]
    assert all("," not in gpu for _, gpu in answers)


def test_nodes_that_were_taken_out_get_no_rank(srun_nodes: Testbed) -> None:
    head, out, last = srun_nodes.nodes
    result = mpirun(srun_nodes.without([out.name]), ["hostname"], timeout_s=PATIENCE_S)
    assert Counter(lines(result)) == {head.name: 2, last.name: 2}


def test_no_process_outlives_its_step(srun_nodes: Testbed, slurm: SlurmCluster) -> None:
    stubborn = "trap '' TERM; echo up; while :; do sleep 1; done"
    result = mpirun(srun_nodes, ["sh", "-c", stubborn], timeout_s=5)
    assert result.timed_out, result
    assert lines(result).count("up") == 6
    assert "seatrial-ranks" not in slurm.command("squeue", "--steps", "--noheader", "--format=%j")
    for node in srun_nodes.nodes:
        assert stubborn not in slurm.in_node(node.name, "ps", "-eo", "args=")


def test_a_rank_that_fails_ends_the_others(srun_nodes: Testbed) -> None:
    result = mpirun(
        srun_nodes,
        ["sh", "-c", '[ "$SLURM_PROCID" != 1 ] || exit 7; sleep 600'],
        timeout_s=PATIENCE_S,
    )
    assert (result.ok, result.timed_out) == (False, False)


def test_the_node_whose_ranks_flood_is_found(srun_nodes: Testbed) -> None:
    last = srun_nodes.nodes[-1].name
    flood = f'[ "$SLURMD_NODENAME" != {shlex.quote(last)} ] || yes {"x" * 1000}; sleep 60'
    result = mpirun(srun_nodes, ["sh", "-c", flood], timeout_s=PATIENCE_S, max_bytes=4 * 1024**2)
    (suspect,) = result.flooders
    assert suspect.name == last
