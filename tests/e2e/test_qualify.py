"""A pass over a cluster at work whose flow, server or node is killed under test: the next pass
closes it.

pytest tests/e2e/test_qualify.py --seed 7 --times 20
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Console, until
from tests.site import PATIENCE_S

# Lines of a test that has its node
STEPS = ("1 of 1 nodes answer", "connectivity: ", "devices ...")
WITHIN_S = 3.0  # after one of them
Process = subprocess.Popen[str]
Kill = Callable[[Console, Process], None]


def kill_flow(console: Console, process: Process) -> None:
    process.kill()


def kill_server(console: Console, process: Process) -> None:
    """Kill the temporary server of the pass, which is a process of its own below it."""
    (server,) = [
        line.split()[0]
        for line in output_lines("ps", "-o", "pid=,args=", "--ppid", process.pid)
        if " -P -c " in line
    ]
    os.kill(int(server), signal.SIGKILL)


def kill_node(console: Console, process: Process) -> None:
    """Kill everything that runs on the node under test."""
    spaces = [name for name in console.left() if Path("/run/netns", name).exists()]
    for pid in [pid for space in spaces for pid in output_lines("ip", "netns", "pids", space)]:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(int(pid), signal.SIGKILL)
    assert spaces


def output_lines(*command: object) -> list[str]:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def stage(console: Console, *words: str) -> str:
    """Have jobs and nodes of the local cluster play, or show them."""
    play = [sys.executable, "-m", "tests.busy", "trial", *words]
    return subprocess.run(
        play, env=console.environment, capture_output=True, text=True, check=True
    ).stdout


def kept_out(console: Console) -> set[str]:
    """The nodes that a test has put out or keeps at the gate."""
    shown = json.loads(stage(console, "show"))
    return {node for node, why in (shown["out"] | shown["gated"]).items() if why}


def until_under_test(
    console: Console, process: Process, known: set[Path], number: int, line: str
) -> str:
    """Until that many tests of the pass have begun, and the last one has said that; its run id."""
    logs: list[Path] = []

    def has_logged() -> bool:
        new = set(console.folder.glob("runs/*/logs/run.log")) - known
        logs[:] = sorted(new, key=lambda log: log.stat().st_mtime)
        return process.poll() is not None or (len(logs) >= number and line in logs[-1].read_text())

    until(has_logged)
    assert process.poll() is None, process.communicate()
    return logs[-1].parents[1].name


@pytest.mark.parametrize(
    "kill", [kill_flow, kill_server, kill_node], ids=["flow", "server", "node"]
)
def test_no_healthy_node_stays_out_of_service_after_a_process_is_killed(
    console: Console, kill: Kill, seed: int, pytestconfig: pytest.Config
) -> None:
    dice = random.Random(f"{seed} {kill.__name__}")
    if kill is kill_server:  # the pass is to have one of its own
        for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "SEATRIAL_TEMPORARY_SERVER"):
            del console.environment[name]
    file = console.cluster(2, qualify={"dry_run": False, "at_once": 1})
    for nth in range(pytestconfig.getoption("--times")):
        stage(console, "gate", "node-0", "node-1")
        number, line, after_s = dice.choice((1, 2)), dice.choice(STEPS), dice.uniform(0, WITHIN_S)
        known = set(console.folder.glob("runs/*/logs/run.log"))
        process = console.start("qualify", file, "node-1", "node-0")
        run_id = until_under_test(console, process, known, number, line)
        # Of the pass that was killed before
        assert [left for left in console.left() if run_id not in left] == []
        time.sleep(after_s)  # the moment itself is the fault
        assert process.poll() is None, process.communicate()
        kill(console, process)
        out, _ = process.communicate(timeout=PATIENCE_S)
        moment = (
            f"killed in test {number}, {after_s:.1f} s after {line!r}: status "
            f"{process.returncode}: {out}"
        )
        print(nth + 1, moment, flush=True)
        # Each test has one node, the one at the gate first. One that died is kept out for what its
        # run found.
        died = {f"node-{2 - number}"} if kill is kill_node else set()
        assert kept_out(console) <= died, moment
    finished = console.run("qualify", file, "node-0", "node-1")
    assert finished.status == 0, f"{moment}\n{finished.output}"
    assert kept_out(console) <= died, moment
    assert (json.loads(stage(console, "show"))["jobs"], console.left()) == ({}, set())
