"""Step `training`: train a model over every rank; does it learn, and do all ranks end alike?"""

import logging
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from seatrial.checks.collectives.sweep import rendezvous_argv
from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import (
    TORCH,
    CheckContext,
    CheckType,
    Doubt,
    Metric,
    Repeated,
    StepResult,
    TimeLeft,
    log_repeat,
    unused_label,
    was_cut,
)
from seatrial.checks.failures import classify_failure, node_of
from seatrial.checks.training.llama import train_llama
from seatrial.checks.training.on_ranks import NAME, on_ranks
from seatrial.checks.training.result import (
    measured,
    problem,
    read_event,
    read_training_result,
    suspects,
)
from seatrial.checks.training.section import Training, plan_training
from seatrial.config.run import Run
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text, read_answer
from seatrial.remote.mpi import MpiResult
from seatrial.remote.ranks import from_rank_0, is_from
from seatrial.text.words import fraction, quantity

log = logging.getLogger("seatrial.training")

_SUMS = "torch-all_reduce"  # the log's name
_LOGGED_STEPS = 10  # how many of a run's steps are logged
_EVENT = '{"event": "all_reduce"'


class RankSums(NodeAnswer):
    """Sums of one rank: `wrong` elements over all rounds, the first in round `first_wrong`."""

    rank: int = Field(ge=0)
    host: Text
    wrong: int = Field(ge=0)
    first_wrong: int | None = Field(ge=0)


class Sums(NodeAnswer):
    """The event that seatrial/remote/probes/all_reduce.py ends with."""

    event: Literal["all_reduce"]
    rounds: int = Field(ge=1)
    elements: int = Field(ge=1)
    backend: Text
    ranks: list[RankSums] = Field(max_length=100_000)


def read_sums(line: str) -> Sums | None:
    """The event in a line of output, whatever stands before it; None if it has no whole one."""
    start = line.find(_EVENT)
    if start < 0:
        return None
    try:
        return read_answer(Sums, line[start:])
    except ValueError:
        return None


def conclude_sums(testbed: Testbed, result: MpiResult) -> Check:
    """The check after one mpirun of the probe; it passes if every element of every rank was right."""
    sums = next((sums for line in from_rank_0(result.lines) if (sums := read_sums(line))), None)
    if sums is None:
        verdict, reason = classify_failure(result, began=False)
        return Check(NAME, verdict, reason, result.seconds)
    ranks, bad = len(sums.ranks), [rank for rank in sums.ranks if rank.wrong]
    if ranks != testbed.world_size:
        reason = Reason.of("training-ranks-missing", ranks=ranks, world_size=testbed.world_size)
        return Check(NAME, Verdict.FAIL, reason, result.seconds)
    if not bad:
        right = f"all_reduce: {sums.rounds} sums of {sums.elements:,} elements are right on all {ranks} ranks"
        return Check(NAME, Verdict.PASS, right, result.seconds)
    wrong, first = sum(rank.wrong for rank in bad), min(rank.first_wrong or 0 for rank in bad)
    reason = Reason.of("sums-wrong", wrong=wrong, bad=len(bad), ranks=ranks, first=first, rounds=sums.rounds)
    suspects = []
    for rank in bad if 2 * len(bad) < ranks else ():  # where most received it, its sender is unknown
        evidence = Reason.of("rank-sums-wrong", rank=rank.rank, wrong=rank.wrong, first=rank.first_wrong)
        suspects.append(Suspect("node", node_of(rank.rank, rank.host, testbed), 0.9, evidence))
    return Check(NAME, Verdict.CORRUPT, reason, result.seconds, suspects=tuple(suspects))


def training(context: CheckContext) -> StepResult:
    """Train over every rank that is left, after sums that training can rely on, where the suite has them."""
    run, testbed, section = context.run, context.testbed, context.section(Training)
    sums = _sum(run, testbed, section) if section.all_reduce_rounds else None
    if sums and sums.verdict is not Verdict.PASS:
        return StepResult(sums, testbed)
    check = _train(run, testbed, section, NAME)
    if sums and check.verdict is Verdict.PASS:
        check = replace(check, reason=join((check.reason, sums.reason)), seconds=check.seconds + sums.seconds)
    return StepResult(check, testbed)


def _sum(run: Run, testbed: Testbed, settings: Training) -> Check:
    """The sums of all ranks, each element checked."""
    probe = [testbed.python, f"{testbed.workdir}/all_reduce.py", "--device", "cuda" if testbed.has_gpus else "cpu"]
    rounds = ("--rounds", str(settings.all_reduce_rounds))
    argv = [*probe, *rounds, *rendezvous_argv(run, testbed, _SUMS, settings.timeout_s)]
    check = on_ranks(
        run,
        testbed,
        settings.timeout_s,
        _SUMS,
        argv,
        is_done=lambda line: read_sums(line) is not None,
        conclude=lambda result: conclude_sums(testbed, result),
    )
    log.info("%s", check.reason)
    return check


def _train(run: Run, testbed: Testbed, settings: Training, label: str) -> Check:
    """One training, whose log has that label."""
    workload = settings.workload(gpus=testbed.has_gpus)
    if workload.model == "llama":
        return train_llama(run, testbed, workload, settings.timeout_s, label)
    probe = [testbed.python, f"{testbed.workdir}/training.py", "--device", "cuda" if testbed.has_gpus else "cpu"]
    return on_ranks(
        run,
        testbed,
        settings.timeout_s,
        label,
        [*probe, *workload.arguments(), *rendezvous_argv(run, testbed, label, settings.timeout_s)],
        on_line=lambda line: _log_step(line, workload.steps),
        is_done=lambda line: (read_event(line) or {}).get("event") == "summary",
        conclude=lambda result: conclude(run, testbed, settings, result),
    )


def conclude(run: Run, testbed: Testbed, settings: Training, result: MpiResult) -> Check:
    """The check after one mpirun of the probe. Pure.

    The probe leaves with a status of its own when the numbers are wrong, so a summary counts before the exit status.
    """
    trained = read_training_result(from_rank_0(result.lines), testbed)
    if trained is None:
        began = any(read_event(line) for line in from_rank_0(result.lines))
        verdict, reason = classify_failure(result, began=began)
        return Check(NAME, verdict, reason, result.seconds)
    problem_found = problem(trained, testbed.world_size, settings.min_loss_drop)
    if problem_found is None and not result.ok:
        problem_found = classify_failure(result, began=True)
    step_ms = statistics.median(trained.step_time_ms) if trained.step_time_ms else 0.0
    fell, took = fraction(trained.loss_drop or 0), quantity(step_ms, "ms")
    learned = f"the loss fell by {fell} in {len(trained.losses)} steps of {took}"
    good = f"{learned}, and all {len(trained.ranks)} ranks end with the same parameters"
    verdict, reason = problem_found or (Verdict.PASS, good)
    return Check(
        NAME,
        verdict,
        reason,
        result.seconds,
        tuple(measured(trained, testbed, run.cluster, settings.workload(gpus=testbed.has_gpus))),
        suspects=tuple(suspects(trained)) if verdict is Verdict.CORRUPT else (),
    )


def repeat_training(context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft) -> None:
    """The whole training once more: its figures are of all its steps."""
    run, section = context.run, context.section(Training)
    log_repeat(NAME, doubts)
    limit_s, began = left.limit(section.timeout_s), time.monotonic()
    shortened = section.model_copy(update={"timeout_s": limit_s})
    check = _train(run, context.testbed, shortened, unused_label(run.logs, NAME))
    repeated.measurements += check.measurements
    repeated.suspects += check.suspects
    repeated.over = bool(check.suspects) and check.verdict is Verdict.FAIL
    cut = check.verdict is Verdict.FAIL and not check.suspects and was_cut(began, limit_s, section.timeout_s)
    repeated.broke(Verdict.INCONCLUSIVE if cut else check.verdict, check.reason)


def _log_step(line: str, steps: int) -> None:
    event = read_event(line) if is_from(line, 0) else None
    if not event or event["event"] != "step" or event["step"] % max(1, steps // _LOGGED_STEPS):
        return
    loss = event["loss"]
    shown = "loss is not finite"
    if loss is not None:
        shown = f"loss {quantity(loss, 'nats')}  {quantity(event['step_time_ms'], 'ms')}"
    log.info("step %3d  %s", event["step"], shown)


TRAINING = CheckType(
    name=NAME,
    section=Training,
    description="no training when unset",
    run=training,
    after=CONNECTIVITY.name,
    metrics={
        "loss": Metric("nats", "the last loss, smoothed; recorded, not judged"),
        "loss_drop": Metric("", "the fraction of the first loss that training took off"),
        "throughput": Metric("samples/s", "over all ranks"),
        "step_time": Metric("ms", "one step, of the cluster and of each node"),
        "step_time_p99": Metric("ms", "the step that 99 of 100 are no slower than; recorded, not judged"),
        "model_flops": Metric("TFLOP/s", "of each rank, by counted operations; recorded, not judged"),
        "mfu": Metric("", "model_flops as a fraction of the GPU's data sheet; recorded, not judged"),
        "communication_share": Metric(
            "", "the fraction of a forward and backward pass that is gone without communication; recorded, not judged"
        ),
        "inference": Metric("samples/s", "over all ranks, where the suite has inference_steps"),
        "token_rate": Metric("tokens/s", "of each GPU, of model: llama"),
        "data_time": Metric("ms", "one step's wait for data, of each node's slowest rank; recorded, not judged"),
        "forward_time": Metric("ms", "one step's forward pass, likewise; recorded, not judged"),
        "backward_time": Metric("ms", "one step's backward pass, likewise; recorded, not judged"),
        "optimizer_time": Metric("ms", "one step's optimizer, likewise; recorded, not judged"),
        "waiting_time": Metric("ms", "the part of a step in which a rank waits for others; recorded, not judged"),
        "alone_time": Metric("ms", "one step of a small decoder that each rank trains alone; judged on GPUs alone"),
        "memory_peak": Metric("GB", "the most of a GPU's memory that the training takes; recorded, not judged"),
        "checkpoint_write": Metric("GB/s", "a checkpoint written by all ranks (1e9 bytes); recorded, not judged"),
        "checkpoint_read": Metric("GB/s", "a checkpoint read past the page cache; recorded, not judged"),
        "checkpoint_blocked": Metric("s", "how long a checkpoint holds the training up; recorded, not judged"),
        "goodput": Metric("", "productive time over the time that an interrupted training has its ranks"),
        "compute_time": Metric("ms", "one step of a node before it waits for others; judged on GPUs alone"),
    },
    needs=lambda gpus: (TORCH,),
    least_ranks=1,
    repeat=repeat_training,
    repeats_whole=True,
    logs=(_SUMS,),
    plan=plan_training,
)
