"""Runs and passes that end at moments that a seed chooses: nothing is left, and what is recorded
tells.

pytest tests/e2e/test_random_ends.py --seed 7 --times 25
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Console, until
from tests.site import PATIENCE_S

CLUSTER = "trial"
LIGHT: dict[str, Any] = {"devices": None}
RESULT = ("run.json", "measurements.csv", "report.html")


@pytest.fixture
def alone(console: Console) -> Console:
    """A console whose commands bring a Prefect server of their own, and have a temporary folder of
    their own.
    """
    (console.folder / "tmp").mkdir()
    console.environment["TMPDIR"] = str(console.folder / "tmp")
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "SEATRIAL_TEMPORARY_SERVER"):
        del console.environment[name]
    return console


@pytest.mark.timeout(0)  # --times may be large; each wait has its own bound
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("command", ["run", "qualify", "campaign"])
def test_nothing_is_left_whenever_a_run_ends(
    alone: Console, command: str, number: signal.Signals, seed: int, pytestconfig: pytest.Config
) -> None:
    dice = random.Random(f"{seed} {command} {number}")
    words = _command(alone, command)
    began = time.monotonic()
    _to_gate(alone)
    # Too short to show that nothing drifts
    assert alone.run(*words).status == (3 if command == "campaign" else 0)
    usual_s = time.monotonic() - began
    for _ in range(pytestconfig.getoption("--times")):
        _to_gate(alone)
        known = _results(alone)
        process = alone.start(*words, group=True)
        moment = dice.uniform(0, usual_s)  # the moment itself is the fault
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        _send(process, number, to_all=dice.random() < 0.5)
        _, errors = process.communicate(timeout=PATIENCE_S)
        summary = f"{number.name} after {moment:.2f} s: status {process.returncode}: {errors}"
        print(summary.partition("\n")[0])
        assert process.returncode in (0, 3, 128 + number, -number), summary
        assert "Traceback" not in errors, summary
        assert alone.run("reap").status == 0
        until(lambda: not _left(alone))
        for result in _results(alone) - known:
            document = json.loads(result.read_text())
            assert document["verdict"] in ("pass", "inconclusive", "not_run"), summary
        at_work = [folder for folder in _runs(alone) if not (folder / "run.json").exists()]
        assert not at_work, summary
        assert alone.run("history").status == 0
        stage = _stage(alone, "show")
        assert (stage["out"], set(stage["gated"].values()) - {""}) == ({}, set()), summary


def _command(console: Console, command: str) -> tuple[str | Path, ...]:
    cluster, suite = console.cluster(2, qualify={"dry_run": False}), console.suite(**LIGHT)
    if command == "qualify":
        return "qualify", cluster, "--gated"
    if command == "campaign":
        campaign = {
            "minutes": 0.1,
            "every_s": 2,
            "phases": [{"suite": yaml.safe_load(suite.read_text())}],
        }
        suite = console.folder / "soak.yaml"
        suite.write_text(yaml.safe_dump({"name": "soak", "campaign": campaign}))
    return "run", cluster, "--suite", suite


def _send(process: "subprocess.Popen[str]", number: signal.Signals, *, to_all: bool) -> None:
    with suppress(ProcessLookupError):
        (os.killpg if to_all else os.kill)(process.pid, number)


def _stage(console: Console, *words: str) -> Any:
    """Change, or show, the stage on which local nodes play a cluster at work."""
    play = [sys.executable, "-m", "tests.busy", CLUSTER, *words]
    shown = subprocess.run(
        play, env=console.environment, capture_output=True, text=True, check=True
    ).stdout
    return json.loads(shown or "{}")


def _to_gate(console: Console) -> None:
    _stage(console, "gate", "node-0", "node-1")


def _runs(console: Console) -> set[Path]:
    """The folders of runs that got as far as to have a log."""
    return {log.parent.parent for log in console.folder.glob("runs/*/logs/run.log")}


def _results(console: Console) -> set[Path]:
    return set(console.folder.glob("runs/*/run.json"))


def _left(console: Console) -> list[str]:
    """Namespaces, state folders, mounts, processes and temporary files of what was started here."""
    mark = str(console.folder / "state").encode()
    own = console.run_ids()
    mounts = [
        line
        for line in Path("/proc/mounts").read_text().splitlines()
        if any(run_id in line for run_id in own)
    ]
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                processes.append((entry / "cmdline").read_text().replace("\0", " "))
    files = [str(path) for path in (console.folder / "tmp").iterdir()]
    return [*console.left(), *mounts, *processes, *files]
