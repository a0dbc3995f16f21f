"""The end of runs whose process is gone, as Prefect is told of it."""

import subprocess
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Cancelled, Cancelling, Completed, Running

from flows.serving.limits import end_if_dead
from flows.serving.ui import PROCESS
from seatrial.runs.cluster_lock import ProcessIdentity


class Server:
    """One flow run, which may have gone on since it was read."""

    def __init__(self, state: State[Any]) -> None:
        self.run = FlowRun(id=uuid4(), flow_id=uuid4(), state=state, labels={PROCESS: str(gone())})

    def read_flow_run(self, _: object) -> FlowRun:
        return self.run

    def set_flow_run_state(self, _: object, state: State[Any], *, force: bool) -> None:
        assert force
        self.run.state = state


def gone() -> ProcessIdentity:
    process = subprocess.Popen(["true"])
    process.wait()
    here = ProcessIdentity.here()
    return replace(here, process=replace(here.process, pid=process.pid))


@pytest.mark.parametrize(
    ("was", "then", "is_"),
    [
        (Running(), None, "Crashed"),
        (Cancelling(), None, "Cancelled"),  # somebody wanted its end
        (Running(), Cancelling(), "Cancelled"),
        (Running(), Completed(), "Completed"),  # it had said what it came to before it ended
        (Cancelling(), Cancelled(), "Cancelled"),
    ],
)
def test_a_run_whose_process_is_gone_is_over(was: State[Any], then: State[Any] | None, is_: str) -> None:
    server = Server(was)
    read = server.run.model_copy()
    server.run.state = then or was
    assert end_if_dead(cast(SyncPrefectClient, server), read)
    assert server.run.state.name == is_
