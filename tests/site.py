"""A site for tests, such as `seatrial serve`: a folder, a port and a state of its own, and a look
at its processes.
"""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.conftest import leftovers

SITES_DEPLOYMENTS = {"nightly", "ad-hoc", "qualify", "reap", "alarm", "promote"}
QUICK: dict[str, Any] = {
    "connectivity": {"timeout_s": 30},
    "devices": None,
    "collectives": {
        "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
        "cpu": {
            "min_bytes": "1M",
            "max_bytes": "4M",
            "step_factor": 4,
            "warmup_iterations": 1,
            "iterations": 3,
        },
        "timeout_s": 120,
    },
}
# At work until somebody ends it, for a while at least.
LONG: dict[str, Any] = {
    "devices": None,
    "collectives": {
        "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
        "cpu": {"min_bytes": "1M", "max_bytes": "64M", "warmup_iterations": 0, "iterations": 300},
        "timeout_s": 300,
    },
}
PATIENCE_S = 600.0  # with what the machine does beside it
# Httpx would make one for each request, which takes longer than most requests
TLS = ssl.create_default_context()
_FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


@dataclass(slots=True)
class Site:
    """A folder in which `seatrial serve` runs, or a server and a worker."""

    folder: Path
    port: int
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    spawned: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def auth(self) -> httpx.BasicAuth | None:
        """The login of `seatrial serve`; None where another server is used, which has none."""
        file = self.folder / "prefect" / "seatrial-serve.auth"
        return httpx.BasicAuth(*file.read_text().strip().split(":", 1)) if file.exists() else None

    @property
    def log(self) -> str:
        log = self.folder / "serve.log"
        return log.read_text() if log.exists() else ""

    def write(self, name: str, **content: Any) -> str:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"name": name, **content}))
        return str(path)

    def unjudged(self) -> str:
        """A quick suite of a new name: no earlier run of that name says how fast the machine should
        be.
        """
        return self.write(f"brief-{len(list(self.folder.glob('brief-*.yaml')))}", **QUICK)

    def start(self, *arguments: str) -> None:
        """Serve, and come back when the runner has everything in place."""
        before = len(self.log)
        self.process = self.spawn(
            sys.executable, "-m", "seatrial", "serve", *arguments, "--port", str(self.port)
        )
        self.until(lambda: "every 15 minutes" in self.log[before:])

    def spawn(self, *command: str) -> "subprocess.Popen[bytes]":
        """Start a process of this site, which ends with it; `log` has what it says."""
        with (self.folder / "serve.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )
        self.spawned.append(process)
        return process

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def api(self, method: str, path: str, **body: Any) -> Any:
        """One call of Prefect's REST API; once more where SQLite was busy (503), as Prefect's own
        clients do.
        """
        for _ in range(10):
            answer = httpx.request(
                method,
                f"{self.url}/api{path}",
                json=body or None,
                auth=self.auth,
                timeout=60,
                verify=TLS,
            )
            if answer.status_code != 503:
                break
            time.sleep(1)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def run(self, deployment: str, flow: str = "check", **parameters: Any) -> str:
        """Start a run of a deployment, of the check if not of another flow; the flow run's id."""
        deployment_id = self.deployment(deployment, flow)["id"]
        # The form offers this site's suites alone
        body = {"parameters": parameters, "enforce_parameter_schema": False}
        return str(self.api("POST", f"/deployments/{deployment_id}/create_flow_run", **body)["id"])

    def deployment(self, name: str, flow: str = "check") -> dict[str, Any]:
        document: dict[str, Any] = self.api("GET", f"/deployments/name/seatrial-{flow}/{name}")
        return document

    def flow_run(self, flow_run: str) -> dict[str, Any]:
        document: dict[str, Any] = self.api("GET", f"/flow_runs/{flow_run}")
        return document

    def ended(self, flow_run: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The state in which the flow run ends."""
        self.until(lambda: self.flow_run(flow_run)["state"]["type"] in _FINAL, timeout_s)
        state: dict[str, Any] = self.flow_run(flow_run)["state"]
        return state

    def until_sweeping(self, out: Path) -> None:
        log = out / "logs" / "run.log"
        self.until(lambda: log.exists() and "all_reduce     1M" in log.read_text())

    def until(self, true: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Wait for something that other processes do; a server that is away for a moment says
        nothing.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with suppress(httpx.HTTPError):
                if true():
                    return
            assert time.monotonic() < deadline, (
                f"it did not happen in time; it said:\n{self.log[-4000:]}"
            )
            time.sleep(0.3)

    def processes(self) -> dict[int, str]:
        """The command lines of everything that was started here and lives: by their environment."""
        mark = str(self.folder).encode() + b"/state"
        commands = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    commands[int(entry.name)] = (
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    )
        return commands

    def pids(self, word: str) -> list[int]:
        return [pid for pid, command in self.processes().items() if word in command]

    def kill(self, word: str, *before: int) -> None:
        """SIGKILL to the one process with that word in its command line; it does not see those
        `before` it die.
        """
        (pid,) = self.pids(word)
        os.kill(pid, signal.SIGSTOP)
        for first in before:
            os.kill(first, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)

    def left(self) -> set[str]:
        """Namespaces, folders and processes of runs that were started here."""
        logs = [*self.folder.glob("*/logs/run.log"), *self.folder.glob("runs/*/logs/run.log")]
        ids = {
            run_id
            for log in logs
            for run_id in re.findall(r"run (\S+): \d+ nodes", log.read_text())
        }
        return {left for left in leftovers() if any(run_id in left for run_id in ids)}

    def document(self, out: Path) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((out / "run.json").read_text())
        return document


def run_id_in(out: Path) -> str:
    """The id of the run that writes there, as its log has it."""
    (run_id,) = set(re.findall(r"run (\S+): \d+ nodes", (out / "logs" / "run.log").read_text()))
    return str(run_id)


def as_nobody(command: str) -> str:
    """What a shell command of another local user prints; root alone can ask."""
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        user=65534,
        group=65534,
        cwd="/",
    )
    return done.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def write_namesakes(folder: Path) -> None:
    """Give a folder modules of its user's that are called as packages of seatrial are."""
    for name in ("flows.py", "tasks.py"):
        (folder / name).write_text("raise SystemExit('a module of the user, not of seatrial')")


@contextmanager
def site(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Site]:
    """A folder to serve in; in the end nothing of it runs any more."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SEATRIAL_", "PREFECT_"))
    }
    own = {
        "PREFECT_HOME": str(folder / "prefect"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    write_namesakes(folder)
    made = Site(folder, free_port(), {**kept, **own, **(more or {})})
    try:
        yield made
    finally:
        if made.process and made.process.poll() is None:
            made.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                made.process.wait(90)
        for pid in made.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in made.spawned:
            process.wait()
