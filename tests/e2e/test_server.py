"""The temporary Prefect server of a run by hand: other users do not get in, and its death is not
the run's.
"""

import errno
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from seatrial.flows.serving.server import TemporaryServer
from tests.e2e.conftest import Console, until
from tests.site import PATIENCE_S, TLS, as_nobody

SWEEPING = "all_reduce     1M"


@pytest.fixture
def alone(console: Console) -> Console:
    """A console whose runs bring their own server."""
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "SEATRIAL_TEMPORARY_SERVER"):
        del console.environment[name]
    return console


def long_suite(console: Console) -> Path:
    """One that sweeps for some seconds after its first row."""
    cpu = {
        "min_bytes": "1M",
        "max_bytes": "64M",
        "step_factor": 4,
        "warmup_iterations": 0,
        "iterations": 40,
    }
    gpu = {"min_bytes": "1M", "max_bytes": "1M"}
    return console.suite(
        collectives={"operations": ["all_reduce"], "gpu": gpu, "cpu": cpu, "timeout_s": 120}
    )


def servers(console: Console) -> list[int]:
    """The processes of Prefect servers that runs of this console have started."""
    mark, processes = f"PREFECT_HOME={console.environment['PREFECT_HOME']}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark in (entry / "environ").read_bytes()
                and b"uvicorn.run" in (entry / "cmdline").read_bytes()
            ):
                processes.append(int(entry.name))
        except OSError:
            continue
    return processes


def port_of(server: int) -> int:
    """What the socket listens on whose number its command line ends with."""
    descriptor = Path(f"/proc/{server}/cmdline").read_text().split("\0")[-2]
    inode = (
        os.readlink(f"/proc/{server}/fd/{descriptor}").removeprefix("socket:[").removesuffix("]")
    )
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (address,) = (row[1] for row in rows if row[9] == inode)
    return int(address.rpartition(":")[2], 16)


def auth_string_of(server: int) -> str:
    """From its environment, which its own user and root can read."""
    variables = dict(
        entry.split("=", 1)
        for entry in Path(f"/proc/{server}/environ").read_text().split("\0")
        if "=" in entry
    )
    return variables["PREFECT_SERVER_API_AUTH_STRING"]


def log_of(console: Console) -> str:
    log = console.folder / "out" / "logs" / "run.log"
    return log.read_text() if log.exists() else ""


def rows(console: Console, select: str) -> list[tuple[Any, ...]]:
    """Of Prefect's database."""
    with sqlite3.connect(Path(console.environment["PREFECT_HOME"]) / "prefect.db") as database:
        return database.execute(select).fetchall()


def make_secret(console: Console, api: str, auth_string: str) -> None:
    """A block of Prefect's, as a person saves one from Python."""
    save = "from prefect.blocks.system import Secret; Secret(value='opensesame').save('token')"
    own = {**console.environment, "PREFECT_API_URL": api, "PREFECT_API_AUTH_STRING": auth_string}
    subprocess.run([sys.executable, "-c", save], env=own, check=True, timeout=120)
    login = httpx.BasicAuth(*auth_string.split(":", 1))
    document = f"{api}/block_types/slug/secret/block_documents/name/token"
    read = httpx.get(document, params={"include_secrets": True}, auth=login, verify=TLS, timeout=60)
    assert read.json()["data"]["value"] == "opensesame"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_other_users_do_not_read_secrets_from_a_runs_server(alone: Console) -> None:
    run = alone.start(
        "run", alone.cluster(2), "--suite", long_suite(alone), "--out", alone.folder / "out"
    )
    until(lambda: SWEEPING in log_of(alone))
    (server,) = servers(alone)
    port = port_of(server)
    make_secret(alone, f"http://127.0.0.1:{port}/api", auth_string_of(server))
    path = "/api/block_types/slug/secret/block_documents/name/token?include_secrets=true"
    request = f"GET {path} HTTP/1.0\\r\\nHost: 127.0.0.1\\r\\n\\r\\n"
    answer = as_nobody(f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{request}' >&3; cat <&3")
    assert " 401 " in answer.splitlines()[0]
    assert "opensesame" not in answer
    assert not as_nobody(f"cat /proc/{server}/environ /proc/{run.pid}/environ")
    home = Path(alone.environment["PREFECT_HOME"])
    modes = [path.stat().st_mode & 0o077 for path in (home, home / "prefect.db")]
    assert modes == [0, 0]
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE_S)
    assert not rows(alone, "select event from events"), "they are for automations"
    assert rows(alone, "select slug from block_type") == [("secret",)], (
        "types that nobody saves take a second to find"
    )


def test_a_run_goes_on_without_its_server(alone: Console) -> None:
    run = alone.start(
        "run",
        alone.cluster(2),
        "--suite",
        long_suite(alone),
        "--out",
        alone.folder / "out",
        "--json",
    )
    until(lambda: SWEEPING in log_of(alone))
    (server,) = servers(alone)
    os.kill(server, signal.SIGKILL)
    out, err = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, json.loads(out)["verdict"]) == (0, "pass"), err
    assert "the Prefect server ended; the run goes on without it" in log_of(alone)


def test_calls_fail_at_once_after_the_temporary_server_has_exited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.flows.serving.server._SERVE", "raise SystemExit('no')")
    with (tmp_path / "server.log").open("w+b") as log:
        server = TemporaryServer(log)
        try:
            until(lambda: is_refused(server))
        finally:
            server.stop()
        log.seek(0)
        assert log.read().splitlines() == [b"no"]


def is_refused(server: TemporaryServer) -> bool:
    url = httpx.URL(server.api_url)
    with socket.socket() as client:
        return client.connect_ex((url.host, url.port)) == errno.ECONNREFUSED
