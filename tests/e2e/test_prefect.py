"""The flow as Prefect runs it: started from a deployment, cancelled from the UI's side."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Console, of_runs

_SERVE = """
from prefect.flows import EntrypointType
from flows.check import check
check.serve(name="trial", entrypoint_type=EntrypointType.MODULE_PATH, print_starting_message=False)
"""

_START = """
import sys
from prefect.deployments import run_deployment
cluster, suite, out = sys.argv[1:]
parameters = {"cluster": cluster, "suite": suite, "out": out}
print(run_deployment("seatrial-check/trial", parameters=parameters, timeout=0).id)
"""

_CANCEL = """
import asyncio, sys, uuid
from prefect import get_client
from prefect.states import Cancelling
async def cancel():
    async with get_client() as client:
        await client.set_flow_run_state(uuid.UUID(sys.argv[1]), Cancelling())
asyncio.run(cancel())
"""

_STATE = """
import asyncio, sys, uuid
from prefect import get_client
async def state():
    async with get_client() as client:
        run = await client.read_flow_run(uuid.UUID(sys.argv[1]))
        print(run.state.name, "|", run.state.message)
asyncio.run(state())
"""


def python(console: Console, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=console.folder,
        env=console.environment,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


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


def start(console: Console, *arguments: str) -> str:
    deadline = time.monotonic() + 60
    while True:  # the deployment is there once the runner has come up
        try:
            return python(console, _START, *arguments)
        except AssertionError:
            if time.monotonic() > deadline:
                raise


def wait_for(console: Console, flow_run: str, states: tuple[str, ...], timeout_s: float = 60) -> str:
    deadline = time.monotonic() + timeout_s
    while not (state := python(console, _STATE, flow_run)).startswith(states):
        assert time.monotonic() < deadline, f"{state}; {(console.folder / 'runner.log').read_text()[-2000:]}"
    return state


def test_a_cancelled_run_takes_its_nodes_down(served: Console) -> None:
    before = of_runs()
    out = served.folder / "out"
    suite = served.suite(
        collectives={
            "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
            "cpu": {"min_bytes": "4M", "max_bytes": "64M", "iterations": 2000},
            "timeout_s": 300,
        }
    )
    flow_run = start(served, str(served.cluster()), str(suite), str(out))
    log, deadline = out / "logs" / "run.log", time.monotonic() + 60
    while not (log.exists() and "mpirun: 4 ranks" in log.read_text()):
        assert time.monotonic() < deadline, (served.folder / "runner.log").read_text()[-2000:]
        time.sleep(0.1)
    assert of_runs() > before
    python(served, _CANCEL, flow_run)
    wait_for(served, flow_run, ("Cancelled",))
    assert of_runs() <= before


def test_a_bad_verdict_is_a_failed_flow_run_that_says_why(served: Console) -> None:
    cluster = served.cluster(2, faults=[{"node": "node-1", "sshd": "stopped"}])
    flow_run = start(served, str(cluster), str(served.suite()), str(served.folder / "out"))
    state = wait_for(served, flow_run, ("Failed", "Completed", "Crashed"))
    assert state.startswith("Failed | fail: connectivity: node-1: ")
    assert json.loads((served.folder / "out" / "run.json").read_text())["verdict"] == "fail"
