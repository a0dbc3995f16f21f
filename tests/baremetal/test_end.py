"""How a run on hosts that are up ends: at its deadline, killed, or with hosts that are cut off or
down.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from seatrial.platforms import platform_for
from seatrial.runs.login import ssh_argv
from tests.baremetal.conftest import kill_and_reap, run_on
from tests.baremetal.hosts import Hosts
from tests.e2e.conftest import Console, until
from tests.quick_run import launched
from tests.site import PATIENCE_S


def test_hosts_end_a_run_at_their_deadline(
    settings: dict[str, Any], hosts: Hosts, tmp_path: Path
) -> None:
    """Nobody tells them to: as after the end of this machine. Also what has become a daemon."""
    run = run_on({**settings, "deadline_s": 10}, tmp_path)
    platform = platform_for(run.cluster)
    testbed = platform.launch(run)
    argv = ssh_argv(
        testbed,
        testbed.head,
        ("setsid", "-f", "sleep", "1000", "</dev/null", ">/dev/null", "2>&1"),
        terminal=False,
    )
    subprocess.run(argv, check=True, timeout=PATIENCE_S)
    assert "gpu-0: sleep 1000" in hosts.left()
    until(lambda: not hosts.left())
    assert (
        str(testbed.blameless_reason(testbed.head))
        == "the hosts ended the run at its deadline (deadline_s: 10)"
    )
    platform.teardown(run.run_id)


@pytest.mark.parametrize("victim", ["supervisor", "node.sh", "both"])
def test_nothing_is_left_when_a_process_of_the_run_is_killed(
    run: Run, hosts: Hosts, victim: str
) -> None:
    with launched(run):
        record = json.loads(hosts.on("gpu-1", "cat", f"/tmp/seatrial-{run.run_id}/supervisor.json"))
        node = hosts.on("gpu-1", "pgrep", "-f", f"^sh -s seatrial {run.run_id}").split()
        pids = {
            "supervisor": [str(record["pid"])],
            "node.sh": node,
            "both": [str(record["pid"]), *node],
        }
        hosts.on("gpu-1", "kill", "-STOP", *pids[victim])
        hosts.on("gpu-1", "kill", "-KILL", *pids[victim])
        # One ends what the other has left, but for the files of the supervisor
        if victim != "both":
            until(lambda: not any("sshd" in left for left in hosts.left_on("gpu-1")))
    assert hosts.left() == set()


def test_a_killed_run_is_reaped(console: Console, hosts: Hosts, settings: dict[str, Any]) -> None:
    cluster = console.cluster(4, platform=settings)
    left = kill_and_reap(
        console, cluster, hosts, lambda: len({left[:5] for left in hosts.left()}) == 4
    )
    assert left == set()


def test_a_host_that_is_cut_off_is_named(
    console: Console, hosts: Hosts, settings: dict[str, Any]
) -> None:
    """In the middle of the run. The verdict of the others stands, and the host clears itself."""
    cluster = console.cluster(4, platform={**settings, "deadline_s": 70})
    process = console.start("run", cluster, "--suite", console.suite(), "--out", "out")
    log = console.folder / "out" / "logs" / "run.log"
    until(
        lambda: (
            process.poll() is not None
            or (log.exists() and "4 nodes, head gpu-0" in log.read_text())
        )
    )
    hosts.set_link("gpu-2", "down")
    out, err = process.communicate(timeout=PATIENCE_S)
    document = json.loads((console.folder / "out" / "run.json").read_text())
    assert process.returncode == 1, out + err
    assert {suspect["name"] for suspect in document["suspects"]} == {"gpu-2"}
    verdicts = {check["name"]: check["verdict"] for check in document["checks"]}
    assert (verdicts["connectivity"], verdicts["collectives"]) == ("fail", "pass")
    until(lambda: not hosts.left_on("gpu-2"))
    hosts.set_link("gpu-2", "up")
    assert console.run("reap", cluster).status == 0
