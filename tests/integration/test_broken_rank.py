"""Real nodes on which one rank of a training is killed or stopped: it is named in bounded time, and nothing is left."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.checks.training.check import training
from seatrial.checks.training.section import Training
from seatrial.model.verdict import Verdict
from tests.integration.conftest import LocalTestbed

TIMEOUT_S = 60  # half of it is the longest wait of a rank for another


def rank_on(namespace: str) -> int:
    """The process id of the training's rank on a node."""
    asked = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    for pid in asked.stdout.split():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if len(words) > 1 and words[1].endswith(b"/training.py"):
            return int(pid)
    raise AssertionError(f"no rank of the training on {namespace}")


def wait_for_step(log: Path, step: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not (log.exists() and f'"step": {step},' in log.read_text()):
        assert time.monotonic() < deadline, "the training does not begin"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "named"),
    [
        pytest.param(signal.SIGKILL, "process killed by a signal (9 (Killed)) on {address} (rank 1)", id="killed"),
        pytest.param(signal.SIGSTOP, "gave up: no word from rank 1 on node-1", id="stopped", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_is_killed_or_stopped_is_named(
    local_testbed: LocalTestbed, number: signal.Signals, named: str
) -> None:
    with local_testbed(nodes=3) as (plain, testbed), ThreadPoolExecutor(1) as pool:
        section = Training(steps=100_000, timeout_s=2 * TIMEOUT_S)
        run = replace(plain, suite=plain.suite.model_copy(update={"training": section}))
        left = connectivity(CheckContext(run, testbed)).testbed
        running = pool.submit(training, CheckContext(run, left))
        wait_for_step(run.logs / "training.log", 5)
        began = time.monotonic()
        os.kill(rank_on(f"seatrial-{run.run_id}-node-1"), number)
        done = running.result(3 * TIMEOUT_S)
        assert time.monotonic() - began < 1.5 * TIMEOUT_S
        assert done.check.verdict is Verdict.FAIL
        assert named.format(address=left.nodes[1].address) in done.check.reason
        assert [node.name for node in connectivity(CheckContext(run, left)).testbed.nodes] == [
            "node-0",
            "node-1",
            "node-2",
        ]  # nothing of it is left in the way of what follows
