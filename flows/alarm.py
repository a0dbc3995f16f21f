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
from flows.shown import cluster_tag
from flows.told import told_to_prefect
from seatrial.alerts.config import Notify
from seatrial.cluster import Cluster, LocalPlatform, load_cluster
from seatrial.errors import SeatrialError
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
            watch_task(cluster_of(run), suite_of(run), timedelta.max, why)
        return why


def died(run: FlowRun) -> str | None:
    """What to tell people of the run, on one line; None when there is nothing. Pure."""
    state: State[object] | None = run.state
    if state is None or came_to_a_verdict(state) or run.parameters.get("notify") is False:
        return None
    cluster = Path(str(run.parameters.get("cluster", "?"))).stem
    if state.type is StateType.CRASHED:
        return f"the check of {cluster} died: {state.message}"
    if state.type in (StateType.SCHEDULED, StateType.PENDING):
        due = f"{run.expected_start_time:%Y-%m-%d %H:%M} UTC" if run.expected_start_time else "its time"
        return f"the check of {cluster} did not start at {due}: is `seatrial serve`, or the worker, up?"
    return None


def cluster_of(run: FlowRun) -> Cluster:
    """What the run checked. Where its file cannot be read, which may be what it died of, the name alone."""
    file = Path(str(run.parameters.get("cluster", "")))
    try:
        return load_cluster(file)
    except SeatrialError as error:
        log.warning("%s", error)
    tag = cluster_tag("")
    stem = file.stem.lower().replace("_", "-") or "unknown"
    name = next((found.removeprefix(tag) for found in run.tags if found.startswith(tag)), stem)
    return Cluster.model_construct(name=name, nodes=1, platform=LocalPlatform(kind="local"), notify=Notify())


def suite_of(run: FlowRun) -> str:
    """The name of the run's suite; where its file cannot be read, what the file is called."""
    suite = str(run.parameters.get("suite") or "quick")
    try:
        return load_suite(suite).name
    except SeatrialError as error:
        log.warning("%s", error)
        return Path(suite).stem
