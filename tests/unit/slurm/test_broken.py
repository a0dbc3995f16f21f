"""What srun prints when ranks do not start, as the verdict of a check."""

import pytest

from seatrial.checks.failures import classify_failure
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import MpiResult


@pytest.mark.parametrize(
    ("lines", "verdict", "words"),
    [
        (
            ("slurmstepd-n1: error: execve(): all_reduce_perf: No such file or directory",
             "srun: error: n1: task 1: Exited with exit code 2"),
            Verdict.NOT_RUN, "executable missing",
        ),
        (
            ("srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files",
             "srun: error: cannot find mpi plugin for mpi/pmix",
             "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types"),
            Verdict.NOT_RUN, "MPI plugin of srun missing (pmix)",
        ),
        (
            ("srun: error: Unable to confirm allocation for job 5: Invalid job id specified",),
            Verdict.INCONCLUSIVE, "srun could not start the job",
        ),
        (("srun: error: Node failure on n1",), Verdict.FAIL, "a node failed under Slurm on n1"),
    ],
)  # fmt: skip
def test_what_srun_prints_before_the_ranks_begin(lines: tuple[str, ...], verdict: Verdict, words: str) -> None:
    came_to, reason = classify_failure(MpiResult(1, lines, 1.0), began=False)
    assert (came_to, words in reason) == (verdict, True), reason
