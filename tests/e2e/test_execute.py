"""A flow run in a container of its own, as the Jobs of deployments/server/kubernetes start it: its end by SIGTERM."""

import signal
import subprocess
import sys
from typing import Any

from tests.e2e.conftest import Console, until
from tests.e2e.test_prefect import call, state
from tests.site import PATIENCE_S


def deployed(console: Console, flow: str, parameters: dict[str, Any], **deployment: Any) -> str:
    """A flow run of a new deployment."""
    flow_id = call(console, "POST", "/flows/", name=flow)["id"]
    made = call(console, "POST", "/deployments/", name="container", flow_id=flow_id, **deployment)["id"]
    return str(call(console, "POST", f"/deployments/{made}/create_flow_run", parameters=parameters)["id"])


def start(console: Console, flow_run: str) -> "subprocess.Popen[str]":
    environment = console.environment | {"PREFECT__FLOW_RUN_ID": flow_run, "SEATRIAL_HOME": str(console.folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "prefect.engine"],
        cwd=console.folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    console.started.append(process)
    return process


def test_a_run_that_is_told_to_end_takes_its_nodes_down_first(console: Console) -> None:
    cpu = {"min_bytes": "1M", "max_bytes": "64M", "step_factor": 4, "warmup_iterations": 0, "iterations": 400}
    gpu = {"min_bytes": "1M", "max_bytes": "1M"}
    suite = console.suite(collectives={"operations": ["all_reduce"], "gpu": gpu, "cpu": cpu, "timeout_s": 240})
    parameters = {"cluster": str(console.cluster(2)), "suite": str(suite), "notify": False}
    flow_run = deployed(console, "seatrial-check", parameters, entrypoint="flows.check.check")
    process = start(console, flow_run)
    logs = console.folder / "runs"
    until(lambda: any("all_reduce     1M" in log.read_text() for log in logs.glob("*/logs/run.log")))
    assert console.left()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert not console.left(), output
    assert state(console, flow_run)["type"] != "COMPLETED"
