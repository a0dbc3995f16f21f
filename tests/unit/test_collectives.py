"""What the step `collectives` makes of what mpirun prints; mpirun itself is a function here."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from seatrial.baselines.known import Knowledge, baselines_for
from seatrial.baselines.setup import Setup
from seatrial.checks.sweep import Setting, conclude
from seatrial.cluster import Cluster
from seatrial.errors import RemoteError
from seatrial.mpi import MpiResult
from seatrial.nccl import Row, Sweep, Timing
from seatrial.result import Check, Suspect
from seatrial.run import Run
from seatrial.ssh import CommandResult
from seatrial.suite import Suite, load_suite
from seatrial.testbed import Node, Testbed, dial_tcp
from seatrial.verdict import Verdict
from tasks import collectives as step
from tasks import sweep
from tasks.connectivity import Present

HEADER = """\
# Collective test starting: {operation}_perf
# nThread 1 nGpus 1 minBytes 4096 maxBytes 65536 step: 4(factor) warmup iters: 1 iters: 5 agg iters: 1 validation: 1
#
# Using devices
"""
COLUMNS = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
SIDE = "  {time:7.2f}  {alg:6.2f}  {bus:6.2f}  "
ROW = "{size:12d}  {count:12d}     float     sum      -1" + SIDE + "{wrong:5}" + SIDE + "    0"
FOOTER = """\
# Out of bounds values : {bad} {word}
# Avg bus bandwidth    : 1.5
#
# Collective test concluded: all_reduce_perf
#
"""


SIZES = (4096, 16384, 65536)


def table(
    ranks: int = 4, sizes: Sequence[int] = SIZES, wrong: int = 0, footer: bool = True, listed: int | None = None
) -> list[str]:
    """What a sweep prints: 1 GB/s algbw at every size, `wrong` elements at the last; `listed` ranks in the header."""
    lines = HEADER.format(operation="all_reduce").splitlines()
    names = range(ranks if listed is None else listed)
    lines += [f"#  Rank {i:2d} Group  0 Pid {100 + i:6d} on node-{i} device  0 [] CPU" for i in names]
    lines += COLUMNS.splitlines()
    for size in sizes:
        bad = wrong if size == sizes[-1] else 0
        bus = 2 * (ranks - 1) / ranks
        lines.append(ROW.format(size=size, count=size // 4, time=size / 1e3, alg=1.0, bus=bus, wrong=bad))
    return lines + (FOOTER.format(bad=bool(wrong) + 0, word="FAILED" if wrong else "OK").splitlines() if footer else [])


def result(lines: Sequence[str], status: int | None = 0, **more: Any) -> MpiResult:
    return MpiResult(status, tuple(lines), 1.0, **more)


def make_testbed(nodes: int = 4, gpus: int = 0, env: Mapping[str, str] | None = None) -> Testbed:
    made = tuple(
        Node(f"node-{i}", f"10.0.0.{i + 1}", 222, max(1, gpus), "ssh-ed25519 AAAA", gpus) for i in range(nodes)
    )
    return Testbed(
        "run-1", made, "root", Path("key"), dial_tcp, "/w", network="10.0.0.0/24", env=tuple((env or {}).items())
    )


def make_run(
    tmp_path: Path,
    nodes: int = 4,
    operations: Sequence[str] = ("all_reduce",),
    sizes: Sequence[int] = SIZES,
    fabric: str | None = None,
) -> Run:
    cluster = {"name": "lab", "nodes": nodes, "platform": {"kind": "local"}, "fabric": fabric}
    quick = load_suite("quick").model_dump()
    asked = {"min_bytes": sizes[0], "max_bytes": sizes[-1], "step_factor": sizes[1] // sizes[0]}
    quick["collectives"] |= {"operations": list(operations), "cpu": asked, "gpu": asked}
    return Run("run-1", Cluster.model_validate(cluster), Suite.model_validate(quick), tmp_path)


Answer = Callable[[str], MpiResult]


class FakeMpirun:
    """Stands where mpirun does: remembers the command lines and plays back what the test says each operation prints."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.argvs: list[list[str]] = []
        self.envs: list[Mapping[str, str] | None] = []

    def __call__(self, testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        self.argvs.append(list(argv))
        self.envs.append(options["env"])
        operation = argv[argv.index("--operation") + 1] if "--operation" in argv else argv[0].removesuffix("_perf")
        played = self.answer(operation)
        for line in played.lines:
            options["on_line"](line)
        return played


def everybody_is_there(run: Run, testbed: Testbed) -> Present:
    return Present(testbed, (), ())


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Check]:
    """Runs the step on a fake mpirun that prints `played` for every operation."""

    def run(played: MpiResult | Answer, bed: Testbed | None = None, **asked: Any) -> Check:
        fake = FakeMpirun(played if callable(played) else lambda operation: played)
        monkeypatch.setattr(sweep, "mpirun", fake)
        monkeypatch.setattr(step, "roll_call", everybody_is_there)
        done = step.collectives(make_run(tmp_path, **asked), bed or make_testbed()).check
        assert done is not None
        return done

    return run


def test_clean_sweep_passes_and_is_measured(check: Callable[..., Check]) -> None:
    done = check(result(table()))
    assert (done.name, done.verdict) == ("collectives", Verdict.PASS)
    by_metric = {
        (m.metric, m.conditions.get("message_bytes"), m.conditions.get("placement")): m for m in done.measurements
    }
    assert by_metric["busbw", 65536, "in_place"].value == pytest.approx(1.5, rel=0.01)
    plateau = by_metric["busbw_plateau", None, None]
    assert plateau.samples == pytest.approx((1.5, 1.5, 1.5), rel=0.01)
    assert plateau.conditions["max_bytes"] == 65536
    latency = by_metric["latency", 4096, None]
    assert (latency.unit, latency.better, latency.conditions["ranks"]) == ("us", "lower", 4)
    assert latency.value == pytest.approx(4.1, abs=0.01)
    assert {m.subject.name for m in done.measurements} == {"lab"}


def test_busbw_comes_from_the_time_because_print_has_two_decimals(check: Callable[..., Check]) -> None:
    row = ROW.format(size=16384, count=4096, time=9999.5, alg=0.0, bus=0.0, wrong=0)
    lines = [row if line.split()[:1] == ["16384"] else line for line in table()]
    found = next(m for m in check(result(lines)).measurements if m.conditions.get("message_bytes") == 16384)
    assert found.value == pytest.approx(16384 / 9999.5 / 1e3 * 1.5)


def test_wrong_elements_are_corrupt_and_named(check: Callable[..., Check]) -> None:
    done = check(result(table(wrong=3), 7))
    assert done.verdict is Verdict.CORRUPT
    assert done.reason == "all_reduce: wrong elements: 3 at 64K out-of-place"


def test_fewer_ranks_are_named_before_any_number(check: Callable[..., Check]) -> None:
    done = check(result(table(ranks=3)))
    assert (done.verdict, done.measurements) == (Verdict.FAIL, ())
    assert "3 of 4 ranks took part" in done.reason


def test_a_torn_line_of_the_header_is_no_missing_rank(check: Callable[..., Check]) -> None:
    """busbw/algbw is that of four ranks, whatever the header lists."""
    done = check(result(table(listed=3)))
    assert done.verdict is Verdict.PASS
    assert {m.conditions["ranks"] for m in done.measurements} == {4}


def test_ranks_that_nothing_bears_out_are_inconclusive(check: Callable[..., Check]) -> None:
    """busbw is algbw in a broadcast, so only the header tells."""
    lines = [line.replace("    1.50  ", "    1.00  ").replace("all_reduce", "broadcast") for line in table(listed=3)]
    done = check(result(lines), operations=["broadcast"])
    assert (done.verdict, done.measurements) == (Verdict.INCONCLUSIVE, ())
    assert "names 3 of 4 ranks" in done.reason


@pytest.mark.parametrize("left", [(4096,), (4096, 16384), (16384, 65536)])
def test_sizes_that_did_not_come_are_named(check: Callable[..., Check], left: Sequence[int]) -> None:
    done = check(result(table(sizes=left)))
    gone = [name for size, name in zip(SIZES, ("4K", "16K", "64K"), strict=True) if size not in left]
    assert (done.verdict, done.reason) == (
        Verdict.INCONCLUSIVE,
        f"all_reduce: {len(gone)} of 3 sizes are missing: {', '.join(gone)}",
    )
    assert {m.metric for m in done.measurements} == {"busbw", "latency"}  # a plateau of other sizes is another number


def test_memory_that_is_too_small_is_named(check: Callable[..., Check]) -> None:
    done = check(result(["# Reducing maxBytes to 20000 due to memory limitation", *table(sizes=SIZES[:2])]))
    assert done.verdict is Verdict.INCONCLUSIVE
    assert done.reason.endswith("missing: 64K (Reducing maxBytes to 20000 due to memory limitation)")


def test_a_row_without_numbers_is_a_missing_size(check: Callable[..., Check]) -> None:
    lines = [line.replace("65.54", "XX.XX") for line in table()]
    done = check(result(lines))
    assert (done.verdict, "64K" in done.reason) == (Verdict.INCONCLUSIVE, True)


@pytest.mark.parametrize("aligned", [16, 4])
def test_sizes_are_rounded_to_what_the_ranks_can_share(aligned: int) -> None:
    """all_gather over 6 ranks, as nccl-tests prints it: whole parts, and rows of 0 where a part would be empty."""
    asked = tuple(8 << i for i in range(20))
    rows = [row_of(size // (6 * aligned) * 6 * aligned) for size in asked]
    setting = Setting("all_gather", "float32", 6, "lab", asked)
    assert conclude(setting, result([]), sweep_of("all_gather", rows, 6)).verdict is Verdict.PASS
    short = conclude(setting, result([]), sweep_of("all_gather", [row for row in rows if row.size < 600_000], 6))
    assert "3 of 20 sizes are missing: 1M, 2M, 4M" in short.reason


def test_a_plateau_is_held_against_the_catalog_at_the_largest_size() -> None:
    asked = (1 << 27, 1 << 28, 1 << 29, 1 << 30)
    setting = Setting("all_reduce", "float32", 8, "lab", asked)
    outcome = conclude(setting, result([]), sweep_of("all_reduce", [row_of(size) for size in asked], 8))
    (plateau,) = (m for m in outcome.measurements if m.metric == "busbw_plateau")
    knowledge = Knowledge(Setup("H200-SXM", 1, 8, 8, "NVLink"))
    (baseline,) = baselines_for(plateau, knowledge, outcome.measurements)
    assert (baseline.source, " at 1G " in baseline.detail) == ("catalog", True)


def test_rows_count_though_the_lines_were_too_many_to_keep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def chatty(testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        for line in table():
            options["on_line"](line)
        return result(["first line", "[999 lines are left out here; the log has them]", "last line"])

    monkeypatch.setattr(sweep, "mpirun", chatty)
    done = step.collectives(make_run(tmp_path), make_testbed()).check
    assert done is not None
    assert done.verdict is Verdict.PASS, done.reason


def row_of(size: int) -> Row:
    side = Timing(size / 1e3, 1.0, 5 / 6, 0)
    return Row(size, size // 24, "float", "none", -1, side, side)


def sweep_of(operation: str, rows: Sequence[Row], ranks: int) -> Sweep:
    return Sweep(operation, None, ranks, (), tuple(rows), 0, 1.0, "ok")


SOCKETS = "node-0:81:90 [0] NCCL INFO Using network Socket"
INFINIBAND = "node-0:81:90 [0] NCCL INFO Using network IB"


@pytest.mark.parametrize(
    ("evidence", "env", "fabric", "verdict"),
    [
        (SOCKETS, {}, "IB-8x400G", Verdict.FAIL),
        (SOCKETS, {"NCCL_NET": "gIB"}, None, Verdict.FAIL),
        (INFINIBAND, {}, "IB-8x400G", Verdict.PASS),
        ("", {}, "IB-8x400G", Verdict.PASS),  # no evidence, no accusation
        (SOCKETS, {}, None, Verdict.PASS),
        (SOCKETS, {}, "MNNVL", Verdict.PASS),
        (SOCKETS, {"NCCL_NET": "Socket"}, "IB-8x400G", Verdict.PASS),  # as asked
    ],
)
def test_a_silent_fallback_to_sockets_fails(
    check: Callable[..., Check],
    monkeypatch: pytest.MonkeyPatch,
    evidence: str,
    env: dict[str, str],
    fabric: str | None,
    verdict: Verdict,
) -> None:
    monkeypatch.setattr(step, "can_write_json", lambda bed, operation: False)
    done = check(result([evidence, *table()]), make_testbed(gpus=1, env=env), fabric=fabric)
    assert done.verdict is verdict, done.reason
    if verdict is Verdict.FAIL:
        assert f"went over sockets, not over {env.get('NCCL_NET') or fabric}: {SOCKETS}" in done.reason


def test_nccl_is_asked_for_its_network_once_and_the_cluster_files_word_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(step, "can_write_json", lambda bed, operation: False)
    run = make_run(tmp_path, operations=["all_reduce", "alltoall"], fabric="RoCE")

    def envs(bed: Testbed) -> list[Mapping[str, str] | None]:
        fake = FakeMpirun(lambda operation: result(table()))
        monkeypatch.setattr(sweep, "mpirun", fake)
        step.collectives(run, bed)
        return fake.envs

    info = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    assert envs(make_testbed(gpus=1)) == [info, {"NCCL_DEBUG": "WARN"}]
    assert envs(make_testbed(gpus=1, env={"NCCL_DEBUG": "VERSION"})) == [{}, {}]
    assert envs(make_testbed()) == [{}, {}]


def test_build_without_mpi_is_not_a_result(check: Callable[..., Check]) -> None:
    copies = [
        line.replace("Pid    100 on node-0", f"Pid {200 + i} on node-{i}") for i in range(4) for line in table(ranks=1)
    ]
    done = check(result(copies))
    assert done.verdict is Verdict.FAIL
    assert "1 of 4 ranks" in done.reason
    assert "MPI=1" in done.reason


DIED = """\
--------------------------------------------------------------------------
mpirun noticed that process rank 2 with PID 71 on node node-2 exited on signal 9 (Killed).
--------------------------------------------------------------------------""".splitlines()
MISSING = """\
--------------------------------------------------------------------------
mpirun was unable to find the specified executable file, and therefore
did not launch the job.  This error was first reported for process
rank 0; it may have occurred for other processes as well.
--------------------------------------------------------------------------""".splitlines()
LOST = "collective probe: node-1 rank 1: RuntimeError: Connection closed by peer [10.0.0.3]:4711"
WAITED = "collective probe: node-{0} rank {0}: RuntimeError: Timed out waiting 30000ms for recv operation to complete"
CRASHED = "[node-0:00063] Signal: Segmentation fault (11)"  # mpirun, while it is ended
NO_LIBRARY = "all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file"
NO_EXECUTABLE = (
    "mpirun was unable to launch the specified application as it could not access or execute an executable: "
    "Executable: all_reduce_perf Node: node-731 while attempting to start process rank 8."
)
NO_TORCH = "node-3: cannot start: torch is missing for /usr/bin/python3: No module named 'torch'"


@pytest.mark.parametrize(
    ("played", "verdict", "words"),
    [
        (
            result([*table(footer=False), LOST, *DIED], 137),
            Verdict.FAIL,
            "killed by a signal (9 (Killed)) on node-2 (rank 2)",
        ),
        (result([*table(footer=False), LOST], 1), Verdict.FAIL, "rank 1 on node-1 gave up: RuntimeError"),
        (result(table(footer=False), None, timed_out=True), Verdict.FAIL, "no end within 1 s (after 3 sizes)"),
        (result([], None, timed_out=True), Verdict.INCONCLUSIVE, "the ranks never met"),
        (result(table(footer=False)), Verdict.INCONCLUSIVE, "the output ends early"),
        (result(table(sizes=())), Verdict.INCONCLUSIVE, ""),
        (result([NO_TORCH], 3), Verdict.NOT_RUN, "node-3 cannot start: torch is missing for /usr/bin/python3"),
        (result([NO_TORCH, NO_TORCH.replace("3", "7", 1)], 3), Verdict.NOT_RUN, "named 'torch' (likewise node-7)"),
        (result([NO_LIBRARY], 127), Verdict.NOT_RUN, "shared library missing (libnccl.so.2:)"),
        (result(["sh: 1: python3: command not found"], 127), Verdict.NOT_RUN, "command missing (python3)"),
        (result([NO_EXECUTABLE], 134), Verdict.NOT_RUN, "executable missing on node-731: check the path"),
        (result(["something else"], 124), Verdict.FAIL, "exit status is 124"),
        (result(MISSING, 132), Verdict.NOT_RUN, "executable missing"),
        (result(["USAGE: all_reduce_perf", "\t[-t,--nthreads <num threads>]"]), Verdict.INCONCLUSIVE, "option"),
        (result([], None, not_started="mpirun: No such file or directory"), Verdict.NOT_RUN, "cannot start mpirun: No"),
        (result(["something else"], 5), Verdict.FAIL, "exit status is 5"),
        (result(table(), None, reaped=True), Verdict.PASS, "every result is right"),
    ],
)
def test_what_went_wrong_is_said(check: Callable[..., Check], played: MpiResult, verdict: Verdict, words: str) -> None:
    done = check(played)
    assert (done.verdict, words in done.reason) == (verdict, True), done.reason


def test_one_failing_operation_does_not_stop_the_others(check: Callable[..., Check]) -> None:
    def answer(operation: str) -> MpiResult:
        return result([LOST], 1) if operation == "all_gather" else result(table())

    done = check(answer, operations=["all_reduce", "all_gather", "alltoall"])
    assert done.verdict is Verdict.FAIL
    assert done.reason.startswith("all_gather: rank 1 on node-1 gave up")
    assert {m.conditions["operation"] for m in done.measurements} == {"all_reduce", "alltoall"}


def test_ranks_that_waited_in_vain_are_listed_and_end_the_check(check: Callable[..., Check]) -> None:
    lines = [*table(footer=False), *(WAITED.format(i) for i in (0, 3, 1)), CRASHED]
    done = check(result(lines, None, reaped=True), operations=["all_reduce", "alltoall"])
    assert done.verdict is Verdict.FAIL
    assert "all_reduce: rank 0 on node-0 gave up: RuntimeError: Timed out waiting" in done.reason
    assert "(so did rank 1, 3) (after 3 sizes)" in done.reason
    assert "alltoall was not tried" in done.reason


def test_nothing_is_tried_once_the_fabric_is_gone(check: Callable[..., Check]) -> None:
    asked = []

    def answer(operation: str) -> MpiResult:
        asked.append(operation)
        raise RemoteError("node-0 (10.0.0.1 port 222): connection timed out")

    done = check(answer, operations=["all_reduce", "all_gather", "alltoall"])
    assert (done.verdict, asked) == (Verdict.FAIL, ["all_reduce"])
    assert "connection timed out" in done.reason
    assert "alltoall was not tried" in done.reason


def test_one_node_left_is_not_run(check: Callable[..., Check]) -> None:
    done = check(result(table()), make_testbed(1))
    assert (done.verdict, done.reason) == (Verdict.NOT_RUN, "needs at least two nodes, 1 left")


def test_a_cluster_of_one_node_with_gpus_is_swept(check: Callable[..., Check], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "can_write_json", lambda bed, operation: False)
    assert check(result(table()), make_testbed(1, gpus=4), nodes=1).verdict is Verdict.PASS


def test_a_suite_without_collectives_has_no_check(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    quiet = Run(run.run_id, run.cluster, run.suite.model_copy(update={"collectives": None}), tmp_path)
    assert step.collectives(quiet, make_testbed()).check is None


def test_a_connection_that_broke_is_no_fault_of_the_cluster(check: Callable[..., Check]) -> None:
    done = check(result(table(footer=False), None, lost=True), operations=["all_reduce"])
    assert done.verdict is Verdict.INCONCLUSIVE
    assert "all_reduce: the connection to the head node broke after 1 s (after 3 sizes)" in done.reason


def test_a_node_that_died_is_named_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    died = Suspect("node", "node-2", 1.0, "no route to host")
    lost = "collective probe: node-0 rank 0: all_reduce: timed out"
    fake = FakeMpirun(lambda operation: result([lost], status=1) if operation == "all_reduce" else result(table(3)))
    monkeypatch.setattr(sweep, "mpirun", fake)
    monkeypatch.setattr(
        step,
        "roll_call",
        lambda run, bed: Present(bed.without({"node-2"}), (died,), ("node-2: no route to host",)),
    )
    swept = step.collectives(make_run(tmp_path, operations=["all_reduce", "broadcast"]), make_testbed())
    assert swept.check is not None
    assert swept.check.verdict is Verdict.FAIL
    assert swept.check.suspects == (died,)
    assert swept.check.reason.endswith("all_reduce: timed out; node-2: no route to host")
    assert [node.name for node in swept.testbed.nodes] == ["node-0", "node-1", "node-3"]
    assert len(fake.argvs) == 2
    assert {m.conditions["ranks"] for m in swept.check.measurements} == {3}


def test_where_only_one_node_is_left_the_rest_is_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    died = Suspect("node", "node-1", 1.0, "no route to host")
    fake = FakeMpirun(lambda operation: result(["collective probe: node-0 rank 0: timed out"], status=1))
    monkeypatch.setattr(sweep, "mpirun", fake)
    monkeypatch.setattr(
        step, "roll_call", lambda run, bed: Present(bed.without({"node-1"}), (died,), ("node-1: no route to host",))
    )
    swept = step.collectives(make_run(tmp_path, 2, ["all_reduce", "broadcast"]), make_testbed(2))
    assert swept.check is not None
    assert "broadcast was not tried: needs at least two nodes, 1 left" in swept.check.reason
    assert len(fake.argvs) == 1


def test_gpus_get_nccl_tests_and_cpus_the_probe(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    wanted = load_suite("quick").collectives
    assert wanted is not None
    nccl = sweep.nccl_argv(wanted, "all_gather", "/w/x.json")
    assert " ".join(nccl) == "all_gather_perf -b 1048576 -e 1073741824 -f 4 -g 1 -w 5 -n 20 -d float -J /w/x.json"
    gloo = sweep.gloo_argv(run, make_testbed(), wanted, "all_gather")
    assert gloo[:4] == ["python3", "/w/collective.py", "--operation", "all_gather"]
    assert gloo[gloo.index("--master-addr") + 1] == "10.0.0.1"
    assert 20_000 <= int(gloo[gloo.index("--master-port") + 1]) < 30_000


def test_rows_are_said_as_they_arrive(check: Callable[..., Check], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "seatrial.collectives"):
        check(result(table(wrong=2)))
    rows = [record for record in caplog.records if hasattr(record, "row")]
    assert len(rows) == 3
    assert "64K" in rows[-1].getMessage()
    assert "2 wrong" in rows[-1].getMessage()


def test_json_without_its_environment(
    check: Callable[..., Check], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file has a row that the output lost, and all ranks that its header lost."""
    exact = {"time": 65.536, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": 0}
    rows = [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "-1", "out_of_place": exact}
        for size in SIZES
    ]
    bounds = {"count": 0, "okay": "true"}
    document = {
        "version": 1,
        "args": ["all_reduce_perf"],
        "env": ["TOKEN=secret"],
        "results": rows,
        "out_of_bounds": bounds,
    }
    commands = fake_head(monkeypatch, {"--help": "[-J,--output_file <file>]", "cat": json.dumps(document), "rm": ""})
    done = check(result(table(sizes=SIZES[:2], listed=3)), make_testbed(4, gpus=1))
    assert done.verdict is Verdict.PASS, done.reason
    assert any("all_reduce_perf --help" in command for command in commands)
    assert len([m for m in done.measurements if m.metric == "busbw"]) == 3
    assert commands[-1].startswith("rm -f /w/all_reduce-run-1.json")
    kept = (tmp_path / "logs" / "all_reduce.json").read_text()
    assert "secret" not in kept
    assert "results" in kept


@pytest.mark.parametrize("played", [result(["something else"], 1), RemoteError("connection reset")])
def test_the_file_with_the_environment_never_stays(
    check: Callable[..., Check], monkeypatch: pytest.MonkeyPatch, played: MpiResult | RemoteError
) -> None:
    def answer(operation: str) -> MpiResult:
        if isinstance(played, RemoteError):
            raise played
        return played

    commands = fake_head(monkeypatch, {"--help": "[-J,--output_file <file>]", "cat": "no such file", "rm": ""})
    assert check(answer, make_testbed(4, gpus=1)).verdict is Verdict.FAIL
    assert commands[-1] == "rm -f /w/all_reduce-run-1.json"


def fake_head(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, str]) -> list[str]:
    """A head node that answers commands by the first word of `answers` found in them."""
    commands: list[str] = []

    def run_command(head: object, command: str, **options: Any) -> CommandResult:
        commands.append(command)
        return CommandResult(0, next(text for word, text in answers.items() if word in command), 0.1)

    monkeypatch.setattr(sweep, "connected", lambda bed, node, timeout_s: nullcontext())
    monkeypatch.setattr(sweep, "run_command", run_command)
    return commands
