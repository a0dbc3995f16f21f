"""What a job may come to before and while its nodes are used, each by its own reason, on a real Slurm."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import code_of
from seatrial.platforms import platform_for
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


def state(slurm: SlurmCluster, job: str) -> str:
    return slurm.command("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}").strip()


def requeue(slurm: SlurmCluster, job: str, how: str) -> None:
    """As an operator does it, although the job says --no-requeue."""
    slurm.command("scontrol", "update", f"jobid={job}", "requeue=1")
    slurm.command("scontrol", how, job)


def refused(run: Run) -> str:
    with pytest.raises(LaunchError) as error, launched(run):
        pass
    return error.value.reason


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"partition": "nowhere"}, "slurm-submit-refused", "invalid partition specified: nowhere"),
        ({"constraint": "liquid"}, "slurm-submit-refused", "Invalid feature specification"),
        ({"nodelist": "n9"}, "slurm-submit-refused", "Invalid node name specified"),
        ({"partition": "short", "time_limit": "00:30:00"}, "slurm-never-starts", "time"),
        ({"partition": "down"}, "slurm-never-starts", "the partition is down"),
        ({"nodes": 64}, "slurm-never-starts", "that many nodes"),
        ({"args": ["--hold"]}, "slurm-job-held", "JobHeldUser"),
        ({"args": ["--mem=4000G"]}, "slurm-submit-refused", "Memory specification can not be satisfied"),
    ],
)
def test_what_will_never_start_fails_at_once(
    settings: dict[str, Any], tmp_path: Path, fields: dict[str, Any], code: str, words: str
) -> None:
    reason = refused(run_of(settings, tmp_path, **fields))
    assert (code_of(reason), words in reason) == (code, True), reason


def test_a_job_that_waits_too_long_says_what_for(slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path) -> None:
    with launched(run_of(settings, tmp_path, nodes=4)):
        reason = refused(run_of(settings, tmp_path, queue_timeout_s=3))
    assert code_of(reason) == "slurm-queued-too-long"
    assert "waiting for nodes to become free" in reason


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda slurm, job: slurm.command("scancel", job), "slurm-job-cancelled"),
        (lambda slurm, job: slurm.command("scontrol", "update", f"jobid={job}", "timelimit=0"), "slurm-job-timed-out"),
        (lambda slurm, job: requeue(slurm, job, "requeue"), "slurm-job-requeued"),
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
        assert {code_of(testbed.blameless_reason(node) or "") for node in testbed.nodes} == {code}


def test_a_job_that_was_requeued_and_is_up_again_is_told_from_one_that_stayed_up(
    slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = run_of(settings, tmp_path)
    with launched(run) as testbed:
        job = job_id(slurm, run)
        requeue(slurm, job, "requeue")
        until(lambda: "PENDING" in state(slurm, job))
        until(lambda: "RUNNING" in state(slurm, job))
        assert code_of(testbed.blameless_reason(testbed.head) or "") == "slurm-job-requeued"


def test_a_node_that_an_operator_takes_down_does_not_blame_the_others(
    slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    with launched(run_of(settings, tmp_path)) as testbed:
        other, down = testbed.nodes
        slurm.command("scontrol", "update", f"nodename={down.name}", "state=down", "reason=test")
        until(lambda: testbed.blameless_reason(other) is not None)  # slurmd soon brings the node back
        assert code_of(testbed.blameless_reason(other) or "") == "slurm-node-failed"


def test_a_suite_that_is_longer_than_the_job_may_be_is_refused_and_nothing_is_submitted(
    slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = replace(run_of(settings, tmp_path, time_limit="00:30:00"), suite=load_suite("acceptance"))
    with pytest.raises(MissingError) as error:
        platform_for(run.cluster).launch(run)
    assert code_of(error.value.reason) == "slurm-time-limit-short"
    assert "0:30:00" in error.value.reason
    assert "1:00:00" in error.value.reason
    assert slurm.left() == set()


def test_a_preempted_job_blames_no_node(slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path) -> None:
    run = run_of(settings, tmp_path, nodes=4)
    with launched(run) as testbed:
        urgent = threading.Thread(
            target=slurm.command, args=("srun", "--partition=urgent", "--nodes=4", "--exclusive", "true")
        )
        urgent.start()
        until(lambda: testbed.blameless_reason(testbed.head) is not None)
        assert {code_of(testbed.blameless_reason(node) or "") for node in testbed.nodes} == {"slurm-job-preempted"}
        urgent.join()


def test_a_node_that_dies_is_blamed_and_the_others_are_not(
    slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = run_of(settings, tmp_path)
    try:
        with launched(run) as testbed:
            dead, other = testbed.nodes[1], testbed.nodes[0]
            slurm.kill(dead.name)
            until(lambda: testbed.blameless_reason(other) is not None)
            assert code_of(testbed.blameless_reason(other) or "") == "slurm-node-failed"
            assert testbed.blameless_reason(dead) is None
    finally:
        slurm.start_node(dead.name)
        slurm.wait_until_idle()
