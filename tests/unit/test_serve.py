"""What `seatrial serve` listens on, and what its processes are given."""

import asyncio
import os
import re
import socket
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import httpx
import pytest
from prefect.settings import PREFECT_SERVER_API_AUTH_STRING, temporary_settings
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from seatrial.flows.serving import server, webserver
from seatrial.flows.serving.serve import _DEFAULTS, _Child, _listening, _login, access_lines
from seatrial.flows.serving.server import (
    _SERVE,
    SERVER_AUTH,
    configured_auth_string,
    kept_auth_string,
    listen,
    provide_prefect_server,
)
from seatrial.flows.serving.webserver import own_names, own_pages_alone
from seatrial.model.errors import InputError, SeatrialError


@pytest.mark.parametrize(
    ("host", "taken"), [("192.0.2.1", False), ("::1", False), ("é..b", False), ("127.0.0.1", True)]
)
def test_unusable_host_or_port_is_named(host: str, taken: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        option, value = ("--port", port) if taken else ("--host", host)
        with (
            pytest.raises(InputError, match=rf"^{option} {value}: .+; give another {option}$"),
            _listening(host, port),
        ):
            pass


def test_a_login_is_made_once_and_kept_for_its_owner_alone(tmp_path: Path) -> None:
    made, is_new = kept_auth_string(tmp_path)
    assert is_new
    assert re.fullmatch(r"seatrial:[\w-]{32}", made)
    assert stat.S_IMODE((tmp_path / "seatrial-serve.auth").stat().st_mode) == 0o600
    assert kept_auth_string(tmp_path) == (made, False)
    (tmp_path / "other").mkdir()
    assert kept_auth_string(tmp_path / "other")[0] != made


@pytest.mark.parametrize(
    "planted", ["link", "dangling link", "readable", "empty", "no password", "folder", "pipe"]
)
def test_insecure_or_malformed_login_file_is_refused(tmp_path: Path, planted: str) -> None:
    file, target = tmp_path / "seatrial-serve.auth", tmp_path / "target"
    match planted:
        case "link":
            target.write_text("ann:password\n")
            file.symlink_to(target)
        case "dangling link":
            file.symlink_to(target)
        case "folder":
            file.mkdir(mode=0o700)
        case "pipe":
            os.mkfifo(file, 0o600)
        case _:
            file.write_text(
                {"readable": "ann:password", "empty": "", "no password": "ann"}[planted]
            )
            file.chmod(0o644 if planted == "readable" else 0o600)
    with pytest.raises(InputError, match=rf"^{re.escape(str(file))}: .+; remove it"):
        kept_auth_string(tmp_path)
    assert planted == "link" or not target.exists()


@pytest.mark.parametrize(
    "login", ["", "password", ":password", "ann:", "ann:pass word", "ann:pass\nword"]
)
def test_invalid_configured_login_is_refused(login: str) -> None:
    """Prefect's own server accepts such logins and then lets nobody or everybody in."""
    with (
        temporary_settings({PREFECT_SERVER_API_AUTH_STRING: login}),
        pytest.raises(InputError, match=r"^PREFECT_SERVER_API_AUTH_STRING: must be user:password"),
    ):
        configured_auth_string()


def test_login_from_prefect_settings_is_used() -> None:
    assert configured_auth_string() is None
    with temporary_settings({PREFECT_SERVER_API_AUTH_STRING: "ann:password"}):
        assert configured_auth_string() == "ann:password"


def test_a_new_login_is_shown_with_how_to_type_it_and_the_exports_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    login, in_shell = _login(home)
    assert capsys.readouterr().out.startswith(f"login    {login} (shown this once; kept in {home}/")
    typed, _, *exports = access_lines("http://127.0.0.1:4200", in_shell)
    assert "the whole of it, user:password, into the one field" in typed
    shell = f"{'; '.join(exports)}; printenv PREFECT_API_URL PREFECT_API_AUTH_STRING"
    printed = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["http://127.0.0.1:4200/api", login]
    assert _login(home) == (login, in_shell)
    assert capsys.readouterr().out == f"login    in {home}/seatrial-serve.auth\n"


def test_a_configured_login_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with temporary_settings({PREFECT_SERVER_API_AUTH_STRING: "ann:password"}):
        assert _login(tmp_path) == ("ann:password", f"${SERVER_AUTH}")
    assert "password" not in capsys.readouterr().out


# Which requests a server takes, by host name and origin.


def test_own_names_are_read_from_hosts_and_ui_url() -> None:
    hosts, seen = "server, prefect.seatrial,*", "https://c.example.com/api"
    environment = {"SEATRIAL_SERVER_HOSTS": hosts, "PREFECT_SERVER_UI_API_URL": seen}
    assert own_names(environment) == [
        "127.0.0.1",
        "c.example.com",
        "localhost",
        "prefect.seatrial",
        "server",
    ]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "server:4200"}, 200),
        ({"Host": "server:4200", "Origin": "https://c.example.com"}, 200),
        ({"Host": "evil.example.com"}, 400),
        ({"Host": "server:4200", "Origin": "https://evil.example.com"}, 403),
    ],
)
def test_requests_with_a_foreign_host_or_origin_are_refused(
    headers: dict[str, str], status: int
) -> None:
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("here"))])
    guarded = httpx.ASGITransport(app=own_pages_alone(app, ["server"], ["https://c.example.com"]))

    async def get() -> int:
        async with httpx.AsyncClient(transport=guarded, base_url="http://server:4200") as client:
            return (await client.get("/", headers=headers)).status_code

    assert asyncio.run(get()) == status


# What makes the Prefect server of one run quick.


def test_listener_disables_the_nagle_algorithm() -> None:
    with (
        closing(listen("127.0.0.1", 0, backlog=1)) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


class _NoServer:
    api_url, auth_string = "http://127.0.0.1:9/api", "ann:password"

    def __init__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        pass


def test_results_are_not_pickled_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TemporaryServer", _NoServer)
    monkeypatch.setattr(os, "environ", {"PREFECT_HOME": str(tmp_path)})
    provide_prefect_server()
    assert os.environ["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "json"
    assert _DEFAULTS["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "json"


# The garbage of a server on SQLite does not keep its event loop from going on.


# The same without asyncio: a cursor that an error has left in a cycle, its connection waiting to
# write in a thread, and the only one who can end that wait making so many objects that the
# collector is due.
_SERVER = """
import contextlib, sqlite3, sys, threading, weakref
from seatrial.flows.serving.server import collect_apart

collect_apart()
writes = sqlite3.connect(sys.argv[1], isolation_level=None)
writes.execute("create table numbers (n unique)")
writes.execute("insert into numbers values (1)")
waits = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False, timeout=30)
left = [waits.cursor()]
left.append(left)
executing, collected = threading.Event(), threading.Event()
watch = weakref.ref(left[0], lambda _: collected.set())  # called before the cursor is finalized
with contextlib.suppress(sqlite3.IntegrityError):
    left[0].execute("insert into numbers values (1)")
writes.execute("begin immediate")
thread = threading.Thread(target=lambda: print("written", waits.execute("insert into numbers values (2)").rowcount))
waits.set_trace_callback(lambda _: executing.set())  # called while the connection is locked
thread.start()
executing.wait()
del left
made = [[] for _ in range(100_000)]
collected.wait()
writes.execute("commit")
thread.join()
"""


def test_open_sqlite_cursor_does_not_block_a_writer(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SERVER, str(tmp_path / "prefect.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("written 1\n", "")


def test_each_server_collects_garbage_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, no_umask: None
) -> None:
    """That of a run, and the lasting one."""
    done: list[str] = []
    for module in (server, webserver):
        monkeypatch.setattr(module, "collect_apart", lambda: done.append("collects apart"))
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: done.append("serves"))
    monkeypatch.setattr("prefect.server.api.server.create_app", lambda **_: Mock())
    monkeypatch.setattr("ctypes.CDLL", Mock())  # this process does not end with its parent
    monkeypatch.setattr(sys, "argv", ["-c", "0"])
    monkeypatch.setenv(SERVER_AUTH, "user:password")
    exec(_SERVE, {})
    webserver.main("0", hosts="127.0.0.1")
    assert done == ["collects apart", "serves"] * 2


class Mortal:
    """A process that lives as long as the next of `lives` says, by the test's own clock."""

    def __init__(self, clock: list[float], lives: list[float]) -> None:
        self._clock, self._lives, self.started = clock, lives, 0

    def __call__(self, *_: Any, **__: Any) -> "Mortal":
        self.started += 1
        return self

    def wait(self, timeout: float | None = None) -> int:
        self._clock[0] += self._lives.pop(0)
        return 9

    poll = wait


@pytest.mark.parametrize(("lives", "starts"), [([19] * 5, 5), ([19] * 4 + [20] + [19] * 5, 10)])
def test_serve_ends_when_a_child_dies_early_five_times_in_a_row(
    lives: list[float], starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    process = Mortal(clock, [*lives])
    monkeypatch.setattr("subprocess.Popen", process)
    child = _Child("the runner", ["x"], {}, [], 1.0)
    with pytest.raises(SeatrialError, match="the runner"):
        while True:
            child.look()
    assert process.started == starts


def test_a_server_that_is_stopped_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Thread", lambda **_: SimpleNamespace(start=lambda: None))
    process = Mortal([0.0], [1.0, 1.0])
    monkeypatch.setattr(process, "terminate", lambda: None, raising=False)
    monkeypatch.setattr("subprocess.Popen", process)
    temporary = server.TemporaryServer(cast(Any, None))
    temporary.stop()
    temporary._watch()
    assert process.started == 1
