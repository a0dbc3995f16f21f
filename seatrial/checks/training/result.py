"""The result of a training: a verdict, measurements, and the odd rank. Pure.

Measurements, conditions ranks, batch_per_rank and those of the suite's Workload. Of the cluster: loss (nats, the last
one, smoothed; recorded only, with every step's loss as samples) and loss_drop (fraction of the first loss), both also
by steps, because more steps learn more, and by a learning rate that the suite sets; throughput and inference (samples/s
over all ranks) and step_time (ms); recorded only, step_time_p99, model_flops, mfu and communication_share. Of each
node, its slowest rank: step_time and compute_time (ms). Ranks wait for each other in every step, so only compute_time,
which ends before they do, shows a slow node. On CPUs that compete it is recorded only.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, FiniteFloat

from seatrial.catalog import peak_tflops
from seatrial.checks.failures import node_of
from seatrial.checks.training.parts import RankFigures
from seatrial.checks.training.section import Workload
from seatrial.config.cluster import Cluster
from seatrial.model.measurement import ConditionValue, Measurement, Subject, finite
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text, read_answer
from seatrial.text.words import fraction, number, quantity

Finite = Annotated[float | None, AfterValidator(finite)]  # None where it is NaN or infinite


class _StepEvent(NodeAnswer):
    event: Literal["step"]
    step: int = Field(ge=0)
    loss: Finite
    step_time_ms: Finite


class Rank(RankFigures):
    """One rank's end: its host, the SHA-256 of its parameters, and whether its own numbers stayed finite."""

    rank: int = Field(ge=0)
    host: Text
    checksum: Text
    finite: bool
    step_time_ms_median: Finite
    compute_ms_median: Finite


class TrainingResult(NodeAnswer):
    """The summary of the training probe, and the loss of each step. Numbers that are not finite are None."""

    event: Literal["summary"]
    steps: int = Field(ge=0)
    world_size: int = Field(ge=1)
    first_loss: Finite
    last_loss: Finite
    throughput_samples_s: Finite
    flops_per_sample: Finite = None
    communication_share: Finite = None
    inference_samples_s: Finite = None
    step_time_ms: list[FiniteFloat]
    ranks: list[Rank] = Field(max_length=100_000)
    losses: tuple[float | None, ...] = Field((), exclude=True)

    @property
    def loss_drop(self) -> float | None:
        """The fraction of the first loss that training took off."""
        if self.first_loss is None or self.last_loss is None or self.first_loss <= 0:
            return None
        return 1 - self.last_loss / self.first_loss


def read_event(line: str) -> dict[str, Any] | None:
    """Return the event in a line of output, whatever stands before it.

    None for other lines, and for what is no whole event. Numbers that are not finite are None.
    """
    start = line.find('{"event"')
    if start < 0:
        return None
    model = TrainingResult if line.startswith('{"event": "summary"', start) else _StepEvent
    try:
        return read_answer(model, line[start:]).model_dump()
    except ValueError:
        return None


def read_training_result(lines: Iterable[str], testbed: Testbed) -> TrainingResult | None:
    """Read the result from the probe's output, with the ranks' nodes as their hosts; None without a summary."""
    events = [event for line in lines if (event := read_event(line))]
    summary = next((event for event in reversed(events) if event["event"] == "summary"), None)
    if summary is None:
        return None
    losses = tuple(event.get("loss") for event in events if event["event"] == "step")
    result = TrainingResult.model_validate({**summary, "losses": losses})
    ranks = [rank.model_copy(update={"host": node_of(rank.rank, rank.host, testbed)}) for rank in result.ranks]
    return result.model_copy(update={"ranks": ranks})


def problem(result: TrainingResult, world_size: int, min_loss_drop: float) -> tuple[Verdict, Reason] | None:
    """Return the first problem of a complete result, if any."""
    if len(result.losses) < max(1, result.steps):
        return Verdict.INCONCLUSIVE, Reason.of("training-steps-missing", steps=result.steps, seen=len(result.losses))
    if len(result.ranks) != world_size:
        return Verdict.FAIL, Reason.of("training-ranks-missing", ranks=len(result.ranks), world_size=world_size)
    bad = [rank for rank in result.ranks if not rank.finite]
    if bad or result.last_loss is None or result.first_loss is None:
        step = next((i for i, loss in enumerate(result.losses) if loss is None), None)
        value = f"in the loss of step {step}" if step is not None else "in the parameters"
        first = f", first on rank {bad[0].rank} ({bad[0].host})" if len(bad) == 1 else ""
        return Verdict.CORRUPT, Reason.of("training-not-finite", value=value, first=first)
    if len({rank.checksum for rank in result.ranks}) > 1:
        odd = ", ".join(f"rank {rank.rank} on {rank.host}" for rank in _odd(result.ranks)) or "no majority agrees"
        return Verdict.CORRUPT, Reason.of("parameters-differ", odd=odd)
    drop = result.loss_drop or 0.0
    if drop < min_loss_drop:
        fell = f"the loss went from {number(result.first_loss)} to {quantity(result.last_loss, 'nats')}"
        return Verdict.FAIL, Reason.of(
            "learned-too-little", fell=fell, drop=fraction(drop), min_loss_drop=fraction(min_loss_drop)
        )
    return None


def suspects(result: TrainingResult) -> Iterator[Suspect]:
    """Yield the nodes of ranks whose numbers are not what the others have, where a majority says what that is."""
    bad = [rank for rank in result.ranks if not rank.finite]
    if bad and 2 * len(bad) < len(result.ranks):
        for rank in bad:
            yield Suspect("node", rank.host, 0.9, Reason.of("rank-loss-not-finite", rank=rank.rank))
    elif not bad:
        for rank in _odd(result.ranks):
            evidence = Reason.of("rank-parameters-differ", rank=rank.rank, checksum=rank.checksum[:12])
            yield Suspect("node", rank.host, 0.9, evidence)


def _odd(ranks: Sequence[Rank]) -> list[Rank]:
    """Return the ranks outside the majority; none when there is no majority to be outside of."""
    ((common, count),) = Counter(rank.checksum for rank in ranks).most_common(1)
    return [rank for rank in ranks if rank.checksum != common] if 2 * count > len(ranks) else []


def measured(result: TrainingResult, testbed: Testbed, cluster: Cluster, workload: Workload) -> Iterator[Measurement]:
    """Yield the measurements of a result; numbers that are not there or not finite are left out."""
    where: dict[str, ConditionValue] = {"ranks": testbed.world_size, "batch_per_rank": workload.batch_per_rank}
    where |= workload.conditions()
    learning: dict[str, ConditionValue] = {**where, **workload.learning_conditions()}
    subject = Subject("cluster", cluster.name)
    losses = tuple(loss for loss in result.losses if loss is not None)
    if result.last_loss is not None:
        yield Measurement("loss", result.last_loss, "nats", subject, learning, losses, better=None)
    if result.loss_drop is not None:
        yield Measurement("loss_drop", result.loss_drop, "", subject, learning)
    if result.throughput_samples_s:
        yield Measurement("throughput", result.throughput_samples_s, "samples/s", subject, where)
    if result.inference_samples_s:
        yield Measurement("inference", result.inference_samples_s, "samples/s", subject, where)
    if result.step_time_ms:
        middle = median(result.step_time_ms)
        yield Measurement("step_time", middle, "ms", subject, where, tuple(result.step_time_ms), better="lower")
    for metric, value, unit in _recorded(result, testbed, cluster.hardware.name, workload):
        yield Measurement(metric, value, unit, subject, where, better=None)
    judged = testbed.has_gpus  # processors that compete say nothing of a node
    for node in testbed.nodes:
        own = [rank for rank in result.ranks if rank.host == node.name]
        steps = tuple(rank.step_time_ms_median for rank in own if rank.step_time_ms_median is not None)
        computes = tuple(rank.compute_ms_median for rank in own if rank.compute_ms_median is not None)
        subject = Subject("node", node.name)
        if steps:
            yield Measurement("step_time", max(steps), "ms", subject, where, steps, better="lower")
        if computes:
            yield Measurement(
                "compute_time", max(computes), "ms", subject, where, computes, "lower" if judged else None
            )


def _recorded(
    result: TrainingResult, testbed: Testbed, hardware: str, workload: Workload
) -> Iterator[tuple[str, float, str]]:
    """Yield metric, value and unit of figures that follow from judged ones, or say where the time goes."""
    if result.step_time_ms:
        slowest_first = sorted(result.step_time_ms, reverse=True)
        yield "step_time_p99", slowest_first[len(slowest_first) // 100], "ms"
    if result.communication_share is not None:
        yield "communication_share", result.communication_share, ""
    if result.throughput_samples_s and result.flops_per_sample:
        tflops = result.throughput_samples_s / testbed.world_size * result.flops_per_sample / 1e12
        yield "model_flops", tflops, "TFLOP/s"
        peak = peak_tflops(hardware, workload.precision) if testbed.has_gpus else None
        if peak:
            yield "mfu", tflops / peak, ""
