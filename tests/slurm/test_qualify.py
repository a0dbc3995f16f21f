"""Nodes in and out of service on a real Slurm with preemption: tests give way, and the gate opens
and stays shut.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Console, until
from tests.site import PATIENCE_S
from tests.slurm import accounting
from tests.slurm.cluster import SlurmCluster, lacking

QUALIFY = {"dry_run": False, "partition": "scavenge"}
STARTS_WITHIN_S = 10.0
GATE = "seatrial gate: new"


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """One of this module's own, with accounting and a partition whose jobs give way."""
    if os.geteuid():
        pytest.skip("only root can start slurmd")
    if packages := f"{lacking()} {accounting.lacking()}".strip():
        pytest.skip(f"missing: scripts/slurm-packages installs {packages}")
    cluster = SlurmCluster(3, accounting=True, preemption=True)
    cluster.start()
    yield cluster
    cluster.stop()
    assert cluster.leftovers() == set()


@pytest.fixture
def file(slurm_console: Console, settings: dict[str, Any]) -> Path:
    return slurm_console.cluster(3, platform=settings, qualify=QUALIFY)


@pytest.fixture(autouse=True)
def _all_in_service(slurm: SlurmCluster, _talks_to_it: None) -> Iterator[None]:
    """Nodes that a test leaves drained would be waited for."""
    yield
    for node in slurm.names:
        if state(slurm, node).startswith("drained"):
            slurm.command("scontrol", "update", f"nodename={node}", "state=resume")


def state(slurm: SlurmCluster, node: str) -> str:
    """State and reason, without the mark of a node that is slow to answer."""
    return (
        slurm.command("sinfo", "--noheader", f"--nodes={node}", "--format=%T %E")
        .split("\n")[0]
        .replace("*", "")
    )


def drain(slurm: SlurmCluster, node: str, reason: str) -> None:
    slurm.command("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")
    until(lambda: state(slurm, node) == f"drained {reason}")


def is_testing(slurm: SlurmCluster, console: Console) -> bool:
    """Whether the job of a test runs, and its checks have begun."""
    logs = [*console.folder.glob("runs/*/logs/run.log")]
    return bool(jobs(slurm)) and any("devices ..." in log.read_text() for log in logs)


def jobs(slurm: SlurmCluster) -> list[str]:
    names = slurm.command("squeue", "--noheader", "--states=RUNNING", "--format=%i %j").splitlines()
    return [line.split()[0] for line in names if " seatrial-" in line]


def test_a_test_gives_way_to_a_job_and_blames_nobody(
    slurm: SlurmCluster, slurm_console: Console, file: Path
) -> None:
    process = slurm_console.start("qualify", file, "n0", "n1", "--at-once", "2")
    until(lambda: is_testing(slurm, slurm_console) or process.poll() is not None)
    (own,) = jobs(slurm)
    began = time.monotonic()
    wanted = [
        "--partition=work",
        "--nodelist=n0",
        "--exclusive",
        "--output=/dev/null",
        "--wrap=sleep 3600",
    ]
    job = slurm.command("sbatch", "--parsable", *wanted).strip()
    until(
        lambda: "RUNNING" in slurm.command("squeue", "--noheader", f"--jobs={job}", "--format=%T")
    )
    waited_s = time.monotonic() - began
    print(f"the job ran after {waited_s:.1f} s")
    out, err = process.communicate(timeout=PATIENCE_S)
    slurm.command("scancel", job)
    assert process.returncode == 3, f"{out}\n{err}"
    assert re.search(r"^n0: inconclusive \(gave-way\), run ", out, re.MULTILINE), out
    assert re.search(r"^n1: inconclusive \(gave-way\), run ", out, re.MULTILINE), out
    assert f"gave way to job {job}" in "".join(
        p.read_text() for p in slurm_console.folder.glob("runs/*/run.json")
    )
    assert waited_s < STARTS_WITHIN_S
    assert {state(slurm, node).split()[1] for node in ("n0", "n1")} == {"none"}
    until(lambda: "PREEMPTED" in slurm.command("sacct", "-nPX", f"--jobs={own}", "--format=State"))
    until(lambda: "CANCELLED" in slurm.command("sacct", "-nPX", f"--jobs={job}", "--format=State"))


def test_gate_admits_a_node_that_passes_and_keeps_out_one_that_fails(
    slurm: SlurmCluster, slurm_console: Console, file: Path
) -> None:
    for _ in range(3):  # a pass that is compared with nothing opens no gate
        finished = slurm_console.run("qualify", file, "n1")
        assert finished.status == 0, finished.output
    drain(slurm, "n1", GATE)
    drain(slurm, "n2", "broken fan")
    finished = slurm_console.run("qualify", file, "--gated")
    assert finished.status == 0, finished.output
    assert "n1: let in, it has passed" in finished.out
    assert (state(slurm, "n1"), state(slurm, "n2")) == ("idle none", "drained broken fan")
    drain(slurm, "n0", GATE)
    fault = slurm.folder / "fault-n0"
    fault.touch()
    finished = slurm_console.run("qualify", file, "--gated")
    fault.unlink()
    assert finished.status == 1, finished.output
    assert re.search(r"^n0: kept out, corrupt \([a-z-]+\) in run ", finished.out, re.MULTILINE), (
        finished.out
    )
    assert re.fullmatch(r"drained seatrial gate: failed [a-z-]+ in run \S+", state(slurm, "n0"))
    assert slurm_console.run("qualify", file, "--gated").out.startswith("pass: no node was tested")
    assert "reservation" not in slurm.command("scontrol", "show", "reservation").lower().replace(
        "no reservations", ""
    )


def test_a_test_that_is_killed_leaves_the_node_at_the_gate(
    slurm: SlurmCluster, slurm_console: Console, file: Path
) -> None:
    drain(slurm, "n1", GATE)
    process = slurm_console.start("qualify", file, "--gated")
    until(lambda: bool(jobs(slurm)) or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finished = slurm_console.run("reap", file)
    assert finished.status == 0, finished.output
    assert state(slurm, "n1") == f"drained {GATE}"
    assert "seatrial" not in slurm.command("scontrol", "show", "reservation")
    assert jobs(slurm) == []
