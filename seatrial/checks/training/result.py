"""The result of a training: a verdict, measurements, and the odd rank. Pure.

Measurements, conditions ranks, batch_per_rank and those of the suite's Workload. Of the cluster:
loss (nats, the last one, smoothed; recorded only, with every step's loss as samples) and loss_drop
(fraction of the first loss), both also by steps, because more steps learn more, and by a learning
rate that the suite sets; throughput and inference (samples/s over all ranks) and step_time (ms);
recorded only, step_time_p99, model_flops, mfu and communication_share. Of each node, its slowest
rank: step_time and compute_time (ms). Ranks wait for each other in every step, so only
compute_time, which ends before they do, shows a slow node. On CPUs that compete it is recorded
only.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, FiniteFloat

from seatrial.catalog import peak_tflops
from seatrial.checks.failures import Failure
from seatrial.checks.lost_ranks import node_of
from seatrial.checks.training.parts import MOST_RANKS, RankFigures
from seatrial.checks.training.section import Workload
from seatrial.config.cluster import Cluster
from seatrial.model.measurement import Conditions, ConditionValue, Measurement, Subject, finite
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text, event_in
from seatrial.text.words import fraction, number, quantity

Finite = Annotated[float | None, AfterValidator(finite)]  # None if it is NaN or infinite


class StepEvent(NodeAnswer):
    """One step of the training probe, as rank 0 prints it."""

    event: Literal["step"]
    step: int = Field(ge=0)
    loss: Finite
    step_time_ms: Finite


class Rank(RankFigures):
    """The end of one rank: its host, the SHA-256 of its parameters, and whether its numbers stayed
    finite.
    """

    checksum: Text
    finite: bool
    step_time_ms_median: Finite
    compute_ms_median: Finite


class Learning(NodeAnswer):
    """The losses in the last event of a training."""

    first_loss: Finite
    last_loss: Finite

    @property
    def loss_drop(self) -> float | None:
        """The relative decrease of the loss; None if a loss is missing."""
        if self.first_loss is None or self.last_loss is None or self.first_loss <= 0:
            return None
        return 1 - self.last_loss / self.first_loss


class TrainingResult(Learning):
    """The summary of the training probe, and the loss of each step.

    Numbers that are not finite are None.
    """

    event: Literal["summary"]
    steps: int = Field(ge=0)
    world_size: int = Field(ge=1)
    throughput_samples_s: Finite
    flops_per_sample: Finite = None
    communication_share: Finite = None
    inference_samples_s: Finite = None
    step_time_ms: list[FiniteFloat]
    ranks: list[Rank] = Field(max_length=MOST_RANKS)
    losses: tuple[float | None, ...] = ()


def read_event(line: str) -> TrainingResult | StepEvent | None:
    """Return the event in a line of output, ignoring text before it; None if there is no complete
    one.

    Numbers that are not finite are None.
    """
    return event_in(line, TrainingResult, "summary") or event_in(line, StepEvent, "step")


def read_training_result(lines: Iterable[str], testbed: Testbed) -> TrainingResult | None:
    """Read the result from the probe's output, with node names as hosts; None if there is no
    summary.
    """
    events = [event for line in lines if (event := read_event(line))]
    summary = next((event for event in reversed(events) if isinstance(event, TrainingResult)), None)
    if summary is None:
        return None
    losses = tuple(event.loss for event in events if isinstance(event, StepEvent))
    ranks = [
        rank.model_copy(update={"host": node_of(rank.rank, rank.host, testbed)})
        for rank in summary.ranks
    ]
    return summary.model_copy(update={"losses": losses, "ranks": ranks})


def problem(result: TrainingResult, min_loss_drop: float) -> Failure | None:
    """Return the first problem of a complete result; None if it has none."""
    if len(result.losses) < max(1, result.steps):
        return Verdict.INCONCLUSIVE, Reason.of(
            "training-steps-missing", steps=result.steps, seen=len(result.losses)
        )
    bad = [rank for rank in result.ranks if not rank.finite]
    if bad or result.last_loss is None or result.first_loss is None:
        step = next((i for i, loss in enumerate(result.losses) if loss is None), None)
        value = f"in the loss of step {step}" if step is not None else "in the parameters"
        first = f", first on rank {bad[0].rank} ({bad[0].host})" if len(bad) == 1 else ""
        return Verdict.CORRUPT, Reason.of("training-not-finite", value=value, first=first)
    if len({rank.checksum for rank in result.ranks}) > 1:
        odd = (
            ", ".join(f"rank {rank.rank} on {rank.host}" for rank in _odd(result.ranks))
            or "no majority agrees"
        )
        return Verdict.CORRUPT, Reason.of("parameters-differ", odd=odd)
    return learned_too_little(result, min_loss_drop, "nats")


def learned_too_little(result: Learning, least: float, unit: str) -> Failure | None:
    """Return a problem if the relative decrease of the loss is below `least`; else None."""
    drop = result.loss_drop or 0.0
    if drop >= least:
        return None
    return Verdict.FAIL, Reason.of(
        "learned-too-little",
        fell=f"the loss went from {number(result.first_loss)} to {quantity(result.last_loss, unit)}",
        drop=fraction(drop),
        min_loss_drop=fraction(least),
    )


def suspects(result: TrainingResult) -> Iterator[Suspect]:
    """Yield the nodes of ranks whose numbers are not finite or differ from the majority's."""
    bad = [rank for rank in result.ranks if not rank.finite]
    if bad and 2 * len(bad) < len(result.ranks):
        for rank in bad:
            yield Suspect("node", rank.host, 0.9, Reason.of("rank-loss-not-finite", rank=rank.rank))
    elif not bad:
        for rank in _odd(result.ranks):
            evidence = Reason.of(
                "rank-parameters-differ", rank=rank.rank, checksum=rank.checksum[:12]
            )
            yield Suspect("node", rank.host, 0.9, evidence)


def _odd(ranks: Sequence[Rank]) -> list[Rank]:
    """Return the ranks whose parameters differ from the majority's; empty without a majority."""
    ((common, count),) = Counter(rank.checksum for rank in ranks).most_common(1)
    if 2 * count > len(ranks):
        return [rank for rank in ranks if rank.checksum != common]
    return []


def conditions_of(testbed: Testbed, workload: Workload) -> Conditions:
    """Return the conditions of all measurements of a training."""
    return {
        "ranks": testbed.world_size,
        "batch_per_rank": workload.batch_per_rank,
        **workload.conditions(),
    }


def measured(
    result: TrainingResult, testbed: Testbed, cluster: Cluster, workload: Workload
) -> Iterator[Measurement]:
    """Yield the measurements of a result, except those that are missing or not finite."""
    where = conditions_of(testbed, workload)
    learning = {**where, **workload.learning_conditions()}
    number = partial(Measurement, subject=Subject("cluster", cluster.name))
    losses = tuple(loss for loss in result.losses if loss is not None)
    if result.last_loss is not None:
        yield number(
            "loss",
            result.last_loss,
            "nats",
            conditions=learning,
            samples=losses,
            better=None,
        )
    if result.loss_drop is not None:
        yield number("loss_drop", result.loss_drop, "", conditions=learning)
    if result.throughput_samples_s:
        yield number("throughput", result.throughput_samples_s, "samples/s", conditions=where)
    if result.inference_samples_s:
        yield number("inference", result.inference_samples_s, "samples/s", conditions=where)
    if result.step_time_ms:
        yield number(
            "step_time",
            median(result.step_time_ms),
            "ms",
            conditions=where,
            samples=tuple(result.step_time_ms),
            better="lower",
        )
    for metric, value, unit in _recorded(result, testbed, cluster, workload):
        yield number(metric, value, unit, conditions=where, better=None)
    for name in testbed.names:
        own = [rank for rank in result.ranks if rank.host == name]
        steps = Figures("step_time", "ms", "lower", [rank.step_time_ms_median for rank in own])
        computes = Figures(
            "compute_time", "ms", of_computing(testbed), [rank.compute_ms_median for rank in own]
        )
        yield from of_slowest(Subject("node", name), where, (steps, computes))


class Figures(NamedTuple):
    """One metric with a value for each rank of a node; None where it is unknown."""

    metric: str
    unit: str
    better: Literal["lower"] | None
    values: Sequence[float | None]


def of_slowest(
    subject: Subject, where: Mapping[str, ConditionValue], figures: Iterable[Figures]
) -> Iterator[Measurement]:
    """Yield a measurement for each metric that any rank of the node has: the highest value, of the
    slowest rank.
    """
    for metric, unit, better, values in figures:
        known = tuple(value for value in values if value is not None)
        if known:
            yield Measurement(
                metric=metric,
                value=max(known),
                unit=unit,
                subject=subject,
                conditions=where,
                samples=known,
                better=better,
            )


def of_computing(testbed: Testbed) -> Literal["lower"] | None:
    """Return the better direction of compute times; None on CPUs, where ranks compete for cores."""
    return "lower" if testbed.has_gpus else None


def flops(
    tflops: float | None, testbed: Testbed, cluster: Cluster, workload: Workload
) -> Iterator[tuple[str, float, str]]:
    """Yield metric, value and unit of the TFLOP/s of each rank, and of their share of the data
    sheet's peak.
    """
    if not tflops:
        return
    yield "model_flops", tflops, "TFLOP/s"
    peak = peak_tflops(cluster.hardware.name, workload.precision) if testbed.has_gpus else None
    if peak:
        yield "mfu", tflops / peak, ""


def _recorded(
    result: TrainingResult, testbed: Testbed, cluster: Cluster, workload: Workload
) -> Iterator[tuple[str, float, str]]:
    """Yield metric, value and unit of measurements that are only recorded."""
    if result.step_time_ms:
        slowest_first = sorted(result.step_time_ms, reverse=True)
        yield "step_time_p99", slowest_first[len(slowest_first) // 100], "ms"
    if result.communication_share is not None:
        yield "communication_share", result.communication_share, ""
    rate = result.throughput_samples_s
    per_sample = result.flops_per_sample
    tflops = rate / testbed.world_size * per_sample / 1e12 if rate and per_sample else None
    yield from flops(tflops, testbed, cluster, workload)
