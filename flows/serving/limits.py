"""One check of a cluster at a time: a file lock on this machine, a concurrency limit of the Prefect
server beyond it.

Two sweeps at once would each measure half a fabric. The second run waits, and its state says for
which run. The file lock goes to the run that came first, and is free at once when its holder is
killed; the slot of the limit goes to any run that waits, and is free when its lease is over.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

from seatrial.flows.serving.server import has_lasting_server
from seatrial.flows.serving.ui import RUN, SLOT, cluster_tag, set_label, show_waiting
from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason
from seatrial.runs.cluster_lock import FileLock, held_by

log = logging.getLogger("seatrial.lock")

WAIT_S = 3600.0
LEASE_S = 60.0  # the least that Prefect takes
_LOOK_S = 2.0
_NO_ANSWER = (httpx.HTTPError, ConcurrencySlotAcquisitionError, ObjectNotFound)


@dataclass(slots=True)
class ClusterLock:
    """The lock of a cluster; `lost` is the reason why another run may have measured at the same
    time.
    """

    lost: Reason | None = None


@contextmanager
def cluster_lock(
    cluster: str, run_id: str, flow_run_id: UUID, wait_s: float
) -> "Iterator[ClusterLock]":
    """Hold the cluster.

    Raises MissingError, which names the holder, when it is not free within `wait_s`.
    """
    held = ClusterLock()
    deadline = time.monotonic() + wait_s
    slot = _slot(cluster, flow_run_id, deadline, held) if has_lasting_server() else nullcontext()
    with _file_lock(cluster, run_id, deadline), slot:
        yield held


@contextmanager
def _file_lock(cluster: str, run_id: str, deadline: float) -> Iterator[None]:
    try:
        lock = FileLock(cluster, run_id)
    except OSError as error:
        log.warning("no lock on this machine, runs may meet: %s", error)
        yield
        return
    try:
        with show_waiting() as waiting:
            _wait(lock.take, lock.holder, deadline, waiting)
        yield
    finally:
        lock.close()


@contextmanager
def _slot(cluster: str, flow_run_id: UUID, deadline: float, held: ClusterLock) -> Iterator[None]:
    """Hold a slot of the cluster's concurrency limit; hold none if the server does not answer at
    the start.
    """
    stack = ExitStack()
    try:
        _make_limit(cluster)
        if not _take(stack, cluster):
            with show_waiting() as waiting:
                _wait(
                    lambda: _take_later(stack, cluster),
                    lambda: _holder(cluster, flow_run_id),
                    deadline,
                    waiting,
                )
    except _NO_ANSWER as error:
        log.warning("the Prefect server keeps no order between machines just now: %s", error)
        yield
        return
    set_label(flow_run_id, SLOT, "held")
    # A run that has died keeps its label for a while
    before = {run.id for run in _others(cluster, flow_run_id)}
    try:
        yield
        if any(run.id not in before for run in _others(cluster, flow_run_id)):
            held.lost = Reason.of("lease-lost")
            log.error("%s", held.lost)
    finally:
        set_label(flow_run_id, SLOT, "")
        try:
            stack.close()
        except Exception as error:  # from the server or the connection to it
            log.warning("the cluster is free for other runs in %.0f s only: %s", LEASE_S, error)


def _make_limit(cluster: str) -> None:
    # Another run may create the limit at the same time
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.upsert_global_concurrency_limit_by_name(_name(cluster), 1)


def _name(cluster: str) -> str:
    return f"seatrial-{cluster}"


def _take(stack: ExitStack, cluster: str) -> bool:
    """Enter the limit unless another run has its slot; a lease that cannot be renewed later stops
    nothing.
    """
    if _is_taken(cluster):  # Prefect logs an error for each slot that it does not get
        return False
    held = concurrency(
        _name(cluster),
        max_retries=0,
        lease_duration=LEASE_S,
        strict=True,
        raise_on_lease_renewal_failure=False,
    )
    try:
        stack.enter_context(held)
    except ConcurrencySlotAcquisitionError as error:
        cause = error.__cause__
        if (
            isinstance(cause, httpx.HTTPStatusError)
            and cause.response.status_code == httpx.codes.LOCKED
        ):
            return False
        raise
    return True


def _is_taken(cluster: str) -> bool:
    with get_client(sync_client=True) as client:
        return client.read_global_concurrency_limit_by_name(_name(cluster)).active_slots > 0


def _take_later(stack: ExitStack, cluster: str) -> bool:
    """Enter the limit as a run that waits: no answer does not mean that the cluster is free."""
    try:
        return _take(stack, cluster)
    except _NO_ANSWER as error:
        log.debug("the Prefect server: %s", error)
        return False


def _wait(
    take: Callable[[], bool],
    who: Callable[[], str],
    deadline: float,
    waiting: Callable[[str], None],
) -> None:
    """Try to take until it works, and show whenever the holder changes."""
    announced = ""
    while not take():
        holds = who()
        if time.monotonic() >= deadline:
            raise MissingError.of("cluster-taken", holds=holds)
        if holds != announced:
            log.info("waiting: %s", announced := holds)
            waiting(holds)
        time.sleep(_LOOK_S)


def _holder(cluster: str, but: UUID) -> str:
    """Describe the run that has the cluster's slot."""
    run = next(iter(_others(cluster, but)), None)
    if run is None:
        return (
            f"cluster {cluster} is being checked by another run, or by one that has died a "
            "minute ago"
        )
    since = f"{run.start_time:%Y-%m-%d %H:%M} UTC" if run.start_time else "just now"
    return held_by(cluster, f"{run.labels.get(RUN)} ({run.name})", since)


def _others(cluster: str, but: UUID) -> list[FlowRun]:
    """Return other runs that have the cluster's slot by their label; none if the server does not
    answer.
    """
    unfinished = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING])
    try:
        with get_client(sync_client=True) as client:
            runs = client.read_flow_runs(
                flow_run_filter=FlowRunFilter(
                    state=FlowRunFilterState(type=unfinished),
                    tags=FlowRunFilterTags(all_=[cluster_tag(cluster)]),
                ),
                limit=200,  # the most that the server gives at once
            )
            return [run for run in runs if run.id != but and run.labels.get(SLOT)]
    except httpx.HTTPError as error:
        log.debug("the Prefect server: %s", error)
        return []
