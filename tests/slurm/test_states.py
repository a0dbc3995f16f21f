"""What a job may come to before and while its nodes are used, each by its own reason, on a real
Slurm.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason
from seatrial.platforms.slurm.script import job_name
from tests.e2e.conftest import until
from tests.quick_run import launched, quick_run
from tests.slurm.cluster import SlurmCluster


def run_of(settings: dict[str, Any], folder: Path, nodes: int = 2, **fields: Any) -> Run:
    return quick_run(folder, nodes=nodes, platform={**settings, **fields})


def job_id(slurm: SlurmCluster, run: Run) -> str:
    return slurm.command(
        "squeue", "--noheader", "--states=all", "--format=%i", f"--name={job_name(run.run_id)}"
    ).strip()


def requeue(slurm: SlurmCluster, job: str, how: str) -> None:
    """As an operator does it, although the job says --no-requeue."""
    slurm.command("scontrol", "update", f"jobid={job}", "requeue=1")
    slurm.command("scontrol", how, job)


def refused(run: Run) -> Reason:
    with pytest.raises(LaunchError) as error, launched(run):
        pass
    return error.value.reason


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"partition": "nowhere"}, "slurm-submit-refused", "invalid partition specified: nowhere"),
        ({"partition": "down"}, "slurm-never-starts", "the partition is down"),
        ({"nodes": 64}, "slurm-never-starts", "that many nodes"),
        ({"args": ["--hold"]}, "slurm-job-held", "JobHeldUser"),
    ],
)
def test_job_that_can_never_start_fails_at_once(
    settings: dict[str, Any], tmp_path: Path, fields: dict[str, Any], code: str, words: str
) -> None:
    reason = refused(run_of(settings, tmp_path, **fields))
    assert (reason.code, words in reason.sentence) == (code, True), reason


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda slurm, job: requeue(slurm, job, "requeue"), "slurm-job-cancelled"),
        (lambda slurm, job: requeue(slurm, job, "requeuehold"), "slurm-job-held"),
    ],
)
def test_a_job_that_ends_blames_no_node(
    slurm: SlurmCluster,
    settings: dict[str, Any],
    tmp_path: Path,
    end: Callable[[SlurmCluster, str], object],
    code: str,
) -> None:
    run = run_of(settings, tmp_path)
    with launched(run) as testbed:
        assert [testbed.blameless_reason(node) for node in testbed.nodes] == [None, None]
        end(slurm, job_id(slurm, run))
        until(lambda: testbed.blameless_reason(testbed.head) is not None)
        assert {(testbed.blameless_reason(node) or Reason()).code for node in testbed.nodes} == {
            code
        }


def test_a_node_that_an_operator_takes_down_does_not_blame_the_others(
    slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    with launched(run_of(settings, tmp_path)) as testbed:
        other, down = testbed.nodes
        slurm.command("scontrol", "update", f"nodename={down.name}", "state=down", "reason=test")
        # slurmd soon brings the node back
        until(lambda: testbed.blameless_reason(other) is not None)
        assert (testbed.blameless_reason(other) or Reason()).code == "slurm-node-failed"


def test_a_node_that_dies_is_blamed_and_the_others_are_not(
    slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = run_of(settings, tmp_path)
    try:
        with launched(run) as testbed:
            dead, other = testbed.nodes[1], testbed.nodes[0]
            slurm.kill(dead.name)
            until(lambda: testbed.blameless_reason(other) is not None)
            assert (testbed.blameless_reason(other) or Reason()).code == "slurm-node-failed"
            assert testbed.blameless_reason(dead) is None
    finally:
        slurm.start_node(dead.name)
        slurm.wait_until_idle()
