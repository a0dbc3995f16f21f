"""Waiting for a cluster that another run has: the limit of a Prefect server that comes and goes, and the file lock."""

import errno
import fcntl
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.exceptions import PrefectHTTPStatusError

from flows.serving import limits
from flows.serving.limits import ClusterLock
from flows.serving.shown import LEASE
from seatrial.model.errors import MissingError
from seatrial.runs import cluster_lock as turn
from seatrial.runs.cluster_lock import FileLock, ProcessIdentity, held_by

ROOT = Path(__file__).parents[2]
AWAY = httpx.ConnectError("connection refused")
GONE = PrefectHTTPStatusError("gone", request=httpx.Request("POST", "http://p"), response=httpx.Response(410))
HELD = PrefectHTTPStatusError("locked", request=httpx.Request("POST", "http://p"), response=httpx.Response(423))


class Server:
    """A Prefect server that answers to a wish for the slot what it was told to; its last answer for ever."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.given_back: list[UUID] = []
        self.others: list[Any] | None = None
        self.looks = 0  # how often it was asked who has the slot

    def increment_concurrency_slots_with_lease(self, *_: Any) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer:
            raise answer
        return SimpleNamespace(json=lambda: {"lease_id": str(uuid4())})

    def read_flow_runs(self, **_: Any) -> list[Any]:
        self.looks += 1
        if self.others is None:
            raise AWAY
        return self.others

    def update_flow_run_labels(self, *_: Any) -> None:
        raise AWAY

    def upsert_global_concurrency_limit_by_name(self, *_: Any) -> None: ...

    def renew_concurrency_lease(self, *_: Any) -> None:
        raise GONE

    def release_concurrency_slots_with_lease(self, lease: UUID) -> None:
        self.given_back.append(lease)


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def leased(
    server: Server, monkeypatch: pytest.MonkeyPatch, seconds: float, held: ClusterLock | None = None
) -> Iterator[list[str]]:
    shown: list[str] = []

    @contextmanager
    def client(**_: Any) -> Iterator[Server]:
        yield server

    @contextmanager
    def waiting() -> Iterator[Any]:
        yield shown.append

    monkeypatch.setattr(limits, "get_client", client)
    monkeypatch.setattr(limits, "show_waiting", waiting)
    monkeypatch.setattr(limits, "_LOOK_S", 0.01)
    with limits._leased("a", uuid4(), time.monotonic() + seconds, held or ClusterLock()):
        yield shown


def test_a_server_that_goes_away_while_a_run_waits_does_not_let_it_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(MissingError, match="checked by another run, and the Prefect server does not answer; start it"),
        leased(Server(HELD, AWAY), monkeypatch, seconds=0.1),
    ):
        pytest.fail("two runs measure at once")


def test_a_run_that_waits_goes_in_when_the_server_is_back_and_the_slot_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(HELD, AWAY, HELD, AWAY, None)
    with leased(server, monkeypatch, seconds=30) as shown:
        assert len(shown) == 1
        assert not server.given_back
    assert len(server.given_back) == 1


def test_a_run_whose_lease_another_took_meanwhile_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEASE_S", 0.03)
    held, server = ClusterLock(), Server(None, AWAY, HELD)
    server.others = []  # a server that forgot the lease still counts our own slot
    with leased(server, monkeypatch, seconds=30, held=held):
        until(lambda: server.looks >= 3)
        before = held.lost
        server.others = [SimpleNamespace(id=uuid4(), labels={LEASE: "another's"})]
        until(lambda: held.lost is not None)
    assert (before, held.lost) == (
        None,
        "the Prefect server was away for too long, and another run has this cluster now",
    )


def test_no_slot_is_taken_for_a_run_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that is under way when the run ends would keep the cluster for a minute more."""
    monkeypatch.setattr(limits, "LEASE_S", 0.03)
    server = Server(None)
    taken: list[UUID | None] = []
    renewing = threading.Event()
    take = limits._Lease.take

    def take_until_the_run_ends(lease: limits._Lease, client: Any) -> UUID | None:
        if taken:
            renewing.set()
            assert lease._over.wait(30)
        taken.append(take(lease, client))
        return taken[-1]

    monkeypatch.setattr(limits._Lease, "take", take_until_the_run_ends)
    with leased(server, monkeypatch, seconds=30):
        assert renewing.wait(30)
    assert len(taken) == 2
    assert server.given_back == taken[1:]


def test_a_server_that_is_away_from_the_start_keeps_nobody_from_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(AWAY)
    with leased(server, monkeypatch, seconds=30) as shown:
        assert not shown
    assert not server.given_back


def failing(number: int) -> Any:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_keeps_nobody_from_measuring(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock = turn.FileLock("a", "run-1")
    monkeypatch.setattr(fcntl, "flock", failing(number))
    assert lock.take()
    assert "no lock on this machine, runs may meet: " in caplog.text
    lock.close()


def test_a_full_quota_costs_the_holders_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, other = turn.FileLock("a", "run-1"), turn.FileLock("a", "run-2")
    monkeypatch.setattr(os, "pwrite", failing(errno.EDQUOT))
    assert lock.take()
    assert not other.take()
    assert other.holder() == "cluster a is being checked by another run"
    lock.close()
    other.close()


def test_a_lock_names_its_holder_and_is_free_when_its_holder_is_killed() -> None:
    take = (
        "import time; from seatrial.runs.cluster_lock import FileLock as L; print(L('a', 'run-1').take(), flush=True)"
    )
    hold = f"{take}; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        try:
            assert other.stdout
            assert other.stdout.readline() == "True\n"
            mine = FileLock("a", "run-2")
            assert not mine.take()
            assert re.fullmatch(r"cluster a is being checked by run run-1 since .* UTC", mine.holder())
        finally:
            other.kill()
    assert mine.take()
    assert FileLock("b", "run-3").take()
    mine.close()


def test_a_place_knows_whether_its_process_is_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        here = ProcessIdentity.here()
        assert ProcessIdentity.parse(str(here)) == here
        assert not here.is_gone
        process.kill()
    gone = ProcessIdentity.parse(f"{here.machine} {process.pid} {here.process.started}")
    assert gone
    assert gone.is_gone
    assert not ProcessIdentity("another machine", gone.process).is_gone
    assert ProcessIdentity.parse("nonsense") is None
    assert held_by("a", "r", "now") == "cluster a is being checked by run r since now"
