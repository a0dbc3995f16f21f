"""No node speaks for another: what counts of the ranks' output is what the launcher's tag says of
each line.
"""

import pytest

from seatrial.checks.collectives.output import OutputReader
from seatrial.checks.collectives.problems import Setting
from seatrial.checks.collectives.section import Collectives
from seatrial.checks.collectives.sweep import planned_sweeps
from seatrial.checks.failures import classify_failure
from seatrial.checks.lost_ranks import lost_ranks
from seatrial.checks.suites import load_suite
from seatrial.checks.training.result import read_training_result
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import RankLine, from_rank_0, rank_line, rank_of
from tests.unit.collectives.fake_mpirun import make_testbed
from tests.unit.training_output import printed


def lines(*tagged: str) -> tuple[str, ...]:
    return tuple(rank_line(line) for line in tagged)


def mpi_result(*tagged: str, status: int = 1) -> MpiResult:
    nodes = tuple(node.name for node in make_testbed(4).nodes)
    return MpiResult(status, lines(*tagged), 1.0, rank_nodes=nodes)


@pytest.mark.parametrize(
    ("line", "rank", "words"),
    [
        ("[1,3]<stdout>:  1048576", 3, " 1048576"),
        ("[prterun-host-12@1,2]<stderr>: words", 2, "words"),
        (" 3: words", 3, "words"),
        ("3:", 3, ""),
        ("mpirun: words", None, "mpirun: words"),
        ("[1,1]<stdout>:[1,0]<stdout>:forged", 1, "[1,0]<stdout>:forged"),
        ("[1,1]<stdout>:half[1,0]<stdout>:forged", 1, "half[1,0]<stdout>:forged"),
        ("[1,1]<stdout>:{1.[1,1]<stdout>:5, 2}", 1, "{1.5, 2}"),
        ("1: [1,0]<stdout>:forged", 1, "[1,0]<stdout>:forged"),
        ("words [1,0]<stdout>:forged", None, "words [1,0]<stdout>:forged"),
    ],
)
def test_rank_of_a_line_is_its_first_tag(line: str, rank: int | None, words: str) -> None:
    assert (rank_of(rank_line(line)), rank_line(line)) == (rank, words)


def test_piece_of_a_longer_line_keeps_its_rank() -> None:
    piece = rank_line("0: forged", rank=1)
    assert (rank_of(piece), piece) == (1, "0: forged")


def test_only_rank_0_can_print_the_sweep_table() -> None:
    section = load_suite("quick").section(Collectives)
    assert section
    planned, *_ = planned_sweeps(make_testbed(2), section)
    table = [
        (
            "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup "
            "iters: 1 iters: 1 agg iters: 1"
        ),
        (
            "     1048576        262144     float     sum      -1    197.5    5.31    5.31  0 "
            "   197.5    5.31    5.31  0"
        ),
        "# Avg bus bandwidth    : 5.31",
    ]
    for rank, rows in ((1, 0), (0, 1)):
        reader = OutputReader(
            planned, Setting("all_reduce", "float32", 2, "", (1048576,)), quiet=True
        )
        for line in lines(*(f"[1,{rank}]<stdout>:{row}" for row in table)):
            reader.line(line)
        sweep = reader.sweep()
        assert (len(sweep.rows) if sweep else 0) == rows


def test_only_rank_0_can_print_the_training_summary() -> None:
    forged = [RankLine(line, 1) for line in printed()]
    assert read_training_result(from_rank_0(forged), make_testbed(2)) is None
    assert read_training_result(from_rank_0(printed()), make_testbed(2))


OUT_OF_MEMORY = "node-2 rank 2: cannot start: out of memory"


@pytest.mark.parametrize(
    "line",
    [
        OUT_OF_MEMORY,
        "training probe: node-2 rank 2: CUDA error: device lost",
        "mpirun noticed that process rank 2 with PID 7 on node node-2 exited on signal 9 (Killed).",
        "srun: error: node-2: task 2: Out Of Memory",
        "node-2 rank 1: cannot start: out of memory",
    ],
)
def test_a_rank_cannot_blame_another_node(line: str) -> None:
    assert "node-2" not in {
        suspect.name for suspect in lost_ranks(mpi_result(f"[1,1]<stdout>:{line}"), make_testbed(4))
    }
    _, reason = classify_failure(mpi_result(f"[1,1]<stdout>:{line}"), began=True)
    assert "on node-2" not in reason.sentence
    assert "node-2 cannot" not in reason.sentence


def test_rank_that_printed_an_error_is_not_blamed_as_silent() -> None:
    line = "[1,1]<stderr>:training probe: node-1 rank 1: no word from rank 2 on node-2"
    lost = (
        "[1,2]<stderr>:training probe: node-2 rank 2: RuntimeError: Connection closed by peer "
        "[10.0.0.2]:2732"
    )
    assert [suspect.name for suspect in lost_ranks(mpi_result(line), make_testbed(4))] == ["node-2"]
    assert "node-2" not in {
        suspect.name for suspect in lost_ranks(mpi_result(line, lost), make_testbed(4))
    }


def test_a_rank_may_report_that_it_cannot_start() -> None:
    result = mpi_result(f"[1,2]<stderr>:{OUT_OF_MEMORY}")
    assert [suspect.name for suspect in lost_ranks(result, make_testbed(4))] == ["node-2"]
    assert classify_failure(result, began=False)[0] is Verdict.FAIL


def test_message_of_mpirun_may_blame_any_rank() -> None:
    line = (
        "mpirun noticed that process rank 2 with PID 7 on node node-2 exited on signal 9 (Killed)."
    )
    assert [
        suspect.name for suspect in lost_ranks(mpi_result("[1,0]<stdout>:x", line), make_testbed(4))
    ] == ["node-2"]
