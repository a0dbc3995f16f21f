"""The sweep of real ranks: it reads as nccl-tests do, and says what is wrong and who died."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.collectives.outcome import conclude
from seatrial.checks.collectives.problems import Setting
from seatrial.model.verdict import Verdict
from seatrial.nccl import Sweep, busbw_factor, parse_lines
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.probes import probe
from tests.integration.probes.launched import (
    OPERATIONS,
    PATIENCE_S,
    Ended,
    finish,
    launch_many,
    meeting,
    mpirun_argv,
    needs_mpirun,
    start,
    sweep_argv,
)

CORRUPT = ("all_reduce", "sendrecv")
DTYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int32",
    "bfloat16": "bfloat16",
    "float16": "half",
}


@pytest.fixture(scope="module")
def launched() -> tuple[Ended, list[Sweep]]:
    """Four ranks: a clean sweep of every operation, every type by sendrecv, and sweeps with one
    corrupt element.
    """
    clean = [sweep_argv(operation) for operation in OPERATIONS]
    typed = [sweep_argv("sendrecv", "--dtype", dtype) for dtype in DTYPES]
    corrupt = [["--spoil", "element:1", *sweep_argv(operation)] for operation in CORRUPT]
    done = launch_many(4, "collective", [*clean, *typed, *corrupt])
    assert done.status == 7, done.lines[-20:]
    return done, parse_lines(done.lines)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_output_of_every_operation_parses_like_that_of_nccl_tests(
    launched: tuple[Ended, list[Sweep]], operation: str
) -> None:
    sweep = launched[1][OPERATIONS.index(operation)]
    assert sweep.collective == operation
    assert (sweep.outcome, sweep.ranks, sweep.wrong_total, sweep.out_of_bounds) == ("ok", 4, 0, 0)
    assert [device.rank for device in sweep.devices] == [0, 1, 2, 3]
    assert [row.size for row in sweep.rows] == [64, 4096, 262144]
    whole = operation in ("all_reduce", "broadcast", "sendrecv", "reduce")
    assert [row.count for row in sweep.rows] == [
        row.size // 4 // (1 if whole else 4) for row in sweep.rows
    ]
    redop = "sum" if operation in ("all_reduce", "reduce_scatter", "sendrecv", "reduce") else "none"
    root = 0 if operation in ("broadcast", "reduce", "gather", "scatter") else -1
    assert {(row.type, row.redop, row.root) for row in sweep.rows} == {("float", redop, root)}
    for row in sweep.rows:
        for side in row.sides:
            assert side.time_us is not None
            algbw = row.size / side.time_us / 1e3
            assert side.algbw_gb_s == pytest.approx(algbw, rel=0.01, abs=0.006)
            assert side.busbw_gb_s == pytest.approx(
                algbw * busbw_factor(operation, 4), rel=0.01, abs=0.006
            )


@pytest.mark.parametrize("operation", CORRUPT)
def test_one_corrupt_element_is_seen_at_every_size(
    launched: tuple[Ended, list[Sweep]], operation: str
) -> None:
    done, sweeps = launched
    sweep = sweeps[CORRUPT.index(operation) - len(CORRUPT)]
    assert [side.wrong for row in sweep.rows for side in row.sides] == [1] * 6
    setting = Setting(operation, "float32", 4, "lab", (64, 4096, 262144))
    outcome = conclude(setting, done.mpi_result(), sweep)
    assert outcome.verdict is Verdict.CORRUPT
    assert outcome.reason.sentence.startswith(
        f"{operation}: wrong elements: 1 at 64 out-of-place, 1 at 64 in-place"
    )


def test_sendrecv_moves_every_type(launched: tuple[Ended, list[Sweep]]) -> None:
    typed = launched[1][len(OPERATIONS) : -len(CORRUPT)]
    assert [(sweep.rows[0].type, sweep.wrong_total) for sweep in typed] == [
        (name, 0) for name in DTYPES.values()
    ]


def test_sendrecv_works_with_a_single_rank() -> None:
    done = launch_many(1, "collective", [sweep_argv("sendrecv")])
    assert done.status == 0, done.lines
    (sweep,) = parse_lines(done.lines)
    assert (sweep.outcome, sweep.wrong_total, len(sweep.rows)) == ("ok", 0, 3)


@needs_mpirun
def test_a_killed_rank_ends_the_sweep_promptly() -> None:
    """The others must neither hang nor abort, and the reason must name the rank that died."""
    many = ["--min-bytes", "4096", "--max-bytes", "4096", "--iterations", "10000000"]
    argv = [str(probe("collective")), "--operation", "all_reduce", *many, *meeting()]
    process = start(mpirun_argv(2, argv))
    assert process.stdout
    seen = list(_until(process.stdout, r"in-place"))
    pid = next(
        int(match[1]) for line in seen if (match := re.search(r"Rank +1 .*Pid +(\d+)", line))
    )
    _await_work(pid)
    os.kill(pid, signal.SIGKILL)
    done = finish(process, time.monotonic())
    assert done.seconds < PATIENCE_S / 2, "it is no time limit that ends the others"
    assert done.status != 0
    assert not [line for line in done.lines if "terminate called" in line]
    lines = (*seen, *done.lines)
    (sweep,) = parse_lines(lines)
    setting = Setting("all_reduce", "float32", 2, "lab", (4096,))
    outcome = conclude(setting, MpiResult(done.status, lines, done.seconds), sweep)
    assert outcome.verdict is Verdict.FAIL
    assert "killed by a signal" in outcome.reason.sentence
    assert "rank 1" in outcome.reason.sentence


def _await_work(pid: int) -> None:
    """Until the process has taken a tenth of a second more of processor time: it is in the middle
    of its sweep.
    """
    stat, deadline = Path("/proc", str(pid), "stat"), time.monotonic() + 60

    def ticks() -> int:
        return int(stat.read_text().rpartition(")")[2].split()[11])

    enough = ticks() + os.sysconf("SC_CLK_TCK") // 10
    while ticks() < enough:
        assert time.monotonic() < deadline, "the rank does not work"
        time.sleep(0.01)


def _until(stream: Any, pattern: str) -> Iterator[str]:
    """The lines of a stream up to the one that matches."""
    for line in stream:
        yield line.rstrip("\n")
        if re.search(pattern, line):
            return
