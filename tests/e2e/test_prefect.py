"""The flow as Prefect runs it: started from a deployment, cancelled from the UI's side."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Console, until

_SERVE = """
from prefect.flows import EntrypointType
from flows.check import check
check.serve(name="trial", entrypoint_type=EntrypointType.MODULE_PATH, print_starting_message=False)
"""


@pytest.fixture
def served(console: Console) -> Iterator[Console]:
    """A console whose Prefect server has a deployment of the flow, and a runner that works for it."""
    with (console.folder / "runner.log").open("w") as log:
        runner = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdout=log,
            stderr=log,
            cwd=console.folder,
            env=console.environment,
            start_new_session=True,
        )
    try:
        yield console
    finally:
        runner.terminate()
        try:
            runner.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(runner.pid, signal.SIGKILL)  # a flow run outlives its runner, and would go on for minutes
            runner.wait()


def call(console: Console, method: str, path: str, **body: Any) -> Any:
    """One call of Prefect's REST API, as its UI makes them."""
    answer = httpx.request(method, f"{console.environment['PREFECT_API_URL']}{path}", json=body or None, timeout=30)
    answer.raise_for_status()
    return answer.json()


def start(console: Console, **parameters: str) -> str:
    """Start a run of the deployment, once the runner has registered it; the flow run's id."""
    until(lambda: bool(call(console, "POST", "/deployments/filter", limit=1)))
    (deployment,) = call(console, "POST", "/deployments/filter", limit=1)
    created = call(console, "POST", f"/deployments/{deployment['id']}/create_flow_run", parameters=parameters)
    return str(created["id"])


def state(console: Console, flow_run: str) -> dict[str, Any]:
    found: dict[str, Any] = call(console, "GET", f"/flow_runs/{flow_run}")["state"]
    return found


def logged(console: Console, flow_run: str) -> set[str]:
    """What Prefect keeps of a run's log."""
    entries = call(console, "POST", "/logs/filter", logs={"flow_run_id": {"any_": [flow_run]}}, limit=200)
    return {entry["message"] for entry in entries}


def said(console: Console) -> str:
    log = console.folder / "out" / "logs" / "run.log"
    return log.read_text() if log.exists() else ""


def test_a_cancelled_run_takes_its_nodes_down(served: Console) -> None:
    suite = served.suite(
        collectives={
            "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
            "cpu": {"min_bytes": "4M", "max_bytes": "64M", "iterations": 2000},
            "timeout_s": 300,
        }
    )
    flow_run = start(served, cluster=str(served.cluster()), suite=str(suite), out=str(served.folder / "out"))
    until(lambda: "mpirun: 4 ranks" in said(served))
    assert served.left()
    call(served, "POST", f"/flow_runs/{flow_run}/set_state", state={"type": "CANCELLING", "name": "Cancelling"})
    until(lambda: state(served, flow_run)["name"] == "Cancelled")
    assert not served.left()


def test_a_bad_verdict_is_a_failed_flow_run_that_says_why(served: Console) -> None:
    cluster = served.cluster(2, faults=[{"node": "node-1", "sshd": "stopped"}])
    flow_run = start(served, cluster=str(cluster), suite=str(served.suite()), out=str(served.folder / "out"))
    until(lambda: state(served, flow_run)["type"] in ("FAILED", "COMPLETED", "CRASHED"))
    assert state(served, flow_run)["type"] == "FAILED"
    assert state(served, flow_run)["message"].startswith("fail: connectivity: node-1: ")
    assert call(served, "GET", f"/flow_runs/{flow_run}")["name"] == "cluster suite"
    assert json.loads((served.folder / "out" / "run.json").read_text())["verdict"] == "fail"
    until(lambda: "1 of 2 nodes answer on port 222" in logged(served, flow_run))  # Prefect sends logs every few seconds
    artifacts = call(served, "POST", "/artifacts/filter", limit=10)
    assert {"judgements-trial", "summary-trial"} <= {artifact["key"] for artifact in artifacts}
