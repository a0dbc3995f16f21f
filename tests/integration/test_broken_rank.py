"""Real nodes on which one rank is killed or stopped: its node is named in bounded time, and nothing
is left.
"""

import os
import signal
import subprocess
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.checks.collectives.check import collectives
from seatrial.checks.collectives.section import Collectives
from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext, StepResult
from seatrial.checks.training.check import training
from seatrial.checks.training.section import Training
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from tests.integration.conftest import LocalTestbed, Up
from tests.integration.test_device_faults import check_devices, named

TIMEOUT_S = 300  # of a training; half of it is the longest wait of a rank for another


def rank_on(namespace: str, probe: str = "training") -> int:
    """The process id of the probe's rank on a node."""
    asked = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True
    )
    for pid in asked.stdout.split():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if len(words) > 1 and words[1].endswith(f"/{probe}.py".encode()):
            return int(pid)
    raise AssertionError(f"no rank of {probe} on {namespace}")


def wait_for(log: Path, words: str, running: "Future[StepResult]") -> None:
    """Until the log has the words, or what writes it has ended."""
    while not (log.exists() and words in log.read_text()):
        assert not running.done(), f"{log.name} does not have {words}"
        time.sleep(0.05)


def assert_named(check: Check, suspect_code: str, reason_code: str) -> None:
    """Node 1, where rank 1 is the only one, and why."""
    assert (check.verdict, check.reason.code) == (Verdict.FAIL, reason_code)
    (suspect,) = check.suspects
    assert (suspect.kind, suspect.name, suspect.evidence.code) == ("node", "node-1", suspect_code)
    assert "rank 1 " in suspect.evidence.sentence


def assert_killed(check: Check, log: str) -> None:
    """By the best sign that the log has: a busy mpirun may be ended before it prints what ended the
    rank.
    """
    if "rank 1 with PID" in log and "exited on signal 9" in log:
        assert_named(check, "rank-killed", "log-rank-killed")
    elif "no word from rank 1 " in log:
        assert_named(check, "rank-silent", "rank-gave-up")
    else:  # the other ranks lost their connections to it
        assert_named(check, "rank-lost", "rank-gave-up")


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_is_killed_or_stopped_is_named(shared: Up, number: signal.Signals) -> None:
    plain, testbed = shared
    section = Training(steps=100_000, timeout_s=TIMEOUT_S if number is signal.SIGKILL else 120)
    run = replace(plain, suite=plain.suite.model_copy(update={"training": section}))
    log = run.logs / "training.log"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(training, CheckContext(run, testbed))
        wait_for(log, '"step": 5,', running)
        os.kill(rank_on(f"seatrial-{run.run_id}-node-1"), number)
        done = running.result()
    if number is signal.SIGKILL:
        assert_killed(done.check, log.read_text())
    else:
        assert_named(done.check, "rank-left-no-dump", "training-hangs")
    # Nothing of it is left in the way of what follows
    again = connectivity(CheckContext(run, testbed)).testbed
    assert [node.name for node in again.nodes] == ["node-0", "node-1", "node-2"]


@pytest.mark.slow
def test_killed_rank_of_a_sweep_is_named_and_the_next_sweep_has_all_ranks(shared: Up) -> None:
    plain, testbed = shared
    sizes = {"min_bytes": "4K", "max_bytes": "4K", "iterations": 2000, "warmup_iterations": 0}
    section = Collectives.model_validate(
        {
            "operations": ["all_reduce", "broadcast"],
            "gpu": sizes,
            "cpu": sizes,
            "timeout_s": TIMEOUT_S,
        }
    )
    run = replace(plain, suite=plain.suite.model_copy(update={"collectives": section}))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(collectives, CheckContext(run, testbed))
        wait_for(run.logs / "all_reduce.log", "# ", running)
        os.kill(rank_on(f"seatrial-{run.run_id}-node-1", "collective"), signal.SIGKILL)
        done = running.result()
    assert_killed(done.check, (run.logs / "all_reduce.log").read_text())
    assert [node.name for node in done.testbed.nodes] == ["node-0", "node-1", "node-2"]
    assert {m.conditions["operation"] for m in done.check.measurements} >= {"broadcast"}, (
        "over all three ranks"
    )


def test_a_node_without_memory_is_named_by_each_check(local_testbed: LocalTestbed) -> None:
    """It has less than torch takes."""
    with local_testbed(nodes=3, faults=[{"node": "node-1", "memory": "160M"}]) as (plain, testbed):
        measured, left = check_devices(plain, testbed)
        run = replace(
            plain, suite=plain.suite.model_copy(update={"training": Training(timeout_s=TIMEOUT_S)})
        )
        trained = training(CheckContext(run, testbed)).check
    assert (measured.verdict, list(named(measured))) == (Verdict.FAIL, ["node-1"])
    assert left == ["node-0", "node-2"] == sorted({m.subject.name for m in measured.measurements})
    if "cannot start" in (run.logs / "training.log").read_text():
        assert_named(trained, "rank-out-of-memory", "rank-cannot-start")
    else:
        assert_named(trained, "rank-killed", "log-rank-killed")
