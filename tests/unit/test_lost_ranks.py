"""Which nodes are named for a rank that was killed, stood still or ran out of memory, by what
mpirun printed.
"""

from collections.abc import Sequence

import pytest

from seatrial.checks.lost_ranks import lost_ranks
from seatrial.model.testbed import Testbed
from seatrial.remote.mpi_result import MpiResult
from tests.unit.collectives.fake_mpirun import make_testbed

KILLED = "mpirun noticed that process rank {} with PID 4711 on node {} exited on signal {}."
RESET = (
    "training probe: node-{0} rank {0}: RuntimeError: Read error [10.0.0.{1}]:2732: "
    "Connection reset by peer. GLHF!"
)
CLOSED = (
    "training probe: node-{0} rank {0}: RuntimeError: Connection closed by peer [10.0.0.{1}]:2732"
)
SILENT = "training probe: node-{} rank {}: no word from {}"
OOM = (
    "training probe: node-{0} rank {0}: OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 2.00 GiB."
)
NO_ROOM = (
    "node-{0} rank {0}: cannot start: torch cannot be loaded by python3: libtorch.so: failed "
    "to map segment"
)
ECC = (
    "training probe: node-{0} rank {0}: AcceleratorError: CUDA error: uncorrectable ECC error "
    "encountered"
)
SHAPES = "training probe: node-0 rank 0: RuntimeError: shapes differ"
# Of Open MPI 4
LEFT = "The first process to do so was:\n\n  Process name: [[13201,1],{}]\n  Exit code:    {}"
LEFT_5 = (
    "The first process to do so was:\n\n   Process name: [prterun-vm-24439@1,{}]\n   Exit "
    "code:    {}"
)
EXITED = "srun: error: node-0: task 0: Exited with exit code 1"
SRUN_KILLED = "srun: error: node-{0}: task {0}: Killed"


def named(
    lines: Sequence[str], testbed: Testbed | None = None, *, timed_out: bool = False
) -> list[tuple[str, str | None, float]]:
    suspects = lost_ranks(
        MpiResult(1, tuple(lines), 1.0, timed_out=timed_out), testbed or make_testbed()
    )
    return [(suspect.name, suspect.evidence.code, suspect.confidence) for suspect in suspects]


def silent(*names: str) -> list[tuple[str, str, float]]:
    return [(name, "rank-silent", 0.9) for name in names]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([KILLED.format(1, "10.0.0.2", "9 (Killed)")], [("node-1", "rank-killed", 0.5)]),
        (
            [RESET.format(0, 2), KILLED.format(1, "10.0.0.2", "9 (Killed)")],
            [("node-1", "rank-killed", 0.5)],
        ),
        ([KILLED.format(1, "10.0.0.2", "7 (Bus error)")], [("node-1", "rank-killed", 0.5)]),
        ([KILLED.format(1, "10.0.0.2", "11 (Segmentation fault)")], []),
        ([KILLED.format(1, "10.0.0.2", "15 (Terminated)")], []),
        (
            [CLOSED.format(1, 3), KILLED.format(1, "10.0.0.2", "9 (Killed)")],
            [("node-2", "rank-lost", 0.5)],
        ),
        (LEFT.format(1, 1).splitlines(), [("node-1", "rank-left-in-silence", 0.5)]),
        (LEFT_5.format(2, 3).splitlines(), [("node-2", "rank-left-in-silence", 0.5)]),
        ([SHAPES, *LEFT.format(1, 1).splitlines()], []),
        ([RESET.format(1, 3), *LEFT.format(1, 1).splitlines()], [("node-2", "rank-lost", 0.5)]),
        ([SILENT.format(0, 0, "rank 1 on node-1")], silent("node-1")),
        ([SILENT.format(0, 0, "rank 1 on node-1, rank 3 on node-3")], silent("node-1", "node-3")),
        ([SILENT.format(1, 1, "rank 0, which keeps the store of the ranks")], silent("node-0")),
        ([SILENT.format(0, 0, "rank 1 on node-1, rank 2 on node-2, rank 3 on node-3")], []),
        ([RESET.format(0, 2), RESET.format(2, 2)], [("node-1", "rank-lost", 0.5)]),
        ([RESET.format(0, 2), RESET.format(2, 2), RESET.format(1, 1), RESET.format(3, 1)], []),
        ([RESET.format(0, 2), RESET.format(0, 3), RESET.format(0, 4)], []),
        ([CLOSED.format(0, 3), OOM.format(2)], [("node-2", "rank-out-of-memory", 0.5)]),
        ([CLOSED.format(0, 3), ECC.format(2)], [("node-2", "rank-device-error", 0.9)]),
        ([NO_ROOM.format(2)], [("node-2", "rank-out-of-memory", 0.5)]),
        ([NO_ROOM.format(i) for i in range(3)], []),
        (
            ["node-2 rank ?: cannot start: torch is missing for python3: No module named 'torch'"],
            [],
        ),
        ([OOM.format(2)], []),
        ([OOM.format(i) for i in range(4)], []),
        ([OOM.format(0), OOM.format(1), OOM.format(2), CLOSED.format(3, 2)], []),
        (
            [ECC.format(0), ECC.format(1), CLOSED.format(3, 2)],
            [(f"node-{i}", "rank-device-error", 0.9) for i in (0, 1)],
        ),
        ([SRUN_KILLED.format(3)], [("node-3", "rank-killed", 0.5)]),
        (["srun: error: node-3: task 3: Out Of Memory"], [("node-3", "rank-oom-killed", 0.5)]),
        (["srun: error: node-3: tasks 0-3: Killed"], []),
        ([SRUN_KILLED.format(3), SRUN_KILLED.format(0)], [("node-3", "rank-killed", 0.5)]),
        (
            [ECC.format(0), CLOSED.format(2, 1), EXITED, SRUN_KILLED.format(1)],
            [("node-0", "rank-device-error", 0.9)],
        ),
        ([EXITED, SRUN_KILLED.format(1)], []),
        (
            [
                "slurmstepd: error: *** STEP 7.0 CANCELLED ***",
                "srun: Terminating StepId=7.0",
                SRUN_KILLED.format(1),
            ],
            [],
        ),
        ([SHAPES, SRUN_KILLED.format(1)], []),
        ([SHAPES, CLOSED.format(1, 3)], []),
        (["node-2 rank 2: cannot start: torch sees 0 GPUs", CLOSED.format(1, 3)], []),
        ([NO_ROOM.format(2) + " from shared object: Operation not permitted"], []),
        (["srun: error: elsewhere: task 99: Killed"], []),
        ([KILLED.format(99, "../../etc", "9 (Killed)")], []),
        ([SHAPES], []),
        ([], []),
    ],
)
def test_the_node_of_a_lost_rank_is_named(
    lines: list[str], expected: list[tuple[str, str, float]]
) -> None:
    assert named(lines) == expected


def test_ranks_that_were_ended_at_the_time_limit_blame_none() -> None:
    for line in (
        KILLED.format(1, "10.0.0.2", "9 (Killed)"),
        SRUN_KILLED.format(1),
        CLOSED.format(1, 3),
    ):
        assert named([line], timed_out=True) == []


def test_a_list_of_silent_ranks_that_may_be_cut_names_nobody() -> None:
    """Of 32 ranks on 4 nodes, those of three may be silent, and the list of them ends with the
    eighth.
    """
    silent = ", ".join(f"rank {rank} on node-1" for rank in range(8, 16))
    assert named([SILENT.format(0, 0, silent)], make_testbed(gpus=8)) == []
    fewer = ", ".join(f"rank {rank} on node-1" for rank in range(8, 15))
    assert named([SILENT.format(0, 0, fewer)], make_testbed(gpus=8)) == [
        ("node-1", "rank-silent", 0.9)
    ]


def test_rank_and_device_are_in_the_evidence() -> None:
    testbed = make_testbed(2, gpus=4)
    (suspect,) = lost_ranks(
        MpiResult(1, (KILLED.format(6, "10.0.0.2", "9 (Killed)"),), 1.0), testbed
    )
    assert (suspect.kind, suspect.name) == ("node", "node-1")
    assert suspect.evidence.sentence == "rank 6 (gpu-2) was killed by signal 9 (killed)"


def test_a_node_of_several_ranks_that_lost_one_is_named_by_the_rank() -> None:
    """The other ranks of the node speak, so the connection that broke names nobody."""
    testbed = make_testbed(2, gpus=2)
    lines = ["training probe: node-1 rank 3: RuntimeError: Connection closed by peer [10.0.0.2]:77"]
    assert named(lines, testbed) == []
    assert named([*lines, KILLED.format(2, "10.0.0.2", "9 (Killed)")], testbed) == [
        ("node-1", "rank-killed", 0.5)
    ]


def test_one_node_alone_is_named_for_a_rank_that_is_killed() -> None:
    testbed = make_testbed(1, gpus=2)
    assert named([KILLED.format(1, "10.0.0.1", "9 (Killed)")], testbed) == [
        ("node-0", "rank-killed", 0.5)
    ]
