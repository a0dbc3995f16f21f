"""What makes the Prefect server of one run quick."""

import os
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest

from flows.serving import server
from flows.serving.server import _events_are_due, listen, provide_prefect_server

DAY_S = 86400
VACUUM = "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    with closing(listen("127.0.0.1", 0, backlog=1)) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("age_s", "due"), [(60, False), (DAY_S - 60, False), (DAY_S + 60, True), (-DAY_S, True)], ids=str
)
def test_old_events_are_deleted_by_one_server_a_day(tmp_path: Path, age_s: float, due: bool) -> None:
    assert _events_are_due(tmp_path)
    assert not _events_are_due(tmp_path)
    (stamp,) = tmp_path.iterdir()
    then = time.time() - age_s
    os.utime(stamp, (then, then))
    assert _events_are_due(tmp_path) is due
    assert not _events_are_due(tmp_path)


def test_a_folder_that_cannot_be_written_to_keeps_no_server_from_its_work(tmp_path: Path) -> None:
    assert _events_are_due(tmp_path / "missing")


class _NoServer:
    api_url, auth_string = "http://127.0.0.1:9/api", "ann:password"

    def __init__(self, log: object) -> None:
        pass

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("chosen", [None, "events"])
def test_the_next_server_of_a_day_deletes_no_events_unless_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    monkeypatch.setattr(server, "TemporaryServer", _NoServer)
    settings = []
    for _ in range(2):
        environment = {"PREFECT_HOME": str(tmp_path), **({VACUUM: chosen} if chosen else {})}
        monkeypatch.setattr(os, "environ", environment)
        provide_prefect_server()
        settings.append(environment.get(VACUUM))
    assert settings == [chosen, chosen or "orphans"]
