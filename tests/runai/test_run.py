"""`seatrial run` on RunAI: submit, keys by exec, the whole chain, nothing left; and workloads that end badly."""

import json
import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from seatrial.config.run import Run
from seatrial.model.errors import LaunchError
from tests.e2e.conftest import Console, until
from tests.quick_run import launched
from tests.runai.conftest import Project

TRAINING = {"steps": 5, "batch_per_rank": 2, "min_loss_drop": 0.01, "timeout_s": 300}


@pytest.mark.parametrize("framework", [pytest.param("pytorch", marks=pytest.mark.gate), "mpi"])
def test_a_healthy_project_goes_through_the_whole_chain(
    console: Console, project: Project, settings: dict[str, Any], framework: str
) -> None:
    console.environment["PATH"] = os.environ["PATH"]
    platform = {**settings, "framework": framework}
    cluster = console.cluster(2, platform=platform, image="registry.example.com/cpu:1")
    finished = console.check(cluster, console.suite(connectivity={"timeout_s": 60}, training=TRAINING))
    assert finished.status == 0, finished.output
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass",
        "collectives": "pass",
        "training": "pass",
    }
    kinds = ["worker-0", "worker-1"] if framework == "mpi" else ["master-0", "worker-0"]
    assert [node["name"].split("-", 4)[-1][-8:] for node in finished.document["nodes"]] == kinds
    assert project.workloads() == []
    assert "PRIVATE KEY" not in json.dumps(project.calls())


@pytest.mark.parametrize(
    ("phase", "words"),
    [("Pending", "did not run within 0.5 s .*: Pending; Insufficient nvidia.com/gpu"), ("Failed", "ended: Failed; ")],
)
def test_a_workload_that_does_not_run_says_why(run: Run, project: Project, phase: str, words: str) -> None:
    project.tell(phase)
    settings = run.cluster.platform.model_copy(update={"queue_timeout_s": 0.5})
    waiting = replace(run, cluster=run.cluster.model_copy(update={"platform": settings}))
    with pytest.raises(LaunchError, match=words), launched(waiting):
        pass


def test_nodes_of_a_deleted_workload_are_not_blamed(run: Run, project: Project) -> None:
    with launched(run) as testbed:
        assert testbed.blameless_reason(testbed.head) is None
        project.delete(f"seatrial-{run.run_id}")
        assert testbed.blameless_reason(testbed.head) == f"workload seatrial-{run.run_id} was deleted"


def test_a_killed_run_is_reaped(console: Console, project: Project, settings: dict[str, Any]) -> None:
    console.environment["PATH"] = os.environ["PATH"]
    cluster = console.cluster(2, platform=settings, image="registry.example.com/cpu:1")
    process = console.start("run", cluster, "--suite", console.suite(), "--out", "out")
    until(lambda: bool(project.workloads()) or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert project.workloads()
    reaped = console.run("reap", cluster)
    assert reaped.status == 0, reaped.output
    assert project.workloads() == []
