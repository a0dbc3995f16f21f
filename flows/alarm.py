"""The flow `alarm`, for a check that died or did not run.

The automations of flows/serving/automations.py start it.
"""

import logging
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, PlatformSettings, load_cluster
from seatrial.config.notify import Notify
from seatrial.flows.serving.ui import cluster_tag, forward_logs, has_verdict
from seatrial.model.errors import SeatrialError
from seatrial.tasks.notify import watch_task

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

log = logging.getLogger("seatrial.alarm")


@flow(name="seatrial-alarm", flow_run_name="alarm", validate_parameters=True)
def alarm(flow_run: str) -> str | None:
    """Send an alert for a check that died or did not run, but not for one that reported why it
    could not measure.

    Fails if no alert could be sent.

    Args:
        flow_run: The id of the check's flow run.
    """
    with forward_logs(), get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run))
        if why := alert_text(run):
            log.error("%s", why)
            watch_task(cluster_of(run), suite_of(run), timedelta.max, why)
        return why


def alert_text(run: FlowRun) -> str | None:
    """Return the alert's text, one line, or None for a run that needs no alert. Pure."""
    state: State[object] | None = run.state
    if state is None or has_verdict(state) or run.parameters.get("notify") is False:
        return None
    cluster = Path(str(run.parameters.get("cluster", "?"))).stem
    if state.type is StateType.CRASHED:
        if "aborted by a termination signal" in (state.message or ""):  # as Prefect says it
            return (
                f"the check of {cluster} was cut off: `seatrial serve`, or the worker, was stopped"
            )
        return f"the check of {cluster} died: {state.message}"
    if state.type in (StateType.SCHEDULED, StateType.PENDING):
        due = (
            f"{run.expected_start_time:%Y-%m-%d %H:%M} UTC"
            if run.expected_start_time
            else "its time"
        )
        return (
            f"the check of {cluster} did not start at {due}: is `seatrial serve`, or the "
            "worker, up?"
        )
    return None


def cluster_of(run: FlowRun) -> Cluster:
    """Return the run's cluster; if its file cannot be read, a cluster with the name alone.

    The name is that of the run's tag, else the file's.
    """
    file = Path(str(run.parameters.get("cluster", "")))
    try:
        return load_cluster(file)
    except SeatrialError as error:
        log.warning("%s", error)
    tag = cluster_tag("")
    stem = file.stem.lower().replace("_", "-") or "unknown"
    name = next((one.removeprefix(tag) for one in run.tags if one.startswith(tag)), stem)
    return Cluster.model_construct(
        name=name, nodes=1, platform=PlatformSettings(kind="unknown"), notify=Notify()
    )


def suite_of(run: FlowRun) -> str:
    """Return the name of the run's suite; if its file cannot be read, the name of the file."""
    suite = str(run.parameters.get("suite") or "quick")
    try:
        return load_suite(suite).name
    except SeatrialError as error:
        log.warning("%s", error)
        return Path(suite).stem
