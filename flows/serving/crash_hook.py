"""What is done for a run that was cancelled or whose process died: all that is known of it is its flow run's id."""

import logging
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from flows.serving.holders import release_lease
from flows.serving.outcome import has_verdict
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.model.errors import SeatrialError
from seatrial.platforms import state as states
from tasks.launch import teardown

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State
    from prefect.flows import Flow

log = logging.getLogger("seatrial")


def teardown_after_crash(flow: "Flow[..., object]", flow_run: "FlowRun", state: "State[object]") -> None:
    """Prefect calls this where a run was cancelled or its process died: nothing of it is in memory any more.

    It does so also where a run could not measure; that one has taken its nodes down, or keeps them on purpose.
    """
    if has_verdict(state):
        return
    run_id = run_id_of(flow_run.id, flow_run.expected_start_time)
    cluster = _cluster_of(run_id, Path(flow_run.parameters["cluster"]))
    if cluster:
        teardown(cluster, run_id)
    release_lease(flow_run.id)


def _cluster_of(run_id: str, file: Path) -> Cluster | None:
    """What the run brought up, as it was then, for the file may have changed; else what the file says, if it can."""
    if folder := states.find(run_id):
        with suppress(SeatrialError):
            return states.recall(folder)
    try:
        return load_cluster(file)
    except SeatrialError as error:
        log.warning("run %s: nothing of it is known here: %s", run_id, error)
        return None


def run_id_of(flow_run_id: UUID, scheduled: datetime | None) -> str:
    """A sortable id, unique and legal in every name, that follows from the flow run alone: 20261121-0922-1f4c2."""
    stamp = (scheduled or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%d-%H%M")
    return f"{stamp}-{flow_run_id.hex[-5:]}"
