"""`seatrial run` on RunAI: submit, keys by exec, the whole chain, nothing left; and workloads that
end badly.
"""

import json
import os
import signal
from typing import Any

import pytest

from tests.e2e.conftest import Console, until
from tests.runai.conftest import Project

TRAINING = {"steps": 5, "batch_per_rank": 2, "min_loss_drop": 0.01, "timeout_s": 300}


@pytest.mark.parametrize("framework", ["pytorch", "mpi"])
def test_a_healthy_project_goes_through_the_whole_chain(
    console: Console, project: Project, settings: dict[str, Any], framework: str
) -> None:
    console.environment["PATH"] = os.environ["PATH"]
    platform = {**settings, "framework": framework}
    cluster = console.cluster(2, platform=platform, image="registry.example.com/cpu:1")
    finished = console.check(
        cluster, console.suite(connectivity={"timeout_s": 60}, training=TRAINING)
    )
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


def test_a_killed_run_is_reaped(
    console: Console, project: Project, settings: dict[str, Any]
) -> None:
    console.environment["PATH"] = os.environ["PATH"]
    cluster = console.cluster(2, platform=settings, image="registry.example.com/cpu:1")
    process = console.start("run", cluster, "--suite", console.suite(), "--out", "out")
    until(lambda: bool(project.workloads()) or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert project.workloads()
    reaped = console.run("reap", cluster)
    assert reaped.status == 0, reaped.output
    assert project.workloads() == [], reaped.output
