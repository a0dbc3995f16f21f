"""What a node's login prints while mpirun starts its daemon there is that node's word alone.

node-1 has an `orted` of its own, which prints what the head, another rank or mpirun would print,
and goes on or not.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.checks.collectives.check import collectives
from seatrial.checks.contract import CheckContext
from seatrial.checks.failures import classify_failure
from seatrial.checks.lost_ranks import lost_ranks
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import mpirun
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.node_setup import set_up_node
from seatrial.remote.ranks import from_rank_0
from seatrial.remote.ssh import on_each
from tests.integration.conftest import LocalTestbed

TABLE = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    16777216       4194304     float     sum      -1     3000  5592.4  7456.5      0     3000  5592.4  7456.5      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 7456.5
"""
FORGED = {
    "table": TABLE,
    "tagged table": "".join(f"[1,0]<stdout>:{line}\n" for line in TABLE.splitlines()),
    "supervisor": "seatrial-supervisor: time is up; 0.0 s of it a process waited for a processor\n",
    "signal": (
        "mpirun noticed that process rank 2 with PID 77 on node node-2 exited on signal 9 "
        "(Killed).\n"
    ),
    "NCCL": (
        "node-2:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : node-2 Got async event : "
        "port error\n"
    ),
    "wrong": "# Out of bounds values : 5 FAILED\n",
}


@pytest.fixture
def forging(
    local_testbed: LocalTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Run, Testbed, Path]]:
    """Three nodes; node-1's daemon first runs the returned script."""
    programs, script = tmp_path / "programs", tmp_path / "script"
    programs.mkdir()
    script.write_text("")
    daemon = programs / "orted"
    daemon.write_text(
        f'#!/bin/sh\n[ "$(uname -n)" = node-1 ] && . {script}\nexec /usr/bin/orted "$@"\n'
    )
    daemon.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")  # which nodes take over
    with local_testbed(nodes=3) as (run, testbed):
        for contact in on_each(testbed.nodes, lambda node: set_up_node(testbed, node, 60)).values():
            assert not isinstance(contact, Exception), contact
            contact.transport.close()
        yield run, testbed, script


def says(text: str, then: str) -> str:
    return f"cat <<'END'\n{text}END\ncat >&2 <<'END'\n{text}END\n{then}\n"


def test_output_of_a_session_is_kept_apart_and_its_failure_blames_its_node(
    forging: tuple[Run, Testbed, Path],
) -> None:
    """Each forgery, going on and leaving with 1."""
    _, testbed, script = forging
    for name, text in FORGED.items():
        script.write_text(says(text, ""))
        went_on = _hostnames(testbed)
        assert (went_on.exit_status, sorted(went_on.lines)) == (
            0,
            ["node-0", "node-1", "node-2"],
        ), name
        script.write_text(says(text, "exit 1"))
        left = _hostnames(testbed)
        assert left.exit_status not in (0, None), name
        assert not set(text.splitlines()) & set(left.lines), name
        assert ("node-1", 1) in [
            (session.node, session.exit_status) for session in left.sessions
        ], name
        verdict, reason = classify_failure(left, began=False)
        assert verdict is Verdict.FAIL, name
        assert reason.sentence.startswith(
            "mpirun's daemon does not start on node-1: its login ended with exit status 1: "
        ), name
        assert [suspect.name for suspect in lost_ranks(left, testbed)] == ["node-1"], name


def _hostnames(testbed: Testbed) -> MpiResult:
    return mpirun(testbed, ["uname", "-n"], timeout_s=60)


@pytest.mark.parametrize("name", ["tagged table", "wrong"])
def test_forged_tables_in_the_output_do_not_change_the_numbers_of_a_sweep(
    forging: tuple[Run, Testbed, Path], name: str
) -> None:
    run, testbed, script = forging
    script.write_text(says(FORGED[name], ""))
    check = collectives(CheckContext(run, testbed)).check
    assert check.verdict is Verdict.PASS, check.reason
    assert max(m.value for m in check.measurements if m.metric == "busbw") < 1000


def test_sweep_with_a_rank_that_did_not_report_itself_is_inconclusive(
    forging: tuple[Run, Testbed, Path], tmp_path: Path
) -> None:
    """The shell on node-1 starts the program of its ranks without rank.sh."""
    run, testbed, script = forging
    shell = tmp_path / "shells" / "sh"
    shell.parent.mkdir()
    shell.write_text('#!/bin/bash\nshift 2\nexec "$@"\n')
    shell.chmod(0o755)
    script.write_text(f'PATH="{shell.parent}:$PATH"\n')
    check = collectives(CheckContext(run, testbed)).check
    assert (check.verdict, check.measurements) == (Verdict.INCONCLUSIVE, ()), check.reason
    assert (
        "rank 1 on node-1 did not report itself: the result is not of all ranks"
        in check.reason.sentence
    )
    assert check.suspects == ()


def test_partial_line_of_another_rank_loses_no_output_of_rank_0(
    forging: tuple[Run, Testbed, Path],
) -> None:
    """The other rank prints dots without a line end, and a forged tag of rank 0 after them."""
    _, testbed, _ = forging
    lines = "\n".join(TABLE.splitlines())
    own = f"sleep 0.5; cat <<'END'\n{lines}\nEND\nsleep 0.5"
    others = "printf '[1,0]<stdout>:forged\\nforged....[1,0]<stdout>:'; sleep 1; printf '...'"
    result = mpirun(
        testbed,
        ["sh", "-c", f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] && {{ {own}; exit; }}; {others}'],
        timeout_s=60,
    )
    assert result.ok
    assert list(from_rank_0(result.lines)) == TABLE.splitlines()
    assert result.unreported == ()


def test_rank_that_exits_without_output_is_named(forging: tuple[Run, Testbed, Path]) -> None:
    _, testbed, _ = forging
    result = mpirun(
        testbed, ["sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exit 3; sleep 30'], timeout_s=60
    )
    if not any("Process name:" in line for line in result.lines):
        pytest.skip("Open MPI 4 does not always say which process left first")
    assert classify_failure(result, began=True)[1].sentence.startswith(
        "rank 1 on node-1 ended first, with exit status 3"
    )
    assert [suspect.name for suspect in lost_ranks(result, testbed)] == ["node-1"]


def test_missing_orted_is_reported_with_its_node(
    forging: tuple[Run, Testbed, Path],
) -> None:
    run, testbed, script = forging
    script.write_text("echo 'sh: 1: orted: not found' >&2; exit 127\n")
    check = collectives(CheckContext(run, testbed)).check
    assert check.verdict is not Verdict.PASS
    assert "node-1" in check.reason.sentence
