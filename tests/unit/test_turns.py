"""Waiting for a cluster that another run has: the limit of a Prefect server that comes and goes, and the file lock."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.exceptions import PrefectHTTPStatusError

from flows import limits
from seatrial import turn
from seatrial.errors import MissingError

AWAY = httpx.ConnectError("connection refused")
HELD = PrefectHTTPStatusError("locked", request=httpx.Request("POST", "http://p"), response=httpx.Response(423))


class Server:
    """A Prefect server that answers to a wish for the slot what it was told to; its last answer for ever."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.given_back: list[UUID] = []

    def increment_concurrency_slots_with_lease(self, *_: Any) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer:
            raise answer
        return SimpleNamespace(json=lambda: {"lease_id": str(uuid4())})

    def read_flow_runs(self, **_: Any) -> list[Any]:
        raise AWAY

    def update_flow_run_labels(self, *_: Any) -> None:
        raise AWAY

    def upsert_global_concurrency_limit_by_name(self, *_: Any) -> None: ...

    def release_concurrency_slots_with_lease(self, lease: UUID) -> None:
        self.given_back.append(lease)


@contextmanager
def leased(server: Server, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[list[str]]:
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
    with limits._leased("a", uuid4(), time.monotonic() + seconds):
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
