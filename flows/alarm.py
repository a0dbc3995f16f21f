"""The flow `alarm`: the checker itself died or did not run. What starts it: flows/automations.py."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType

from flows.outcome import came_to_a_verdict
from flows.told import told_to_prefect
from seatrial.cluster import load_cluster
from seatrial.suite import load_suite
from tasks.notify import watch_task

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

log = logging.getLogger("seatrial.alarm")


@flow(name="seatrial-alarm", flow_run_name="alarm", validate_parameters=True)
def alarm(flow_run: str) -> str | None:
    """Tell people that a check died or did not run; a check that said itself why it could not measure is no such case.

    Fails where nobody could be told.

    Args:
        flow_run: The id of the check's flow run.
    """
    with told_to_prefect(), get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run))
        if why := died(run):
            log.error("%s", why)
            cluster, suite = (str(run.parameters.get(name, "")) for name in ("cluster", "suite"))
            watch_task(load_cluster(Path(cluster)), load_suite(suite or "quick").name, timedelta.max, why)
        return why


def died(run: FlowRun) -> str | None:
    """What to tell people of the run, on one line; None when there is nothing. Pure."""
    state: State[object] | None = run.state
    if state is None or came_to_a_verdict(state):
        return None
    cluster = Path(str(run.parameters.get("cluster", "?"))).stem
    if state.type is StateType.CRASHED:
        return f"the check of {cluster} died: {state.message}"
    if state.type in (StateType.SCHEDULED, StateType.PENDING):
        due = f"{run.expected_start_time:%Y-%m-%d %H:%M} UTC" if run.expected_start_time else "its time"
        return f"the check of {cluster} did not start at {due}: is `seatrial serve`, or the worker, up?"
    return None
