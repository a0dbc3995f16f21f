"""Step `training`: train a model over every rank; does it learn, and do all ranks end alike?"""

import logging
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import (
    TORCH,
    CheckContext,
    CheckType,
    Problem,
    Repeated,
    StepResult,
    TimeLeft,
    log_repeat,
    unused_label,
    was_cut,
)
from seatrial.checks.failures import classify_failure
from seatrial.checks.lost_ranks import node_of
from seatrial.checks.metrics import TRAINING_METRICS, Doubt
from seatrial.checks.training.llama import train_llama
from seatrial.checks.training.on_ranks import NAME, on_ranks
from seatrial.checks.training.own import train_own
from seatrial.checks.training.parts import MOST_RANKS, RankFigures, conclude_end, incomplete
from seatrial.checks.training.result import (
    StepEvent,
    TrainingResult,
    measured,
    problem,
    read_event,
    read_training_result,
    suspects,
)
from seatrial.checks.training.section import Training, plan_training
from seatrial.checks.training.stuck import conclude_without_end
from seatrial.config.run import Run
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text, event_in
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import from_rank_0, rank_of
from seatrial.text.words import fraction, quantity

log = logging.getLogger("seatrial.training")

_SUMS = "torch-all_reduce"  # the log's name
_LOGGED_STEPS = 10  # number of steps of a training that are logged


class RankSums(RankFigures):
    """The result of one rank: `wrong` elements over all rounds, the first of them in round
    `first_wrong`.
    """

    wrong: int = Field(ge=0)
    first_wrong: int | None = Field(ge=0)


class Sums(NodeAnswer):
    """The last event of seatrial/remote/probes/all_reduce.py."""

    event: Literal["all_reduce"]
    rounds: int = Field(ge=1)
    elements: int = Field(ge=1)
    backend: Text
    ranks: list[RankSums] = Field(max_length=MOST_RANKS)


def read_sums(line: str) -> Sums | None:
    """Return the event in a line of output, ignoring text before it; None if there is no complete
    one.
    """
    return event_in(line, Sums, "all_reduce")


def conclude_sums(testbed: Testbed, result: MpiResult) -> Check:
    """Return the check after one mpirun of the probe; it passes if all elements on all ranks were
    right.
    """
    sums = next((sums for line in from_rank_0(result.lines) if (sums := read_sums(line))), None)
    if sums is None:
        return Check(NAME, *classify_failure(result, began=False), result.seconds)
    fault = incomplete(result, sums.ranks, testbed.world_size)
    if fault:
        return Check(NAME, *fault, result.seconds)
    ranks = len(sums.ranks)
    bad = [rank for rank in sums.ranks if rank.wrong]
    if not bad:
        right = Reason.of("sums-right", rounds=sums.rounds, elements=sums.elements, ranks=ranks)
        return Check(NAME, Verdict.PASS, right, result.seconds)
    wrong = sum(rank.wrong for rank in bad)
    first = min(rank.first_wrong or 0 for rank in bad)
    reason = Reason.of(
        "sums-wrong", wrong=wrong, bad=len(bad), ranks=ranks, first=first, rounds=sums.rounds
    )
    suspects = []
    # If most ranks received wrong data, the sender is unknown
    for rank in bad if 2 * len(bad) < ranks else ():
        evidence = Reason.of(
            "rank-sums-wrong", rank=rank.rank, wrong=rank.wrong, first=rank.first_wrong
        )
        suspects.append(Suspect("node", node_of(rank.rank, rank.host, testbed), 0.9, evidence))
    return Check(NAME, Verdict.CORRUPT, reason, result.seconds, suspects=tuple(suspects))


def training(context: CheckContext) -> StepResult:
    """Train over all remaining ranks, after checking the sums on which training relies, if the
    suite has them.
    """
    run = context.run
    testbed = context.testbed
    section = context.section(Training)
    sums = _sum(run, testbed, section) if section.all_reduce_rounds else None
    if sums and not sums.passed:
        return StepResult(sums, testbed)
    check = _train(run, testbed, section, NAME)
    if sums and check.passed:
        check = replace(
            check, reason=join((check.reason, sums.reason)), seconds=check.seconds + sums.seconds
        )
    return StepResult(check, testbed)


def _sum(run: Run, testbed: Testbed, settings: Training) -> Check:
    """Run the sums over all ranks, and check each element."""
    check = on_ranks(
        run,
        testbed,
        settings.timeout_s,
        _SUMS,
        "all_reduce",
        ("--rounds", str(settings.all_reduce_rounds)),
        is_done=lambda line: read_sums(line) is not None,
        conclude=lambda result: conclude_sums(testbed, result),
    )
    log.info("%s", check.reason)
    return check


def _train(run: Run, testbed: Testbed, settings: Training, label: str) -> Check:
    """Run one training; `label` names its log."""
    workload = settings.workload(gpus=testbed.has_gpus)
    if workload.command:
        return train_own(run, testbed, workload, settings.timeout_s, label)
    if workload.model == "llama":
        return train_llama(run, testbed, workload, settings.timeout_s, label)
    return on_ranks(
        run,
        testbed,
        settings.timeout_s,
        label,
        "training",
        workload.arguments(),
        on_line=lambda line: _log_step(line, workload.steps),
        is_done=lambda line: isinstance(read_event(line), TrainingResult),
        conclude=lambda result: conclude(run, testbed, settings, result),
    )


def conclude(run: Run, testbed: Testbed, settings: Training, result: MpiResult) -> Check:
    """Return the check after one mpirun of the probe. Pure.

    The probe exits with a status of its own if the numbers are wrong, so a summary counts before
    the exit status.
    """
    trained = read_training_result(from_rank_0(result.lines), testbed)
    if trained is None:
        began = any(read_event(line) for line in from_rank_0(result.lines))
        return conclude_without_end(testbed, result, began=began)
    fault = incomplete(result, trained.ranks, testbed.world_size) or problem(
        trained, settings.min_loss_drop
    )
    step_ms = statistics.median(trained.step_time_ms) if trained.step_time_ms else 0.0
    good = Reason.of(
        "training-learns",
        fell=fraction(trained.loss_drop or 0),
        steps=len(trained.losses),
        took=quantity(step_ms, "ms"),
        ranks=len(trained.ranks),
    )
    workload = settings.workload(gpus=testbed.has_gpus)
    measurements = measured(trained, testbed, run.cluster, workload)
    return conclude_end(result, fault, good, measurements, suspects(trained))


def repeat_training(
    context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft
) -> None:
    """Run the whole training again, since its results are of all steps."""
    run = context.run
    section = context.section(Training)
    log_repeat(NAME, doubts)
    limit_s = left.limit(section.timeout_s)
    began = time.monotonic()
    shortened = section.model_copy(update={"timeout_s": limit_s})
    check = _train(run, context.testbed, shortened, unused_label(run.logs, NAME))
    repeated.measurements += check.measurements
    repeated.suspects += check.suspects
    repeated.over = bool(check.suspects) and check.verdict is Verdict.FAIL
    cut = (
        check.verdict is Verdict.FAIL
        and not check.suspects
        and was_cut(began, limit_s, section.timeout_s)
    )
    repeated.add_outcome(Problem(Verdict.INCONCLUSIVE if cut else check.verdict, check.reason))


def _log_step(line: str, steps: int) -> None:
    """Log some of the steps that rank 0 prints."""
    event = read_event(line) if rank_of(line) == 0 else None
    if not isinstance(event, StepEvent) or event.step % max(1, steps // _LOGGED_STEPS):
        return
    shown = "loss is not finite"
    if event.loss is not None:
        shown = f"loss {quantity(event.loss, 'nats')}  {quantity(event.step_time_ms, 'ms')}"
    log.info("step %3d  %s", event.step, shown)


TRAINING = CheckType(
    name=NAME,
    section=Training,
    description="a training over all ranks",
    run=training,
    after=CONNECTIVITY.name,
    metrics=TRAINING_METRICS,
    needs=lambda gpus: (TORCH,),
    least_ranks=1,
    repeat=repeat_training,
    logs=(_SUMS,),
    plan=plan_training,
)
