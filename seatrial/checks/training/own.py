"""The training of the user's own command: run it on every rank as torchrun does, and judge
its log.
"""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import replace

from seatrial.checks.failures import classify_failure, missing_reports
from seatrial.checks.lost_ranks import lost_ranks
from seatrial.checks.training.on_ranks import NAME, on_ranks
from seatrial.checks.training.section import Workload
from seatrial.config.run import Run
from seatrial.model.measurement import Conditions, Subject
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.readers.flight_recorder import late_ranks, read_watchdog
from seatrial.readers.report import check_of
from seatrial.readers.training import measurements_of, read_training
from seatrial.readers.training_steps import read_steps
from seatrial.remote.mpi_result import MpiResult


def train_own(
    run: Run, testbed: Testbed, workload: Workload, timeout_s: float, label: str
) -> Check:
    """Run the command on every remaining rank."""
    return on_ranks(
        run,
        testbed,
        timeout_s,
        label,
        "torchrun_env",
        (),
        is_done=lambda _: False,
        conclude=lambda result: conclude_own(run, testbed, workload, result),
        command=("--", *workload.command),
    )


def conclude_own(run: Run, testbed: Testbed, workload: Workload, result: MpiResult) -> Check:
    """Return the check after one run of the command. Pure."""
    # The rank that logs most steps: rank 0 of most programs, the last one of Megatron-LM.
    lines = max(result.by_rank().values(), key=lambda lines: len(read_steps(lines)), default=[])
    steps = read_steps(lines)
    witness = missing_reports(result)
    if witness:
        return Check(NAME, *witness, result.seconds)
    report = read_training(lines)
    if not result.ok:
        verdict, reason = classify_failure(result, began=bool(steps))
        awaited = late_ranks(read_watchdog(result.lines))
        if awaited:
            reason = join((Reason.of("training-hangs", late=awaited[0].reason), reason))
        return Check(NAME, verdict, reason, result.seconds, suspects=lost_ranks(result, testbed))
    if report is None or len(steps) < workload.steps:
        reason = Reason.of(
            "training-log-short", steps=len(steps), wanted=workload.steps, log=str(workload.log)
        )
        return Check(NAME, Verdict.FAIL, reason, result.seconds)
    check = check_of(report, NAME)
    conditions: Conditions = {
        "ranks": testbed.world_size,
        "command": digest_of(workload.command),
    }
    subject = Subject("cluster", run.cluster.name)
    measurements = (
        replace(each, conditions=conditions) for each in measurements_of(steps, subject)
    )
    return replace(check, seconds=result.seconds, measurements=tuple(measurements))


def digest_of(command: Sequence[str]) -> str:
    """Return a digest that identifies the command, which itself may hold secrets."""
    return hashlib.sha256(shlex.join(command).encode()).hexdigest()[:12]
