"""`seatrial run` as people run it: a process of its own, real nodes, a real Prefect server."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from seatrial.flows.serving.server import TemporaryServer
from seatrial.platforms.local.platform import PLATFORM
from tests.conftest import leftovers
from tests.site import PATIENCE_S, write_namesakes

BRIEF: dict[str, Any] = {  # with limits that a busy machine keeps, too
    "connectivity": {"timeout_s": 30},
    "devices": None,
    "collectives": {
        "operations": ["all_reduce"],
        "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
        "cpu": {
            "min_bytes": "1M",
            "max_bytes": "4M",
            "step_factor": 4,
            "warmup_iterations": 1,
            "iterations": 3,
        },
        "timeout_s": 300,
    },
}
TRAINING = {"steps": 12, "batch_per_rank": 4, "min_loss_drop": 0.05, "timeout_s": 300}


@dataclass(slots=True)
class Console:
    """A terminal with a folder, an environment and a history of its own."""

    folder: Path
    environment: dict[str, str]
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def cluster(self, nodes: int = 4, **fields: Any) -> Path:
        path = self.folder / "cluster.yaml"
        path.write_text(
            yaml.safe_dump(
                {"name": "trial", "nodes": nodes, "platform": {"kind": "local"}, **fields}
            )
        )
        return path

    def suite(self, **fields: Any) -> Path:
        path = self.folder / "suite.yaml"
        path.write_text(yaml.safe_dump({"name": "brief", **BRIEF, **fields}))
        return path

    @property
    def auth(self) -> httpx.BasicAuth:
        """The login of the Prefect server."""
        return httpx.BasicAuth(*self.environment["PREFECT_API_AUTH_STRING"].split(":", 1))

    def start(self, *arguments: str | Path, group: bool = False) -> "subprocess.Popen[str]":
        """Start seatrial; with `group` in a process group of its own, as systemd and a terminal
        do.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "seatrial", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
            start_new_session=group,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str | Path, timeout_s: float = PATIENCE_S) -> "Finished":
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:  # an interrupt too
            process.kill()
            process.communicate()
            raise
        return Finished(process.returncode, out, err)

    def run_ids(self) -> set[str]:
        """Of the runs that were started here, as their logs say, or else the names of their
        folders.
        """
        ids = set[str]()
        for log in self.folder.glob("**/logs/run.log"):
            logged = re.findall(r"run (\S+): \d+ nodes", log.read_text())
            ids.update(logged or [log.parents[1].name])
        return ids

    def left(self) -> set[str]:
        """What the runs that were started here have up, or have left."""
        own = self.run_ids()
        return {left for left in leftovers() if any(run_id in left for run_id in own)}

    def check(self, cluster: Path, suite: Path, name: str = "out", *more: str) -> "Finished":
        """A whole run; its run.json is in `document`."""
        out = self.folder / name
        finished = self.run("run", cluster, "--suite", suite, "--out", out, *more)
        if (out / "run.json").exists():
            finished.document = json.loads((out / "run.json").read_text())
        return finished


@dataclass(slots=True)
class Finished:
    """What a command came to."""

    status: int
    out: str
    err: str
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str:
        return f"{self.out}\n{self.err}"

    def check(self, name: str) -> dict[str, Any]:
        entry: dict[str, Any] = next(
            check for check in self.document["checks"] if check["name"] == name
        )
        return entry


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryServer]:
    """One Prefect server for all runs of the session; starting one per run would take most of the
    time.
    """
    home = tmp_path_factory.mktemp("prefect")
    with (home / "server.log").open("ab") as log:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PREFECT_HOME", str(home))
            patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
            server = TemporaryServer(log)
        yield server
        server.stop()


@pytest.fixture
def console(tmp_path: Path, prefect_server: TemporaryServer) -> Iterator[Console]:
    """Everything that was started has ended at the end, and nothing of its runs is left."""
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(map(str, lacking)))
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("SEATRIAL_")},
        "PREFECT_API_URL": prefect_server.api_url,
        "PREFECT_API_AUTH_STRING": prefect_server.auth_string,
        "SEATRIAL_TEMPORARY_SERVER": "1",  # it is one, if for all tests
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "COLUMNS": "200",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    write_namesakes(tmp_path)
    session = Console(tmp_path, environment)
    try:
        yield session
    finally:
        for process in session.started:
            process.kill()
            process.communicate()
        if left := session.left():  # after a test that failed in the middle of a run
            session.run("reap")
    assert not left


def until(true: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
