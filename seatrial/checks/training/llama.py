"""The training of `model: llama`: run it, with interruptions, and conclude from its last event.

Measurements, with the conditions ranks, batch_per_rank and those of the suite's Workload. Of the
cluster: tokens_per_gpu (tokens/s), loss_drop, step_time, checkpoints, goodput; recorded only,
model_flops, mfu, step_time_p99 and the share of each group's communication. Of each node, its
slowest rank: step_time, compute_time and alone_time, and where the step's time goes. Only
compute_time and alone_time, which end before a rank waits for others, show a slow node.
"""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import dropwhile
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from seatrial.checks.failures import Failure
from seatrial.checks.lost_ranks import node_of
from seatrial.checks.training.goodput import Attempt, Event, goodput
from seatrial.checks.training.on_ranks import NAME, on_ranks
from seatrial.checks.training.parts import MOST_RANKS, RankFigures, conclude_end, incomplete
from seatrial.checks.training.result import (
    Figures,
    Finite,
    Learning,
    conditions_of,
    flops,
    learned_too_little,
    of_computing,
    of_slowest,
)
from seatrial.checks.training.section import Workload
from seatrial.checks.training.stuck import conclude_without_end
from seatrial.config.run import Run
from seatrial.model.measurement import Conditions, Measurement, Subject
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text, event_in
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import from_rank_0, rank_of
from seatrial.text.words import fraction, quantity

# Least drop of the loss: a long training exceeds it by far, a short one of a large model barely
_MIN_DROP = 0.01
_PHASES = ("data", "forward", "backward", "optimizer")
_MOST_REPLAYS = 16
_CONFIDENT = 0.9
_EVIDENCE = {
    "compute": "rank-replays-differ",
    "transport": "rank-sums-differ",
    "copy": "rank-copy-differs",
}


class Rank(RankFigures):
    """One rank's times in ms, its peak memory, and the digest of its parameters.

    Times are medians of the steps after the warm-up; None if not measured.
    """

    parameters: Text
    data_ms: Finite
    forward_ms: Finite
    backward_ms: Finite
    optimizer_ms: Finite
    compute_ms: Finite
    step_ms: Finite
    memory_gb: Finite = None

    @property
    def waiting_ms(self) -> float | None:
        """The part of a step that is not data, computation of blocks, or optimizer; None if
        unknown.
        """
        if self.compute_ms is None:
            return None
        own = (self.data_ms or 0.0) + self.compute_ms + (self.optimizer_ms or 0.0)
        return max(0.0, (self.step_ms or 0.0) - own)


class Odd(RankFigures):
    """A rank whose bits differ from those of others, in what it computed, received or shares.

    `replays`: in how many replays they differ. `is_certain`: a majority agrees on other bits, so
    this rank is the wrong one.
    """

    by: Literal["compute", "transport", "copy"]
    replays: int = Field(ge=0)
    is_certain: bool


class Replays(NodeAnswer):
    """The result of the steps that each rank trained alone; `step_ms` by rank and replay."""

    steps: int = Field(ge=1)
    odd: list[Odd] = Field(max_length=MOST_RANKS)
    step_ms: list[Annotated[list[FiniteFloat], Field(min_length=1, max_length=_MOST_REPLAYS)]] = (
        Field(max_length=MOST_RANKS)
    )


class Copies(NodeAnswer):
    """The result of the last comparison of parameters that ranks share; `step` is when it
    was made.
    """

    step: int = Field(ge=1)
    odd: list[Odd] = Field(max_length=MOST_RANKS)


class CheckpointFigures(NodeAnswer):
    """The figures of all checkpoints of a training."""

    saves: int = Field(ge=1)
    write_gb_s: FiniteFloat
    blocked_s: FiniteFloat
    read_gb_s: Finite = None
    read_back: bool = True


class Llama(Learning):
    """The last event of seatrial/remote/probes/pretraining.py."""

    event: Literal["llama"]
    parallel: dict[Text, int]
    parameters: int = Field(ge=1)
    world_size: int = Field(ge=1)
    steps: int = Field(ge=0)
    finite: bool
    tokens_s_per_gpu: Finite
    model_tflops: Finite
    step_ms_p50: Finite
    step_ms_p99: Finite
    communication: dict[Text, FiniteFloat] = Field(max_length=64)
    checkpoint: CheckpointFigures | None = None
    replays: Replays | None = None
    copies: Copies | None = None
    ranks: list[Rank] = Field(max_length=MOST_RANKS)

    @property
    def odd(self) -> list[Odd]:
        """The ranks whose bits differ from those of others."""
        odd = []
        for compared in (self.replays, self.copies):
            if compared:
                odd += compared.odd
        return odd

    @property
    def is_divided(self) -> bool:
        """Whether ranks wait for each other within a block."""
        return any(self.parallel.get(name, 1) > 1 for name in ("tp", "cp", "ep"))


def read_last(lines: Sequence[str]) -> Llama | None:
    """Return the last event in rank 0's output; None if there is no complete one."""
    whole = (event_in(line, Llama, "llama") for line in reversed(lines))
    return next(filter(None, whole), None)


def read_events(lines: Iterable[str]) -> list[Event]:
    """Return the events `start`, `step` and `checkpoint` of rank 0, in order, beginning with the
    start.

    Empty without a start; incomplete events are skipped.
    """
    events = (event for line in lines if (event := event_in(line, Event)))
    return list(dropwhile(lambda event: event.event != "start", events))


@dataclass
class _Course:
    """The attempts of a training so far; `began` is when the current attempt started its steps, by
    this machine's clock.
    """

    attempts: list[Attempt] = field(default_factory=list)
    began: float | None = None

    def see(self, line: str) -> None:
        """Record the time when rank 0 prints that the steps begin."""
        if self.began is None and rank_of(line) == 0 and '{"event": "start"' in line:
            self.began = time.time()

    def end(self, lines: Sequence[str]) -> None:
        """Add the attempt that has just ended, with its events."""
        events = read_events(lines)
        if events and self.began is not None:
            # Converted to the node's clock, which events use, as the two clocks may differ
            ended = events[0].time + time.time() - self.began
            if read_last(lines) is not None:
                ended = events[-1].time
            self.attempts.append(Attempt(events, ended))
        self.began = None


def train_llama(
    run: Run, testbed: Testbed, workload: Workload, timeout_s: float, label: str
) -> Check:
    """Train over all ranks, and resume from the last checkpoint after each interruption.

    The last attempt, which is not interrupted, uses `label` unchanged for its log. The first
    attempt that fails ends the training.
    """
    course = _Course()
    options = workload.arguments()
    if testbed.shared_cores is not None:
        options = [*options, "--shared-processors"]
    check = Check(NAME, Verdict.INCONCLUSIVE, Reason())
    for number, interrupt in enumerate((*workload.interrupt, None)):
        name = label
        kill = []
        if interrupt:
            name = f"{label}-{number}"
            victim = _victim(run, testbed, interrupt.node, number)
            kill = ["--die", f"{victim}:{interrupt.seconds:g}"]
        check = on_ranks(
            run,
            testbed,
            timeout_s,
            name,
            "training",
            [*options, *kill],
            on_line=course.see,
            is_done=lambda line: '{"event": "llama"' in line,
            conclude=partial(_ended, run, testbed, workload, course, killed=interrupt is not None),
        )
        if not check.passed:
            return check
    return _with_goodput(check, course, run)


def _victim(run: Run, testbed: Testbed, node: str, number: int) -> int:
    """Return the first rank of the node to interrupt; the choice of a random node depends on the
    run id only.
    """
    names = testbed.names
    chosen = node
    if node == "random":
        chosen = random.Random(f"{run.run_id} {number}").choice(names)
    place = 0  # the first node if the chosen one was set aside
    if chosen in names:
        place = names.index(chosen)
    return sum(each.slots for each in testbed.nodes[:place])


def _ended(
    run: Run,
    testbed: Testbed,
    workload: Workload,
    course: _Course,
    result: MpiResult,
    *,
    killed: bool,
) -> Check:
    """Return the check after one attempt; an interrupted attempt passes if it had begun
    its steps.
    """
    lines = list(from_rank_0(result.lines))
    course.end(lines)
    was_cut = killed and read_last(lines) is None
    if was_cut and any(event.event == "step" for event in read_events(lines)):
        return Check(NAME, Verdict.PASS, Reason.of("training-interrupted"), result.seconds)
    return conclude_llama(run, testbed, workload, result)


def conclude_llama(run: Run, testbed: Testbed, workload: Workload, result: MpiResult) -> Check:
    """Return the check after one mpirun of the probe. Pure.

    Measurements of a training that ended are kept even if it has a problem.
    """
    lines = list(from_rank_0(result.lines))
    last = read_last(lines)
    if last is None:
        return conclude_without_end(testbed, result, began=bool(read_events(lines)))
    problem = incomplete(result, last.ranks, testbed.world_size) or _problem(last, testbed)
    measurements = measured(last, testbed, run, workload)
    return conclude_end(result, problem, _summary(last), measurements, _odd_nodes(last, testbed))


def _problem(last: Llama, testbed: Testbed) -> Failure | None:
    """Return the first problem of a training that ended; None if it has none."""
    if last.odd:
        return _differing(last, testbed)
    if not last.finite or last.first_loss is None or last.last_loss is None:
        return Verdict.CORRUPT, Reason.of("training-not-finite", value="in the loss", first="")
    if last.checkpoint and not last.checkpoint.read_back:
        return Verdict.CORRUPT, Reason.of("checkpoint-differs")
    return learned_too_little(last, _MIN_DROP, "")


def _differing(last: Llama, testbed: Testbed) -> Failure:
    """Return the verdict on ranks whose bits differ: corrupt if majorities show which are wrong."""
    ranks = ", ".join(
        f"rank {each.rank} on {node_of(each.rank, each.host, testbed)}" for each in last.odd[:8]
    )
    verdict = Verdict.CORRUPT
    if not all(each.is_certain for each in last.odd):
        verdict = Verdict.INCONCLUSIVE
    if last.copies and last.copies.odd:
        return verdict, Reason.of("copies-differ", step=last.copies.step, ranks=ranks)
    if verdict is Verdict.CORRUPT:
        return verdict, Reason.of("replays-differ", ranks=ranks)
    return verdict, Reason.of("replays-disagree", ranks=ranks)


def _odd_nodes(last: Llama, testbed: Testbed) -> Iterator[Suspect]:
    """Yield the nodes of the ranks whose bits differ."""
    for each in last.odd:
        evidence = Reason.of(_EVIDENCE[each.by], rank=each.rank, replays=each.replays)
        yield Suspect("node", node_of(each.rank, each.host, testbed), _CONFIDENT, evidence)


def _summary(last: Llama) -> Reason:
    """Return the reason of a pass, in one sentence."""
    rate = "no rate"
    if last.tokens_s_per_gpu:
        rate = f"{last.tokens_s_per_gpu:,.0f} tokens/s for each rank"
    return Reason.of(
        "llama-learns",
        rate=rate,
        fell=fraction(last.loss_drop or 0.0),
        steps=last.steps,
        took=quantity(last.step_ms_p50 or 0.0, "ms"),
    )


def _with_goodput(check: Check, course: _Course, run: Run) -> Check:
    """Return the check with the goodput of all attempts, where the training was interrupted."""
    if len(course.attempts) < 2:
        return check
    figures = goodput(course.attempts)
    if figures is None:
        return check
    subject = Subject("cluster", run.cluster.name)
    conditions = {"interrupts": len(course.attempts) - 1}
    share = Measurement("goodput", figures.share, "", subject, conditions=conditions)
    reason = Reason.of(
        "training-goodput",
        share=f"{100 * figures.share:.1f} %",
        wall=f"{figures.wall_s:.0f}",
        lost=f"{figures.lost_s:.1f}",
        resume=f"{figures.resume_s:.1f}",
        reschedule=f"{figures.reschedule_s:.1f}",
        save=f"{figures.save_s:.1f}",
    )
    both = join((check.reason, reason))
    return replace(check, reason=both, measurements=(*check.measurements, share))


def measured(last: Llama, testbed: Testbed, run: Run, workload: Workload) -> Iterator[Measurement]:
    """Yield the measurements of a training, except those that are missing."""
    where = conditions_of(testbed, workload)
    number = partial(Measurement, subject=Subject("cluster", run.cluster.name))
    if last.tokens_s_per_gpu:
        yield number("tokens_per_gpu", last.tokens_s_per_gpu, "tokens/s", conditions=where)
    if last.loss_drop is not None:
        learning = {**where, **workload.learning_conditions()}
        yield number("loss_drop", last.loss_drop, "", conditions=learning, better=None)
    if last.step_ms_p50:
        yield number("step_time", last.step_ms_p50, "ms", conditions=where, better="lower")
    for metric, value, unit in flops(last.model_tflops, testbed, run.cluster, workload):
        yield number(metric, value, unit, conditions=where, better=None)
    for metric, figure, unit, more in _recorded(last, workload):
        if figure is not None:
            yield number(metric, figure, unit, conditions={**where, **more}, better=None)
    for name in testbed.names:
        ranks = [rank for rank in last.ranks if node_of(rank.rank, rank.host, testbed) == name]
        yield from of_slowest(Subject("node", name), where, _of_node(last, ranks, testbed))


def _recorded(
    last: Llama, workload: Workload
) -> Iterator[tuple[str, float | None, str, Conditions]]:
    """Yield metric, value, unit and further conditions of measurements that are only recorded.

    A value is None if it was not measured.
    """
    yield "step_time_p99", last.step_ms_p99, "ms", {}
    for group, share in last.communication.items():
        yield "communication_share", share, "", {"group": group}
    if last.checkpoint:
        mode: Conditions = {"checkpoint": "async" if workload.checkpoint_async else "sync"}
        yield "checkpoint_write", last.checkpoint.write_gb_s, "GB/s", mode
        yield "checkpoint_blocked", last.checkpoint.blocked_s, "s", mode
        yield "checkpoint_read", last.checkpoint.read_gb_s, "GB/s", mode


def _of_node(last: Llama, ranks: Sequence[Rank], testbed: Testbed) -> Iterator[Figures]:
    """Yield the figures of a node, each with the values of its ranks in order.

    If ranks wait for each other within a block, compute time is left out, as it would include
    waiting.
    """
    yield Figures("step_time", "ms", "lower", [rank.step_ms for rank in ranks])
    if not last.is_divided:
        yield Figures(
            "compute_time", "ms", of_computing(testbed), [rank.compute_ms for rank in ranks]
        )
        yield Figures("waiting_time", "ms", None, [rank.waiting_ms for rank in ranks])
    if last.replays:
        times = last.replays.step_ms
        of_ranks = [times[rank.rank] for rank in ranks if rank.rank < len(times)]
        for alone in zip(*of_ranks, strict=False):  # each replay is a separate reading
            yield Figures("alone_time", "ms", "lower", alone)
    for phase in _PHASES:
        yield Figures(f"{phase}_time", "ms", None, [getattr(rank, f"{phase}_ms") for rank in ranks])
    yield Figures("memory_peak", "GB", None, [rank.memory_gb for rank in ranks])
