"""Runs of seatrial's own flows alone, whatever has been made of their deployments since.

Who may use Prefect's API may edit a deployment: its entrypoint, the steps that fetch its code, which can be any
command, and the variables of its process or Job. Prefect's own runner and workers would follow, with the rights of
this process.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.deployments.runner import RunnerDeployment
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.runner._flow_run_executor import FlowRunExecutor, FlowRunExecutorContext
from prefect.runner._starter_engine import EngineCommandStarter

from flows.serving.graceful_stop import PatientRunner
from seatrial.model.errors import InputError

ENTRYPOINTS = {  # by the flow's name in Prefect
    "seatrial-alarm": "flows.alarm.alarm",
    "seatrial-check": "flows.check.check",
    "seatrial-promote": "flows.promote.promote_run",
    "seatrial-reap": "flows.reap.reap",
    "seatrial-watch": "flows.watch.watch",
}
ENVIRONMENT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}  # flows/serving/automations.py calls a run dead after 90 s


async def entrypoint_of(client: PrefectClient, flow_run: FlowRun) -> str:
    """Where the code of the run's flow is in this installation. Raises InputError for a flow that is not seatrial's."""
    name = (await client.read_flow(flow_run.flow_id)).name
    if name not in ENTRYPOINTS:
        raise InputError(f"flow {name!r}: is not seatrial's and is not run here; legal: {', '.join(ENTRYPOINTS)}")
    return ENTRYPOINTS[name]


def pinned_executor(context: FlowRunExecutorContext, flow_run: FlowRun, entrypoint: str) -> FlowRunExecutor:
    """What starts the run as a child of this process, with its environment, in the folder of SEATRIAL_HOME."""

    async def flow(_: FlowRun) -> Flow[Any, Any]:
        return load_flow_from_entrypoint(entrypoint)

    starter = EngineCommandStarter(
        entrypoint=entrypoint,
        cwd=Path(os.environ.get("SEATRIAL_HOME", ".")).absolute(),
        env=dict(ENVIRONMENT),
        control_channel=context.control_channel,
    )
    return context.create_executor(flow_run, starter, resolve_flow=flow, propose_submitting=False)


def job_template(image: str) -> dict[str, Any]:
    """The template of a Kubernetes work pool as it ships, whose Jobs run `image`: it leaves nothing to a deployment."""
    file = Path(os.environ.get("SEATRIAL_DEPLOYMENTS", "deployments"), "server", "kubernetes", "base-job-template.json")
    template: dict[str, Any] = json.loads(file.read_text(encoding="utf-8").replace("REGISTRY/seatrial", image))
    return template


class PinnedRunner(PatientRunner):
    """Serves deployments that are named by `serve_pinned`, and no others."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, limit=None)  # those that wait must not keep others from starting
        self._entrypoints: dict[UUID, str] = {}

    def serve_pinned(self, deployment: RunnerDeployment) -> UUID:
        """Register the deployment with the server; its entrypoint is fixed by this."""
        served = self.add_deployment(deployment)
        assert isinstance(served, UUID)
        assert deployment.entrypoint
        self._entrypoints[served] = deployment.entrypoint
        return served

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        _replace(self._scheduled_run_poller, "_resolve_starter", self._starter)
        _replace(self._hook_runner, "_resolve_flow", self._flow)  # also of runs that were cancelled or died
        return self

    def _starter(self, flow_run: FlowRun) -> EngineCommandStarter:
        return EngineCommandStarter(
            entrypoint=self._entrypoint(flow_run),  # with it the run's process does not ask where its code is
            control_channel=self._control_channel,
        )

    async def _flow(self, flow_run: FlowRun) -> Flow[Any, Any]:
        return load_flow_from_entrypoint(self._entrypoint(flow_run))

    def _entrypoint(self, flow_run: FlowRun) -> str:
        """Raises KeyError where the run is not of a deployment that is served here."""
        assert flow_run.deployment_id
        return self._entrypoints[flow_run.deployment_id]


def _replace(part: object, name: str, value: Callable[..., Any]) -> None:
    """Raises AttributeError where Prefect's own has another name by now, and so would stay in place."""
    getattr(part, name)
    setattr(part, name, value)
