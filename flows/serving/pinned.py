"""A runner that runs the flows it was started with, whatever has been made of their deployments since.

Who may use Prefect's API may edit a deployment: its entrypoint, and the steps that fetch its code, which can be any
command. Prefect's own runner would follow, with the rights of this process.
"""

from collections.abc import Callable
from typing import Any, Self
from uuid import UUID

from prefect.client.schemas.objects import FlowRun
from prefect.deployments.runner import RunnerDeployment
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.runner._starter_engine import EngineCommandStarter

from flows.serving.graceful_stop import PatientRunner


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
