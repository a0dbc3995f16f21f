"""Which run has a cluster, and the end of those whose process is gone with nobody there to say so."""

from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Cancelled, Crashed

from flows.serving.shown import LEASE, PROCESS, RUN, cluster_tag
from seatrial.runs.cluster_lock import ProcessIdentity, held_by

_MANY = 200  # the most that the server gives at once
_UNFINISHED = (StateType.RUNNING, StateType.CANCELLING)


def running(client: SyncPrefectClient, cluster: str | None = None) -> list[FlowRun]:
    """Every check that is said to be at work, of one cluster or of all."""
    states = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_UNFINISHED)))
    tags = FlowRunFilterTags(all_=[cluster_tag(cluster)]) if cluster else None
    return client.read_flow_runs(flow_run_filter=FlowRunFilter(state=states, tags=tags), limit=_MANY)


def holder(client: SyncPrefectClient, cluster: str, but: UUID) -> str:
    """Who has the cluster's slot, for people; one whose process is gone loses it by this."""
    for run in running(client, cluster):
        if run.id == but or LEASE not in run.labels or end_if_dead(client, run):
            continue
        since = f"{run.start_time:%Y-%m-%d %H:%M} UTC" if run.start_time else "just now"
        return held_by(cluster, f"{run.labels.get(RUN)} ({run.name})", since)
    return f"cluster {cluster} is being checked by a run that has died; it is free in a minute"


def release_lease(flow_run_id: UUID) -> None:
    """Give back what a run that has died held; nothing where it held nothing any more."""
    with get_client(sync_client=True) as client:
        lease = client.read_flow_run(flow_run_id).labels.get(LEASE)
        if lease:
            client.release_concurrency_slots_with_lease(UUID(str(lease)))


def end_if_dead(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Whether the run's process is gone for sure; then its state says so, and its slot is free."""
    place = ProcessIdentity.parse(str(run.labels.get(PROCESS, "")))
    if place is None or not place.is_gone:
        return False
    if LEASE in run.labels:
        client.release_concurrency_slots_with_lease(UUID(str(run.labels[LEASE])))
    end(client, run.id, "its process is gone and did not say why")
    return True


def end(client: SyncPrefectClient, flow_run: UUID, why: str) -> None:
    """Cancelled where somebody wanted that, else Crashed; what it has said of its end in the meantime stands."""
    state = client.read_flow_run(flow_run).state
    if state and state.is_final():
        return
    over: State[object] = Cancelled(message=why) if state and state.is_cancelling() else Crashed(message=why)
    client.set_flow_run_state(flow_run, over, force=True)
