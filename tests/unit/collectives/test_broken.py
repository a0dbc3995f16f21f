"""Sweeps that break, nodes that die meanwhile, and sweeps that there is nothing to run on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.checks.collectives import check as step
from seatrial.checks.collectives import sweep
from seatrial.checks.connectivity.stages import RollCall
from seatrial.checks.contract import CheckContext, try_check
from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, Suspect
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi_result import MpiResult
from tests.unit.collectives.fake_mpirun import (
    GPU_SIZES,
    FakeMpirun,
    make_run,
    make_testbed,
    result,
    table,
)

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
WAITED = (
    "collective probe: node-{0} rank {0}: RuntimeError: Timed out waiting 30000ms for recv "
    "operation to complete"
)
SILENT = "collective probe: node-0 rank 0: no word from rank 1 on node-1"
CRASHED = "[node-0:00063] Signal: Segmentation fault (11)"  # mpirun, while it is ended
NO_LIBRARY = (
    "all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared "
    "object file"
)
NO_EXECUTABLE = (
    "mpirun was unable to launch the specified application as it could not access or execute an "
    "executable: "
    "Executable: all_reduce_perf Node: node-731 while attempting to start process rank 8."
)
NO_ROOM = (
    "node-1 rank 1: cannot start: torch cannot be loaded by python3: libtorch.so: failed to "
    "map segment"
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
        (
            result([*table(footer=False), LOST], 1),
            Verdict.FAIL,
            "rank 1 on node-1 gave up: RuntimeError",
        ),
        (
            result([*table(footer=False), LOST, CRASHED], 1),
            Verdict.FAIL,
            "rank 1 on node-1 gave up: RuntimeError",
        ),
        (result([*table(footer=False), CRASHED, LOST], 1), Verdict.FAIL, "crashed on node-0"),
        (
            result([*table(footer=False), WAITED.format(2), WAITED.format(0), SILENT], 1),
            Verdict.FAIL,
            "rank 0 on node-0 gave up: no word from rank 1 on node-1",
        ),
        (
            result([*table(footer=False), LOST, SILENT, *DIED], 137),
            Verdict.FAIL,
            "(9 (Killed)) on node-2 (rank 2)",
        ),
        (
            result(table(footer=False), None, timed_out=True),
            Verdict.FAIL,
            "no end within 1 s (after 3 sizes)",
        ),
        (
            result([*table(footer=False), LOST], None, timed_out=True),
            Verdict.FAIL,
            "no end within 1 s (after 3 sizes)",
        ),
        (
            result([*table(footer=False), LOST], None, timed_out=True, waited_s=0.8),
            Verdict.INCONCLUSIVE,
            (
                "no end within 1 s: a rank waited 1 s of it for a processor of the machine "
                "that plays all nodes (after 3"
            ),
        ),
        (
            result([*table(footer=False), SILENT], None, timed_out=True, waited_s=0.8),
            Verdict.FAIL,
            "no word from rank 1 on node-1",
        ),
        (result([], None, timed_out=True), Verdict.INCONCLUSIVE, "the ranks never met"),
        (result(table(footer=False)), Verdict.INCONCLUSIVE, "the output ends early"),
        (result(table(sizes=())), Verdict.INCONCLUSIVE, ""),
        (
            result([NO_ROOM, NO_TORCH], 3),
            Verdict.FAIL,
            "node-1 cannot start: torch cannot be loaded by python3: libtorch",
        ),
        (
            result([NO_TORCH], 3),
            Verdict.NOT_RUN,
            "node-3 cannot start: torch is missing for /usr/bin/python3",
        ),
        (
            result([NO_TORCH, NO_TORCH.replace("3", "7", 1)], 3),
            Verdict.NOT_RUN,
            "named 'torch' (likewise node-7)",
        ),
        (result([NO_LIBRARY], 127), Verdict.NOT_RUN, "shared library missing (libnccl.so.2)"),
        (
            result(["sh: 1: python3: command not found"], 127),
            Verdict.NOT_RUN,
            "command missing (python3)",
        ),
        (
            result([NO_EXECUTABLE], 134),
            Verdict.NOT_RUN,
            "executable missing on node-731: mpirun was unable",
        ),
        (result(["something else"], 124), Verdict.FAIL, "exit status is 124"),
        (result(MISSING, 132), Verdict.NOT_RUN, "executable missing"),
        (
            result(["USAGE: all_reduce_perf", "\t[-t,--nthreads <num threads>]"]),
            Verdict.INCONCLUSIVE,
            "option",
        ),
        (
            result([], None, not_started="mpirun: No such file or directory"),
            Verdict.NOT_RUN,
            "cannot start mpirun: No",
        ),
        (result(["something else"], 5), Verdict.FAIL, "exit status is 5"),
        (result(table(), None, reaped=True), Verdict.PASS, "every result is right"),
    ],
)
def test_each_failure_has_its_code(
    check: Callable[..., Check], played: MpiResult, verdict: Verdict, words: str
) -> None:
    done = check(played)
    assert (done.verdict, words in done.reason.sentence) == (verdict, True), done.reason


def test_one_failing_operation_does_not_stop_the_others(check: Callable[..., Check]) -> None:
    def answer(operation: str) -> MpiResult:
        return result([LOST], 1) if operation == "all_gather" else result(table())

    done = check(answer, operations=["all_reduce", "all_gather", "alltoall"])
    assert done.verdict is Verdict.FAIL
    assert done.reason.sentence.startswith("all_gather: rank 1 on node-1 gave up")
    assert {m.conditions["operation"] for m in done.measurements} == {"all_reduce", "alltoall"}


def test_ranks_that_timed_out_waiting_are_listed_and_end_the_check(
    check: Callable[..., Check],
) -> None:
    lines = [*table(footer=False), *(WAITED.format(i) for i in (0, 3, 1)), CRASHED]
    done = check(result(lines, None, reaped=True), operations=["all_reduce", "alltoall"])
    assert done.verdict is Verdict.FAIL
    assert (
        "all_reduce: rank 0 on node-0 gave up: RuntimeError: Timed out waiting"
        in done.reason.sentence
    )
    assert "(so did rank 1, 3) (after 3 sizes)" in done.reason.sentence
    assert "alltoall was not tried" in done.reason.sentence


def test_no_operation_is_tried_after_the_head_is_unreachable(check: Callable[..., Check]) -> None:
    asked = []

    def answer(operation: str) -> MpiResult:
        asked.append(operation)
        raise RemoteError("node-0 (10.0.0.1 port 222): connection timed out")

    done = check(answer, operations=["all_reduce", "all_gather", "alltoall"])
    assert (done.verdict, asked) == (Verdict.FAIL, ["all_reduce"])
    assert "connection timed out" in done.reason.sentence
    assert "alltoall was not tried" in done.reason.sentence


def test_a_machine_that_is_too_busy_ends_the_check_without_blame(
    check: Callable[..., Check],
) -> None:
    starved = result(table(footer=False), None, timed_out=True, waited_s=0.8)
    done = check(starved, operations=["all_reduce", "all_gather"])
    assert (done.verdict, done.suspects) == (Verdict.INCONCLUSIVE, ())
    assert done.reason.sentence.endswith(
        "all_gather was not tried: all_reduce could not be measured"
    ), done.reason


def test_collectives_with_one_remaining_node_are_not_run(check: Callable[..., Check]) -> None:
    done = check(result(table()), make_testbed(1))
    assert (done.verdict, done.reason.sentence) == (
        Verdict.NOT_RUN,
        "needs at least two nodes, 1 left",
    )


def test_a_cluster_of_one_node_with_gpus_is_swept(check: Callable[..., Check]) -> None:
    assert (
        check(
            result(table(sizes=GPU_SIZES)), make_testbed(1, gpus=4), nodes=1, sizes=GPU_SIZES
        ).verdict
        is Verdict.PASS
    )


def test_a_connection_that_broke_is_no_fault_of_the_cluster(check: Callable[..., Check]) -> None:
    done = check(result(table(footer=False), None, lost=True), operations=["all_reduce"])
    assert done.verdict is Verdict.INCONCLUSIVE
    assert (
        "all_reduce: the connection to the head node broke after 1 s (after 3 sizes)"
        in done.reason.sentence
    )


def test_a_node_that_died_is_named_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died = Suspect("node", "node-2", 1.0, uncoded("no route to host"))
    lost = "collective probe: node-0 rank 0: all_reduce: timed out"
    fake = FakeMpirun(
        lambda operation: (
            result([lost], status=1) if operation == "all_reduce" else result(table(3))
        )
    )
    monkeypatch.setattr(sweep, "mpirun", fake)
    monkeypatch.setattr(
        step,
        "roll_call",
        lambda run, bed: RollCall(
            bed.without({"node-2"}), (died,), (uncoded("node-2: no route to host"),)
        ),
    )
    swept = try_check(
        step.COLLECTIVES,
        CheckContext(make_run(tmp_path, operations=["all_reduce", "broadcast"]), make_testbed()),
    )
    assert swept.check.verdict is Verdict.FAIL
    (suspect,) = swept.check.suspects
    evidence = Reason.of("node-lost", operation="all_reduce", problem="no route to host")
    assert suspect == replace(died, evidence=evidence)
    assert swept.check.reason.sentence.endswith("all_reduce: timed out; node-2: no route to host")
    assert [node.name for node in swept.testbed.nodes] == ["node-0", "node-1", "node-3"]
    assert len(fake.argvs) == 2
    assert {m.conditions["ranks"] for m in swept.check.measurements} == {3}


def test_operations_after_the_loss_of_all_but_one_node_are_not_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died = Suspect("node", "node-1", 1.0, uncoded("no route to host"))
    fake = FakeMpirun(
        lambda operation: result(["collective probe: node-0 rank 0: timed out"], status=1)
    )
    monkeypatch.setattr(sweep, "mpirun", fake)
    monkeypatch.setattr(
        step,
        "roll_call",
        lambda run, bed: RollCall(
            bed.without({"node-1"}), (died,), (uncoded("node-1: no route to host"),)
        ),
    )
    swept = try_check(
        step.COLLECTIVES,
        CheckContext(make_run(tmp_path, 2, ["all_reduce", "broadcast"]), make_testbed(2)),
    )
    assert (
        "broadcast was not tried: needs at least two nodes, 1 left" in swept.check.reason.sentence
    )
    assert len(fake.argvs) == 1
