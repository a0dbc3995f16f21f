"""The flow `alarm`: the checker itself died or did not run. What starts it: flows/serving/automations.py."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterId
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort

from flows.serving.log_forwarding import forward_logs
from flows.serving.outcome import has_verdict
from flows.serving.shown import cluster_tag
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.notify import Notify
from seatrial.config.platform import PlatformSettings
from seatrial.model.errors import SeatrialError
from tasks.notify import watch_task

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

log = logging.getLogger("seatrial.alarm")

_STOPPED = "aborted by a termination signal"  # as Prefect says it
_MANY = 200  # the most that the server gives at once


@flow(name="seatrial-alarm", flow_run_name="alarm", validate_parameters=True)
def alarm(flow_run: str) -> str | None:
    """Tell people that a check died or did not run; a check that said itself why it could not measure is no such case.

    Fails where nobody could be told.

    Args:
        flow_run: The id of the check's flow run.
    """
    with forward_logs(), get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run))
        if why := died(run):
            log.error("%s", why)
            watch_task(cluster_of(run, earlier(client, run)), suite_of(run), timedelta.max, why)
        return why


def died(run: FlowRun) -> str | None:
    """What to tell people of the run, on one line; None when there is nothing. Pure."""
    state: State[object] | None = run.state
    if state is None or has_verdict(state) or run.parameters.get("notify") is False:
        return None
    cluster = Path(str(run.parameters.get("cluster", "?"))).stem
    if state.type is StateType.CRASHED:
        if _STOPPED in (state.message or ""):
            return f"the check of {cluster} was cut off: `seatrial serve`, or the worker, was stopped"
        return f"the check of {cluster} died: {state.message}"
    if state.type in (StateType.SCHEDULED, StateType.PENDING):
        due = f"{run.expected_start_time:%Y-%m-%d %H:%M} UTC" if run.expected_start_time else "its time"
        return f"the check of {cluster} did not start at {due}: is `seatrial serve`, or the worker, up?"
    return None


def earlier(client: SyncPrefectClient, run: FlowRun) -> list[FlowRun]:
    """The latest checks of the same cluster file."""
    flow = FlowFilter(id=FlowFilterId(any_=[run.flow_id]))
    runs = client.read_flow_runs(flow_filter=flow, sort=FlowRunSort.START_TIME_DESC, limit=_MANY)
    return [other for other in runs if other.parameters.get("cluster") == run.parameters.get("cluster")]


def cluster_of(run: FlowRun, before: Sequence[FlowRun] = ()) -> Cluster:
    """What the run checked. Where its file cannot be read, which may be what it died of, the name alone.

    The name is that of the run's tag, or of those `before` it, or else what the file is called.
    """
    file = Path(str(run.parameters.get("cluster", "")))
    try:
        return load_cluster(file)
    except SeatrialError as error:
        log.warning("%s", error)
    tag = cluster_tag("")
    stem = file.stem.lower().replace("_", "-") or "unknown"
    tags = (tag_text for one in (run, *before) for tag_text in one.tags)
    name = next((tag_text.removeprefix(tag) for tag_text in tags if tag_text.startswith(tag)), stem)
    return Cluster.model_construct(name=name, nodes=1, platform=PlatformSettings(kind="unknown"), notify=Notify())


def suite_of(run: FlowRun) -> str:
    """The name of the run's suite; where its file cannot be read, what the file is called."""
    suite = str(run.parameters.get("suite") or "quick")
    try:
        return load_suite(suite).name
    except SeatrialError as error:
        log.warning("%s", error)
        return Path(suite).stem
