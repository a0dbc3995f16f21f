"""One check of a cluster at a time: a file lock on this machine, and a limit of the Prefect server across machines.

Two sweeps at once would each measure half a fabric. The second run waits and says for whom. A holder that is killed
gives the file lock back at once and the limit's slot when its lease is over, or as soon as somebody on its machine sees
that it is gone.
"""

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import ConcurrencyLeaseHolder
from prefect.exceptions import ObjectAlreadyExists, PrefectHTTPStatusError

from flows.serving.holders import holder, running
from flows.serving.server import has_lasting_server
from flows.serving.shown import LEASE, label, show_waiting
from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason
from seatrial.runs.cluster_lock import FileLock

log = logging.getLogger("seatrial.lock")
T = TypeVar("T")

WAIT_S = 3600.0
LEASE_S = 60.0  # the least that Prefect takes
_LOOK_S = 2.0
_LOCKED, _GONE = 423, (404, 410)


@dataclass(slots=True)
class ClusterLock:
    """A cluster that a run has for itself; `lost` says why it may not have had it all the time."""

    lost: str | None = None


@contextmanager
def cluster_lock(cluster: str, run_id: str, flow_run_id: UUID, wait_s: float) -> "Iterator[ClusterLock]":
    """Hold the cluster. Raises MissingError, which says who has it, when it is not free within `wait_s`."""
    held = ClusterLock()
    deadline = time.monotonic() + wait_s
    with _file_lock(cluster, run_id, deadline):
        if not has_lasting_server():
            yield held
            return
        with _leased(cluster, flow_run_id, deadline, held):
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
            _wait(lambda: lock.take() or None, lock.holder, deadline, waiting)
        yield
    finally:
        lock.close()


@contextmanager
def _leased(cluster: str, flow_run_id: UUID, deadline: float, held: ClusterLock) -> Iterator[None]:
    lease = _Lease(cluster, flow_run_id, held)
    try:
        with get_client(sync_client=True) as client, show_waiting() as waiting:
            lease.make_limit(client)
            if lease.take(client) is None:  # held, until the server says that it is not
                away = f"cluster {cluster} is being checked by another run, and the Prefect server does not answer"
                _wait(
                    lambda: _asked(lambda: lease.take(client), None),
                    lambda: _asked(lambda: holder(client, cluster, flow_run_id), away),
                    deadline,
                    waiting,
                )
    except httpx.HTTPError as error:
        log.warning("the Prefect server keeps no order between machines just now: %s", error)
        yield
        return
    renewal = threading.Thread(target=contextvars.copy_context().run, args=(lease.keep,), name="lease", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        lease.give_back()


def _asked(ask: Callable[[], T], otherwise: T) -> T:
    """What the server says; `otherwise` where it does not answer, which is no word that the cluster is free."""
    try:
        return ask()
    except httpx.HTTPError as error:
        log.debug("the Prefect server: %s", error)
        return otherwise


def _wait(take: Callable[[], T | None], who: Callable[[], str], deadline: float, waiting: Callable[[str], None]) -> T:
    """What `take` gives in the end. Meanwhile everybody can see who is waited for."""
    announced = ""
    while (taken := take()) is None:
        holds = who()
        if time.monotonic() >= deadline:
            raise MissingError(Reason.of("cluster-taken", holds=holds))
        if holds != announced:
            log.info("waiting: %s", announced := holds)
            waiting(holds)
        time.sleep(_LOOK_S)
    return taken


class _Lease:
    """The slot of a cluster's limit, renewed until it is given back; a server that is away is no reason to stop."""

    def __init__(self, cluster: str, flow_run_id: UUID, held: ClusterLock) -> None:
        self._cluster, self._flow_run_id, self._held = cluster, flow_run_id, held
        self._name = f"seatrial-{cluster}"
        self._id: UUID | None = None
        self._over, self._renewing = threading.Event(), threading.Lock()

    def make_limit(self, client: SyncPrefectClient) -> None:
        with suppress(ObjectAlreadyExists):  # by another run, this moment
            client.upsert_global_concurrency_limit_by_name(self._name, 1)

    def take(self, client: SyncPrefectClient) -> UUID | None:
        who = ConcurrencyLeaseHolder(type="flow_run", id=self._flow_run_id)
        try:
            answer = client.increment_concurrency_slots_with_lease([self._name], 1, "concurrency", LEASE_S, who)
        except PrefectHTTPStatusError as error:
            if error.response.status_code == _LOCKED:
                return None
            raise
        self._id = UUID(answer.json()["lease_id"])
        with suppress(httpx.HTTPError):  # the slot is ours all the same; without it others only wait a minute longer
            label(client, self._flow_run_id, {LEASE: str(self._id)})
        return self._id

    def keep(self) -> None:
        with get_client(sync_client=True) as client:
            pause = LEASE_S / 3
            while not self._over.wait(pause):
                try:
                    with self._renewing:
                        if not self._over.is_set():
                            self._renew(client)
                    pause = LEASE_S / 3
                except httpx.HTTPError:
                    pause = _LOOK_S  # as often as those who wait, when the server is there again

    def _renew(self, client: SyncPrefectClient) -> None:
        assert self._id is not None
        try:
            client.renew_concurrency_lease(self._id, LEASE_S)
        except PrefectHTTPStatusError as error:
            if error.response.status_code not in _GONE:
                raise
            if self.take(client) is None and self._another_has_it(client):
                self._held.lost = Reason.of("lease-lost")
                log.error("%s", self._held.lost)
                self._over.set()

    def _another_has_it(self, client: SyncPrefectClient) -> bool:
        """Not so where a server that forgot the lease still counts our own slot; the next round tries again."""
        return any(LEASE in run.labels for run in running(client, self._cluster) if run.id != self._flow_run_id)

    def give_back(self) -> None:
        self._over.set()
        assert self._id is not None
        try:
            with self._renewing, get_client(sync_client=True) as client:
                client.release_concurrency_slots_with_lease(self._id)
        except httpx.HTTPError as error:
            log.warning("the cluster is free for other runs in %.0f s only: %s", LEASE_S, error)
