"""A run by hand whose Prefect server takes no run, or does not hear of its end."""

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from seatrial.cli import run_by_hand
from seatrial.flows.serving import by_hand, server
from seatrial.flows.serving.ui import results
from seatrial.model.errors import InputError
from seatrial.model.result import RunResult
from tests import samples

FULL = httpx.HTTPStatusError(
    "500", request=httpx.Request("POST", "http://p"), response=httpx.Response(500)
)


@pytest.fixture(autouse=True)
def _no_prefect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(by_hand, "provide_prefect_server", lambda: None)
    monkeypatch.setattr(by_hand, "_import_ahead", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    yield
    results.clear()


def run(
    monkeypatch: pytest.MonkeyPatch, *ends: Exception | RunResult, prefect_knows: bool = True
) -> object:
    """What a run by hand returns whose attempts end so; where not `prefect_knows`, Prefect fails
    after the end.
    """
    left = list(ends)

    def check(**_: Any) -> Any:
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        results.append(end)
        if not prefect_knows:
            raise FULL
        return SimpleNamespace(result=lambda **_: None)

    monkeypatch.setattr("seatrial.flows.check.check", check)
    return by_hand.flow_by_hand("seatrial.flows.check:check", cluster="a.yaml")


def test_failed_prefect_server_is_reported_with_exit_status_3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = run(monkeypatch, FULL)
    assert isinstance(outcome, by_hand.Unfinished)
    assert (
        outcome.exit_status,
        "Prefect failed: HTTPStatusError: 500" in outcome.reason.sentence,
    ) == (3, True)


def test_result_is_kept_when_prefect_does_not_record_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = samples.healthy_local()
    assert run(monkeypatch, result, prefect_knows=False) is result


@pytest.mark.parametrize(
    ("failing", "number"), [("posix_fallocate", errno.ENOSPC), ("ftruncate", errno.EFBIG)]
)
def test_full_disk_of_the_prefect_database_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, number: int
) -> None:
    assert server.database_problem(tmp_path) is None

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, failing, fail)
    assert server.database_problem(tmp_path) == f"PREFECT_HOME {tmp_path}: {os.strerror(number)}"
    assert not list(tmp_path.iterdir())


def test_too_little_address_space_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (600 << 20, -1))
    with pytest.raises(
        InputError,
        match=r"^ulimit -v is 614400 KiB of address space, a run needs 2097152; run `ulimit",
    ):
        run_by_hand._check_address_space()
    monkeypatch.setattr("resource.getrlimit", lambda _: (-1, -1))
    run_by_hand._check_address_space()
