"""`seatrial run` in the background, for tests that do something to the cluster meanwhile."""

import json
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Console, until
from tests.site import PATIENCE_S

# Of a suite, where what comes after the launch is tested elsewhere
BRIEF: dict[str, Any] = {
    "devices": None,
    "collectives": None,
}
# Seconds, and it learns
TRAINING: dict[str, Any] = {"steps": 8, "batch_per_rank": 4, "min_loss_drop": 0.05}
# Twenty seconds and more, so that there is a middle to break, and soon a first row
LONG: dict[str, Any] = {
    "operations": ["all_reduce", "broadcast"],
    "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
    "cpu": {
        "min_bytes": "1M",
        "max_bytes": "4M",
        "step_factor": 4,
        "warmup_iterations": 1,
        "iterations": 250,
    },
    "timeout_s": 60,
}


class Going:
    """A run under way; `suite` as `Console.suite` takes it."""

    def __init__(self, console: Console, file: Path, **suite: Any) -> None:
        self._out = console.folder / "out"
        self.process: subprocess.Popen[str] = console.start(
            "run", file, "--suite", console.suite(**suite), "--out", self._out
        )

    @property
    def log(self) -> str:
        log = self._out / "logs" / "run.log"
        return log.read_text() if log.exists() else ""

    def until_logged(self, text: str) -> None:
        until(lambda: text in self.log or self.process.poll() is not None)
        assert text in self.log

    def end(self) -> tuple[int, dict[str, Any], str]:
        """Exit status, run.json, and what was on the terminal."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, json.loads((self._out / "run.json").read_text()), err + out


def check_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    entry: dict[str, Any] = next(check for check in document["checks"] if check["name"] == name)
    return entry


def seconds_to_ready(pods: list[dict[str, Any]]) -> float:
    """From the first pod's creation until all are Ready, as the cluster has it: in whole
    seconds.
    """
    ready = [
        condition
        for pod in pods
        for condition in pod["status"]["conditions"]
        if condition["type"] == "Ready"
    ]
    last = max(datetime.fromisoformat(condition["lastTransitionTime"]) for condition in ready)
    first = min(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods)
    return (last - first).total_seconds()


def in_the_middle_of_a_sweep(console: Console, file: Path) -> Going:
    """A run that has just printed the first row of its first operation."""
    run = Going(console, file, collectives=LONG)
    run.until_logged("all_reduce     1M")
    return run
