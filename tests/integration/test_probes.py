"""The probes as the nodes run them: real mpirun, real gloo over loopback, and data that is checked for real."""

import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from seatrial.checks.lesson import read_event
from seatrial.checks.sweep import Setting, conclude
from seatrial.mpi import MpiResult
from seatrial.nccl import Sweep, busbw_factor, parse_lines
from seatrial.probes import probe
from seatrial.verdict import Verdict

PROBE_FOLDER = str(probe("collective").parent)
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall")
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun (openmpi-bin)")

# Several runs of a probe in one launch: what takes time is that every rank imports torch.
DRIVER = """
import json, sys
sys.path.insert(0, sys.argv.pop(1))
import rendezvous
name, runs = sys.argv.pop(1), json.loads(sys.argv.pop(1))
main = __import__(name).main
rendezvous.run(name, lambda _: [main(run) for run in runs][-1])
"""


@dataclass(frozen=True)
class Ended:
    """What a launch came to."""

    status: int
    lines: list[str]
    seconds: float

    def mpi_result(self) -> MpiResult:
        return MpiResult(self.status, tuple(self.lines), self.seconds)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def meeting(port: int | None = None) -> list[str]:
    where = ["--master-addr", "127.0.0.1", "--master-port", str(port or free_port())]
    return [*where, "--network", "127.0.0.0/8", "--timeout-s", "40"]


def mpirun_argv(ranks: int, command: Sequence[str]) -> list[str]:
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    return ["mpirun", *options, sys.executable, *command]


def start(argv: Sequence[str], **env: str) -> subprocess.Popen[str]:
    """In a process group of its own, so that a failing test leaves nothing behind."""
    return subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **env},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], began: float, timeout_s: float = 60) -> Ended:
    try:
        output, _ = process.communicate(timeout=timeout_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return Ended(process.returncode, output.splitlines(), time.monotonic() - began)


def launch(ranks: int, *command: str) -> Ended:
    return finish(start(mpirun_argv(ranks, command)), time.monotonic())


def launch_many(ranks: int, name: str, runs: Sequence[Sequence[str]]) -> Ended:
    with_ports = json.dumps([[*run, *meeting()] for run in runs])
    return launch(ranks, "-c", DRIVER, PROBE_FOLDER, name, with_ports)


def sweep_argv(operation: str, *more: str) -> list[str]:
    sizes = ["--min-bytes", "64", "--max-bytes", "262144", "--step-factor", "64"]
    return ["--operation", operation, *sizes, "--iterations", "2", *more]


@pytest.fixture(scope="module")
def sweeps() -> dict[str, Sweep]:
    """A clean sweep of every operation over four ranks."""
    done = launch_many(4, "collective", [sweep_argv(operation) for operation in OPERATIONS])
    assert done.status == 0, done.lines[-20:]
    found = parse_lines(done.lines)
    return {sweep.collective or "": sweep for sweep in found}


@needs_mpirun
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_reads_as_nccl_tests_do(sweeps: dict[str, Sweep], operation: str) -> None:
    sweep = sweeps[operation]
    assert (sweep.outcome, sweep.ranks, sweep.wrong_total, sweep.out_of_bounds) == ("ok", 4, 0, 0)
    assert [device.rank for device in sweep.devices] == [0, 1, 2, 3]
    assert [row.size for row in sweep.rows] == [64, 4096, 262144]
    whole = operation in ("all_reduce", "broadcast")
    assert [row.count for row in sweep.rows] == [row.size // 4 // (1 if whole else 4) for row in sweep.rows]
    redop = "sum" if operation in ("all_reduce", "reduce_scatter") else "none"
    root = 0 if operation == "broadcast" else -1
    assert {(row.type, row.redop, row.root) for row in sweep.rows} == {("float", redop, root)}
    for row in sweep.rows:
        for side in row.sides:
            assert side.time_us is not None
            algbw = row.size / side.time_us / 1e3
            assert side.algbw_gb_s == pytest.approx(algbw, rel=0.01, abs=0.006)
            assert side.busbw_gb_s == pytest.approx(algbw * busbw_factor(operation, 4), rel=0.01, abs=0.006)


@needs_mpirun
def test_one_corrupt_element_is_seen_at_every_size() -> None:
    done = launch(2, str(probe("collective")), *sweep_argv("all_reduce", "--corrupt", "1"), *meeting())
    assert done.status == 7
    (sweep,) = parse_lines(done.lines)
    assert [side.wrong for row in sweep.rows for side in row.sides] == [1] * 6
    setting = Setting("all_reduce", "float32", 2, "lab", (64, 4096, 262144))
    outcome = conclude(setting, done.mpi_result(), sweep)
    assert outcome.verdict is Verdict.CORRUPT
    assert outcome.reason.startswith("all_reduce: wrong elements: 1 at 64 out-of-place, 1 at 64 in-place")


@needs_mpirun
def test_a_killed_rank_ends_the_sweep_promptly() -> None:
    """The others must neither hang nor abort, and the reason must name the rank that died."""
    many = ["--min-bytes", "4096", "--max-bytes", "4096", "--iterations", "10000000"]
    argv = [str(probe("collective")), "--operation", "all_reduce", *many, *meeting()]
    process = start(mpirun_argv(2, argv))
    assert process.stdout
    seen = list(_until(process.stdout, r"in-place"))
    pid = next(int(match[1]) for line in seen if (match := re.search(r"Rank +1 .*Pid +(\d+)", line)))
    time.sleep(0.3)
    os.kill(pid, signal.SIGKILL)
    done = finish(process, time.monotonic(), 20)
    assert done.seconds < 10
    assert done.status != 0
    assert not [line for line in done.lines if "terminate called" in line]
    lines = (*seen, *done.lines)
    (sweep,) = parse_lines(lines)
    setting = Setting("all_reduce", "float32", 2, "lab", (4096,))
    outcome = conclude(setting, MpiResult(done.status, lines, done.seconds), sweep)
    assert outcome.verdict is Verdict.FAIL
    assert "killed by a signal" in outcome.reason
    assert "rank 1" in outcome.reason


def _until(stream: Any, pattern: str) -> Iterator[str]:
    """The lines of a stream up to the one that matches."""
    for line in stream:
        yield line.rstrip("\n")
        if re.search(pattern, line):
            return


def one_rank(name: str, arguments: Sequence[str]) -> Ended:
    """A world of one rank, which needs no launcher."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    return finish(start([sys.executable, str(probe(name)), *arguments], **alone), time.monotonic())


def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        done = one_rank("collective", [*sweep_argv("all_reduce"), *meeting(port)])
    assert done.status == 3
    (line,) = done.lines
    assert line.endswith(f"rank 0: cannot start: port {port} on 127.0.0.1 is already in use")


def test_a_node_without_torch_says_so() -> None:
    argv = [sys.executable, "-S", "-E", str(probe("training")), *meeting()]  # -S: no site-packages
    done = finish(start(argv), time.monotonic())
    assert done.status == 3
    assert "cannot start: torch is missing for" in done.lines[-1]


@pytest.fixture(scope="module")
def lessons() -> list[dict[str, Any]]:
    """Summaries over four ranks: a clean run of `quick`'s length, a NaN on rank 1, and rank 2 silently off."""
    runs = [["--steps", "20"], ["--steps", "6", "--poison", "1"], ["--steps", "4", "--diverge", "2"]]
    done = launch_many(4, "training", runs)
    assert done.status == 7, done.lines[-20:]
    events = [event for line in done.lines if (event := read_event(line))]
    return [event for event in events if event["event"] == "summary"]


@needs_mpirun
def test_training_learns_and_ranks_agree(lessons: list[dict[str, Any]]) -> None:
    clean = lessons[0]
    assert (clean["steps"], clean["world_size"], len(clean["step_time_ms"])) == (20, 4, 18)
    assert clean["last_loss"] < 0.5 * clean["first_loss"]  # quick asks for a drop of 10 %
    assert len({rank["checksum"] for rank in clean["ranks"]}) == 1
    assert all(rank["finite"] for rank in clean["ranks"])
    assert sum(clean["step_time_ms"]) < 6000


@needs_mpirun
def test_a_nan_is_seen_on_the_rank_where_it_arose(lessons: list[dict[str, Any]]) -> None:
    poisoned = lessons[1]
    assert [rank["finite"] for rank in poisoned["ranks"]] == [True, False, True, True]
    assert (poisoned["steps"], poisoned["last_loss"]) == (3, None)


@needs_mpirun
def test_a_rank_that_silently_differs_is_seen(lessons: list[dict[str, Any]]) -> None:
    sums = [rank["checksum"] for rank in lessons[2]["ranks"]]
    assert sums[0] == sums[1] == sums[3] != sums[2]


@pytest.fixture
def patterns(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PROBE_FOLDER)
    return importlib.import_module("patterns")


RANKS = 4
COUNT = 70_000  # more than the pattern's period


def send_buffers(patterns: ModuleType, operation: str, turn: int = 1) -> list[Any]:
    """What each rank sends."""
    import torch

    length = COUNT if operation in ("all_reduce", "all_gather", "broadcast") else COUNT * RANKS
    buffers = [torch.empty(length) for _ in range(RANKS)]
    for rank, buffer in enumerate(buffers):
        patterns.fill(buffer, patterns.pattern(rank, turn, 4093, length))
    return buffers


def right_result(operation: str, rank: int, sent: list[Any]) -> Any:
    """What `rank` receives, worked out from the send buffers and nothing else."""
    import torch

    mine = slice(rank * COUNT, (rank + 1) * COUNT)
    if operation == "all_reduce":
        return torch.stack(sent).sum(0)
    if operation == "reduce_scatter":
        return torch.stack(sent).sum(0)[mine].clone()
    if operation == "broadcast":
        return sent[0].clone()
    return torch.cat(sent if operation == "all_gather" else [buffer[mine] for buffer in sent])


def count_wrong(patterns: ModuleType, operation: str, rank: int, received: Any, turn: int = 1) -> int:
    length = len(send_buffers(patterns, operation)[0])
    expected = patterns.parts(operation, rank, RANKS, COUNT, lambda r: patterns.pattern(r, turn, 4093, length))
    return int(patterns.count_wrong(received, expected))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_check_sees_what_is_lost_stale_or_misplaced(patterns: ModuleType, operation: str) -> None:
    """The check itself, without any collective: a probe whose collective does nothing must count wrong elements."""
    rank = 1
    right = right_result(operation, rank, send_buffers(patterns, operation))
    assert count_wrong(patterns, operation, rank, right) == 0

    nothing = right.clone()
    patterns.spoil(nothing)
    assert count_wrong(patterns, operation, rank, nothing) == len(right)  # never received

    stale = right_result(operation, rank, send_buffers(patterns, operation, turn=0))
    assert count_wrong(patterns, operation, rank, stale) > 0.9 * len(right)  # the round before

    own = send_buffers(patterns, operation)[rank]
    untouched = own.repeat(RANKS)[: len(right)]
    assert count_wrong(patterns, operation, rank, untouched) > 0.5 * len(right)  # in place, and nothing done

    shifted = right.roll(1024)
    assert count_wrong(patterns, operation, rank, shifted) > 0.9 * len(right)  # chunks in the wrong place

    lost = right.clone()
    lost[5000:5010] = float("nan")
    assert count_wrong(patterns, operation, rank, lost) == 10


def test_sums_stay_exact_or_are_refused(patterns: ModuleType) -> None:
    for dtype, limit in (("bfloat16", 1 << 8), ("float16", 1 << 11), ("float32", 1 << 24)):
        assert 4 * patterns.max_value("all_reduce", dtype, 4) <= limit
    with pytest.raises(Exception, match="use float32"):
        patterns.max_value("all_reduce", "bfloat16", 200)
    assert patterns.max_value("all_gather", "bfloat16", 200) > 100


def test_the_interface_is_found_by_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROBE_FOLDER)
    rendezvous = importlib.import_module("rendezvous")
    found = {"lo": "127.0.0.1", "eth0": "10.1.2.3", "eth1": "192.168.7.9"}
    assert rendezvous.interface("192.168.7.0/24", "x", found) == "eth1"
    assert rendezvous.interface("ib0", "x", found) == "ib0"
    assert rendezvous.interface(None, "127.0.0.1", found) == "lo"
    with pytest.raises(rendezvous.CannotStart, match=r"no interface has an address in 10\.9\.0\.0/16; here: lo 127"):
        rendezvous.interface("10.9.0.0/16", "x", found)
    assert rendezvous.addresses()["lo"] == "127.0.0.1"
    assert Path(f"/sys/class/net/{rendezvous.interface('127.0.0.0/8', 'x', rendezvous.addresses())}").exists()


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "RANK": "0"},
            (3, 4, 1),
        ),
        ({"PMI_RANK": "2", "PMI_SIZE": "8"}, (2, 8, 0)),
        ({"PMIX_RANK": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}, (1, 2, 1)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "5"}, (5, 6, 5)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, (1, 2, 1)),
    ],
)
def test_every_launcher_tells_the_rank(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], place: tuple[int, int, int]
) -> None:
    monkeypatch.syspath_prepend(PROBE_FOLDER)
    rendezvous = importlib.import_module("rendezvous")
    found = rendezvous.place(environ)
    assert (found.rank, found.world_size, found.local_rank) == place
    with pytest.raises(rendezvous.CannotStart):
        rendezvous.place({})
