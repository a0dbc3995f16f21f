"""Real nodes of which one prints what it should not: it is named, the others are measured, and
memory stays bounded.
"""

import logging
import os
import resource
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.checks.collectives.check import collectives
from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.connectivity.stages import Connectivity
from seatrial.checks.contract import CheckContext
from seatrial.checks.training.check import training
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected
from seatrial.tasks import launch
from seatrial.text.redact import Secrets
from tests.integration.conftest import LocalTestbed, Up
from tests.suspects import suspect_names

FLOODS = {
    "zeros": "exec cat /dev/zero",
    "lines": "exec yes",
    "errors": "exec cat /dev/zero >&2",
    "2 GB": "exec head -c 2000000000 /dev/zero",
}
MEMORY_KIB = 300 * 1024

Evil = Callable[[Testbed, str, str], Testbed]


@pytest.fixture
def evil(tmp_path: Path) -> Evil:
    """A testbed whose node-1 runs `instead` in the place of one of the probes."""

    def build(testbed: Testbed, program: str, instead: str) -> Testbed:
        python = tmp_path / "python"
        case = f'for part; do case "$part" in *{program}) {instead}; exit;; esac; done'
        python.write_text(
            f'#!/bin/sh\n[ "$(uname -n)" = node-1 ] && {{ {case}; }}\nexec {sys.executable} "$@"\n'
        )
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return replace(testbed, python=str(python))

    return build


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_KIB


@pytest.mark.parametrize(
    ("probe", "flood"),
    [
        ("facts.py", "lines"),
        ("facts.py", "errors"),
        ("reach.py", "zeros"),
        ("stream.py", "zeros"),
    ],
)
def test_a_node_that_prints_without_end_is_named_and_left_out(
    shared: Up, evil: Evil, probe: str, flood: str
) -> None:
    run, testbed = shared
    # A flood ends by its size
    patient = run.suite.model_copy(update={"connectivity": Connectivity(timeout_s=120)})
    step = connectivity(
        CheckContext(replace(run, suite=patient), evil(testbed, probe, FLOODS[flood]))
    )
    evidence = "output flood: it printed more than"
    assert step.check.verdict is Verdict.FAIL
    assert [
        (suspect.name, evidence in suspect.evidence.sentence) for suspect in step.check.suspects
    ] == [("node-1", True)]
    assert evidence in step.check.reason.sentence
    assert step.check.reason.sentence.isprintable()
    assert [node.name for node in step.testbed.nodes] == ["node-0", "node-2"]


@pytest.mark.parametrize("flood", ["zeros", pytest.param("lines", marks=pytest.mark.slow)])
def test_ranks_that_print_without_end_are_named_and_left_out(
    shared: Up, evil: Evil, flood: str
) -> None:
    run, testbed = shared
    step = collectives(CheckContext(run, evil(testbed, "collective.py", FLOODS[flood])))
    assert step.check.verdict is Verdict.FAIL
    assert (
        "all_reduce: output flood: the ranks printed more than they may and were ended"
        in step.check.reason.sentence
    )
    assert suspect_names(step.check) == ["node-1"]
    assert [node.name for node in step.testbed.nodes] == ["node-0", "node-2"]


@pytest.mark.slow
@pytest.mark.parametrize("flood", ["2 GB", "errors"])
def test_a_training_that_prints_without_end_is_ended_and_its_node_named(
    shared: Up, evil: Evil, flood: str
) -> None:
    run, testbed = shared
    check = training(CheckContext(run, evil(testbed, "training.py", FLOODS[flood]))).check
    assert check.verdict is Verdict.FAIL
    assert check.reason.code == "ranks-output-flood"
    assert check.reason.sentence.isprintable()
    assert suspect_names(check) == ["node-1"]


def _fetch_nccl_logs(testbed: Testbed, pattern: Path, folder: Path) -> dict[str, bytes]:
    launch.fetch_nccl_logs(
        testbed, str(pattern), folder, time.monotonic() + launch.COLLECT_S, Secrets(())
    )
    return {path.stem: path.read_bytes() for path in folder.glob("*.log")}


def test_nccl_logs_without_end_are_cut_and_links_are_not_followed(
    shared: Up, tmp_path: Path
) -> None:
    written, private = tmp_path / "nccl", tmp_path / "private"
    written.mkdir()
    private.write_text("only for the user of the run")
    for node in ("node-0", "node-1", "node-2"):
        (written / f"{node}.1").write_text(f"NCCL INFO of {node}\n")
    for number in range(2, 40):
        with (written / f"node-1.{number}").open("wb") as log:
            log.truncate(2_000_000_000)  # one line of zeros, which takes no space
    (written / "node-1.98").symlink_to("/dev/zero")
    (written / "node-2.99").symlink_to(private)
    logs = _fetch_nccl_logs(shared[1], written / "%h.%p", tmp_path / "fetched")
    assert {name: f"NCCL INFO of {name}".encode() in log for name, log in logs.items()} == {
        "node-0": True,
        "node-1": True,
        "node-2": True,
    }
    assert 0 < len(logs["node-1"]) < 8 * 1024**2
    assert not any(private.read_bytes() in log for log in logs.values())


def test_a_node_whose_nccl_logs_do_not_come_is_named_and_the_others_have_theirs(
    local_testbed: LocalTestbed,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "_NODE_S", 10.0)
    written, programs = tmp_path / "nccl", tmp_path / "programs"
    written.mkdir()
    programs.mkdir()
    for node in ("node-0", "node-1", "node-2"):
        (written / f"{node}.1").write_text(f"NCCL INFO of {node}\n")
    head = programs / "head"
    head.write_text(
        '#!/bin/sh\n[ "$(uname -n)" = node-1 ] && exec sleep 600\nexec /usr/bin/head "$@"\n'
    )
    head.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")  # which nodes take over
    with (
        local_testbed(nodes=3) as (_, testbed),
        caplog.at_level(logging.WARNING, "seatrial.launch"),
    ):
        logs = _fetch_nccl_logs(testbed, written / "%h.%p", tmp_path / "fetched")
    assert [message.partition(":")[0] for message in caplog.messages] == ["node-1"]
    assert set(logs) >= {"node-0", "node-2"}


def test_a_command_that_is_cut_off_is_ended_on_the_node(shared: Up, tmp_path: Path) -> None:
    """It writes nothing, so a closed channel alone would leave it there."""
    pid_file, (_, testbed) = tmp_path / "pid", shared
    with connected(testbed, testbed.head, 10) as head:
        assert run_command(head, f"echo $$ > {pid_file}; exec sleep 600", timeout_s=3).timed_out
        status = Path("/proc") / pid_file.read_text().strip() / "cmdline"
        gone = f"for i in $(seq 600); do [ -e {status} ] || exit 0; sleep 0.1; done; exit 1"
        assert run_command(head, gone, timeout_s=70).exit_status == 0
