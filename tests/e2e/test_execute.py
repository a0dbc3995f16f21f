"""A flow run in a container of its own, as the Jobs of deployments/server/kubernetes start it: its end by SIGTERM."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from flows.serving.server import TemporaryServer
from tests.e2e.conftest import Console, until
from tests.site import TLS


class Api:
    """Prefect's, as the session's server has it."""

    def __init__(self, server: TemporaryServer) -> None:
        assert server.auth_string
        user, _, password = server.auth_string.partition(":")
        self._client = httpx.Client(base_url=server.api_url, auth=(user, password), verify=TLS, timeout=60)

    def __call__(self, method: str, path: str, /, **body: Any) -> Any:
        while (answer := self._client.request(method, path, json=body or None)).status_code == 503:
            pass  # SQLite is busy
        return answer.raise_for_status().json()

    def flow_run(self, flow: str, parameters: dict[str, Any], **deployment: Any) -> str:
        """Of a new deployment."""
        flow_id = self("POST", "/flows/", name=flow)["id"]
        made = self("POST", "/deployments/", name="container", flow_id=flow_id, **deployment)["id"]
        flow_run_id: str = self("POST", f"/deployments/{made}/create_flow_run", parameters=parameters)["id"]
        return flow_run_id

    def state(self, flow_run: str) -> str:
        state_type: str = self("GET", f"/flow_runs/{flow_run}")["state"]["type"]
        return state_type

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def api(prefect_server: TemporaryServer) -> Iterator[Api]:
    client = Api(prefect_server)
    yield client
    client.close()


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


def test_a_run_that_is_told_to_end_takes_its_nodes_down_first(console: Console, api: Api) -> None:
    cpu = {"min_bytes": "1M", "max_bytes": "64M", "step_factor": 4, "warmup_iterations": 0, "iterations": 400}
    gpu = {"min_bytes": "1M", "max_bytes": "1M"}
    suite = console.suite(collectives={"operations": ["all_reduce"], "gpu": gpu, "cpu": cpu, "timeout_s": 240})
    parameters = {"cluster": str(console.cluster(2)), "suite": str(suite), "notify": False}
    flow_run = api.flow_run("seatrial-check", parameters, entrypoint="flows.check.check")
    process = start(console, flow_run)
    logs = console.folder / "runs"
    until(lambda: any("all_reduce     1M" in log.read_text() for log in logs.glob("*/logs/run.log")), timeout_s=240)
    assert console.left()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert not console.left(), output
    assert api.state(flow_run) != "COMPLETED"
