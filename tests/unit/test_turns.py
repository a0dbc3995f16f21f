"""Waiting for a cluster that another run has: the limit of a Prefect server that comes and goes,
and the file lock.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.exceptions import PrefectHTTPStatusError

from seatrial.flows.serving import limits
from seatrial.flows.serving.limits import ClusterLock
from seatrial.model.errors import MissingError
from seatrial.runs.cluster_lock import FileLock

AWAY = httpx.ConnectError("connection refused")
LOCKED = PrefectHTTPStatusError(
    "locked", request=httpx.Request("POST", "http://p"), response=httpx.Response(423)
)


class Limit:
    """A limit whose server answers to a wish for the slot as listed; the last answer stays."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.given_back = 0

    @contextmanager
    def __call__(self, *_: Any, **__: Any) -> Iterator[None]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer:
            raise ConcurrencySlotAcquisitionError("Unable to acquire concurrency slots") from answer
        yield
        self.given_back += 1


@contextmanager
def slot(
    limit: Limit,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    held: ClusterLock,
    others: Sequence[object] = (),
) -> Iterator[list[str]]:
    shown: list[str] = []

    @contextmanager
    def waiting() -> Iterator[Any]:
        yield shown.append

    monkeypatch.setattr(limits, "concurrency", limit)
    monkeypatch.setattr(limits, "_make_limit", lambda _: None)
    monkeypatch.setattr(limits, "_is_taken", lambda _: False)
    monkeypatch.setattr(limits, "_others", lambda *_: others)
    monkeypatch.setattr(limits, "set_label", lambda *_: None)
    monkeypatch.setattr(limits, "show_waiting", waiting)
    monkeypatch.setattr(limits, "_LOOK_S", 0.01)
    with limits._slot("a", uuid4(), time.monotonic() + seconds, held):
        yield shown


def test_a_waiting_run_does_not_start_if_the_server_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        pytest.raises(MissingError, match="checked by another run"),
        slot(Limit(LOCKED, AWAY), monkeypatch, 0.1, ClusterLock()),
    ):
        pytest.fail("two runs measure at once")


def test_a_run_that_waits_goes_in_when_the_server_is_back_and_the_slot_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, held = Limit(LOCKED, AWAY, LOCKED, AWAY, None), ClusterLock()
    with slot(limit, monkeypatch, 30, held) as shown:
        assert len(shown) == 1
        assert not limit.given_back
    assert (limit.given_back, held.lost) == (1, None)


def test_run_notices_that_another_run_took_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    # One that has died, and still has its label
    held, others = ClusterLock(), [SimpleNamespace(id=uuid4())]
    with slot(Limit(None), monkeypatch, 30, held, others):
        others.append(SimpleNamespace(id=uuid4()))
    assert (
        str(held.lost)
        == "the Prefect server was away for too long, and another run has this cluster now"
    )


def test_slot_label_of_a_dead_run_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    held = ClusterLock()
    with slot(Limit(None), monkeypatch, 30, held, others=[SimpleNamespace(id=uuid4())]):
        pass
    assert held.lost is None


def test_an_unreachable_server_does_not_block_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Limit(AWAY)
    with slot(limit, monkeypatch, 30, ClusterLock()) as shown:
        assert not shown
    assert not limit.given_back


def failing(number: int) -> Any:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_does_not_block_a_run(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock = FileLock("a", "run-1")
    monkeypatch.setattr(fcntl, "flock", failing(number))
    assert lock.take()
    assert "no lock on this machine, runs may meet: " in caplog.text
    lock.close()


def test_lock_works_without_the_holder_name_on_a_full_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, other = FileLock("a", "run-1"), FileLock("a", "run-2")
    monkeypatch.setattr(os, "pwrite", failing(errno.EDQUOT))
    assert lock.take()
    assert not other.take()
    assert other.holder() == "cluster a is being checked by another run"
    lock.close()
    other.close()


def test_lock_names_its_holder_and_is_free_once_released() -> None:
    other, mine = FileLock("a", "run-1"), FileLock("a", "run-2")
    assert other.take()
    assert not mine.take()
    assert re.fullmatch(r"cluster a is being checked by run run-1 since .* UTC", mine.holder())
    assert FileLock("b", "run-3").take()
    other.close()
    assert mine.take()
    mine.close()


def test_the_lock_goes_to_the_run_that_came_first_and_the_dead_lose_their_place() -> None:
    holder, second, third, last = (FileLock("line", f"run-{i}") for i in range(4))
    assert holder.take()
    assert not last.take()
    assert last.holder().endswith(" UTC; 2 runs before this one")
    holder.close()
    assert not last.take()
    os.close(second._line._file)  # as the kernel does when its process dies
    assert last.holder().endswith(" UTC; 1 run before this one")
    assert third.take()
    third.close()
    assert last.take()
    last.close()
