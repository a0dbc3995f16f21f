"""The flow as Prefect runs it, started from a deployment: its states, artifacts and logs, and a
baseline approved.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from seatrial.history import open_store
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from tests.e2e.conftest import Console, until
from tests.site import TLS

_SERVE = """
from prefect.flows import EntrypointType
from seatrial.flows.check import check
check.serve(name="trial", entrypoint_type=EntrypointType.MODULE_PATH, print_starting_message=False)
"""


@contextmanager
def runner(console: Console, program: str) -> Iterator[None]:
    """A process that works for a deployment."""
    with (console.folder / "runner.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=log,
            stderr=log,
            cwd=console.folder,
            env=console.environment,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            # A flow run outlives its runner, and would go on for minutes
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def served(console: Console) -> Iterator[Console]:
    """A console whose Prefect server has a deployment of the flow, and a runner that works for
    it.
    """
    with runner(console, _SERVE):
        yield console


def call(console: Console, method: str, path: str, **body: Any) -> Any:
    """One call of Prefect's REST API, as its UI makes them; it comes again where the server's
    database was locked.
    """
    url = f"{console.environment['PREFECT_API_URL']}{path}"
    deadline = time.monotonic() + 120
    while True:
        answer = httpx.request(
            method, url, json=body or None, auth=console.auth, timeout=120, verify=TLS
        )
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
            answer.raise_for_status()
            return answer.json()
        time.sleep(float(answer.headers.get("Retry-After", 0.5)))


def start(console: Console, **parameters: str) -> str:
    """Start a run of the deployment, once the runner has registered it; the flow run's id."""
    deployment = registered(console, "trial")
    created = call(
        console, "POST", f"/deployments/{deployment['id']}/create_flow_run", parameters=parameters
    )
    return str(created["id"])


def registered(console: Console, name: str) -> dict[str, Any]:
    """The deployment of that name, once its runner has registered it."""
    by_name = {"name": {"any_": [name]}}
    until(lambda: bool(call(console, "POST", "/deployments/filter", deployments=by_name)))
    (deployment,) = call(console, "POST", "/deployments/filter", deployments=by_name)
    return dict(deployment)


def state(console: Console, flow_run: str) -> dict[str, Any]:
    current: dict[str, Any] = call(console, "GET", f"/flow_runs/{flow_run}")["state"]
    return current


def logged(console: Console, flow_run: str) -> set[str]:
    """What Prefect keeps of a run's log."""
    entries = call(
        console, "POST", "/logs/filter", logs={"flow_run_id": {"any_": [flow_run]}}, limit=200
    )
    return {entry["message"] for entry in entries}


def only(flow_run: str) -> dict[str, Any]:
    """The filter for what belongs to one flow run."""
    return {"flow_runs": {"id": {"any_": [flow_run]}}}


def test_a_bad_verdict_is_a_failed_flow_run_that_says_why(served: Console) -> None:
    cluster = served.cluster(2, faults=[{"node": "node-1", "sshd": "stopped"}])
    flow_run = start(
        served,
        cluster=str(cluster),
        suite=str(served.suite()),
        out=str(served.folder / "runs" / "out"),
    )
    until(lambda: state(served, flow_run)["type"] in ("FAILED", "COMPLETED", "CRASHED"))
    assert state(served, flow_run)["type"] == "FAILED"
    assert state(served, flow_run)["message"].startswith("fail: node-1 (100 % sure): ")
    assert call(served, "GET", f"/flow_runs/{flow_run}")["name"] == "cluster suite"
    assert (
        json.loads((served.folder / "runs" / "out" / "run.json").read_text())["verdict"] == "fail"
    )
    # Prefect sends logs every few seconds
    until(lambda: "1 of 2 nodes answer on port 222" in logged(served, flow_run))
    artifacts = call(served, "POST", "/artifacts/filter", limit=10)
    keys = {artifact["key"] for artifact in artifacts}
    assert {"judgements-trial", "summary-trial"} <= keys, logged(served, flow_run)
    shown = {
        task["name"].partition("-")[0]: task["state"]
        for task in call(served, "POST", "/task_runs/filter", **only(flow_run))
    }
    assert (shown["launch"]["type"], shown["connectivity"]["type"]) == ("COMPLETED", "FAILED")
    assert shown["connectivity"]["message"].startswith("connectivity fail: node-1: ")
    failed = "Finished in state Failed('connectivity fail: node-1: "
    until(lambda: any(line.startswith(failed) for line in logged(served, flow_run)))
    printed = (served.folder / "runner.log").read_text()
    assert "Traceback" not in printed
    assert "Unexpected result" not in printed
    assert max(map(len, printed.splitlines())) < 1000  # no result with all its measurements


_SERVE_PROMOTE = """
from prefect.flows import EntrypointType
from seatrial.flows.promote import promote_run
promote_run.serve(name="promote", entrypoint_type=EntrypointType.MODULE_PATH, print_starting_message=False)
"""


@pytest.fixture
def approving(console: Console) -> Iterator[Console]:
    """A console with three passing runs in its history, and a runner for the flow `promote`."""
    with open_store(f"sqlite:///{console.folder}/history.sqlite") as store:
        for number in range(3):
            store.save(passing(number), console.folder)
    console.environment["SEATRIAL_HISTORY"] = f"sqlite:///{console.folder}/history.sqlite"
    with runner(console, _SERVE_PROMOTE):
        yield console


def passing(number: int) -> RunResult:
    at = datetime(2026, 11, 1 + number, tzinfo=UTC)
    plateau = Measurement("busbw_plateau", 400.0, "GB/s", Subject("cluster", "lab"))
    check = Check("collectives", Verdict.PASS, Reason(), 1.0, (plateau,))
    return RunResult(
        f"run-{number}", "lab", "quick", at, at, Verdict.PASS, Reason(), checks=[check]
    )


def answer(console: Console, flow_run: str, **fields: Any) -> dict[str, Any]:
    """Fill in the form that the paused run shows, as the UI does; the state it ends in."""
    until(lambda: state(console, flow_run)["type"] == "PAUSED")
    call(console, "POST", f"/flow_runs/{flow_run}/resume", run_input=fields)
    until(lambda: state(console, flow_run)["type"] in ("COMPLETED", "FAILED"))
    return state(console, flow_run)


def promotion(console: Console) -> str:
    deployment = registered(console, "promote")
    body = {"parameters": {"run_id": "run-2", "poll_s": 1}}
    return str(
        call(console, "POST", f"/deployments/{deployment['id']}/create_flow_run", **body)["id"]
    )


def test_a_baseline_is_pinned_when_a_person_approves_and_only_then(approving: Console) -> None:
    refused = answer(approving, promotion(approving), approved=False, by="ann", note="", force="")
    assert (refused["type"], refused["message"]) == (
        "FAILED",
        "run-2: was not approved, so nothing is pinned",
    )
    assert json.loads(approving.run("baseline", "show", "lab", "--json").out) == []
    done = answer(
        approving, promotion(approving), approved=True, by="ann", note="as delivered", force=""
    )
    assert (done["type"], done["message"]) == ("COMPLETED", "run-2: 1 numbers pinned by ann")
    (pin,) = json.loads(approving.run("baseline", "show", "lab", "--json").out)
    assert (pin["centre"], pin["pinned_by"], pin["run_id"], pin["note"]) == (
        400.0,
        "ann",
        "run-2",
        "as delivered",
    )


def test_a_run_that_could_not_measure_is_crashed_and_keeps_its_nodes(served: Console) -> None:
    """Prefect calls the hooks of a crash then too; they must leave alone what is kept for
    people.
    """
    cluster = served.cluster(2, mpi={"mpirun": "/nowhere/mpirun"}, keep="on_failure", keep_s=300)
    flow_run = start(
        served,
        cluster=str(cluster),
        suite=str(served.suite()),
        out=str(served.folder / "runs" / "out"),
    )
    until(lambda: state(served, flow_run)["type"] in ("FAILED", "COMPLETED", "CRASHED"))
    assert state(served, flow_run)["type"] == "CRASHED"
    assert state(served, flow_run)["message"].startswith("not_run: ")
    until(lambda: not running(flow_run))
    assert served.left()
    (run_id,) = served.run_ids()
    assert served.run("reap", "--run", run_id).status == 0
    until(lambda: not served.left())
    tags = call(served, "GET", f"/flow_runs/{flow_run}")["tags"]
    assert {"cluster:trial", "suite:brief", "verdict:not_run"} <= set(tags)


def running(flow_run: str) -> bool:
    """Whether the flow run has a process."""
    mark = f"PREFECT__FLOW_RUN_ID={flow_run}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in entry.read_bytes():
                return True
    return False
