"""Judge the log of a training: numbers that are not finite, and steps that take longer than those
before. Pure.

A log is compared with its own earlier steps; the judge holds its rate against a published one, if
the log names model, GPUs and their number (seatrial/readers/training_setup.py). Where a lasting
slowdown begins is found by the largest cumulative sum of deviations (CUSUM; E. S. Page, Biometrika
41, 1954), which single slow steps, such as those of a checkpoint, do not move because each counts
at most half a step.
"""

import re
from collections.abc import Sequence
from statistics import mean, median
from typing import NamedTuple

from seatrial.model.measurement import TIMES, ConditionValue, Measurement, Subject
from seatrial.model.verdict import Verdict
from seatrial.readers import training_setup, training_steps
from seatrial.readers.report import Lines, Report, Result, degraded, failed, passed
from seatrial.readers.training_setup import TrainingSetup, read_setup
from seatrial.readers.training_steps import Step, read_steps
from seatrial.text.lazy_pattern import lazy
from seatrial.text.words import count, quantity

Steps = Sequence[Step]
NOT_FINITE = "training-log-not-finite"
SLOWER = "training-log-slower"
SLOW_STEP = 1.5  # times the median of the steps before: such a step is noted
SLOWER_BY = 1.15  # times the median before: a slowdown that stays is degraded
MIN_COMPARED = 20
_WARM_UP = 0.1  # of the steps, which compile and fill caches

_ASSERTION = lazy(
    r"\A.{0,200}?(?:Rank (?P<rank>\d{1,7}), node (?P<node>[\w.-]{1,253}), device "
    r"(?P<device>\d{1,4}), "
    r"iteration #?-?\d{1,12}: (?P<what>(?:First rerun: )?[Uu]nexpected result.{0,160}|[Pp]ossible "
    ".{0,160})"
    r"|Rank (?P<old_rank>\d{1,7}): found (?P<old_what>(?:NaN|Inf) in .{0,120}?)\. "
    r"Device: (?P<old_device>\d{1,4})(?:, node: (?P<old_node>[\w.-]{1,253}))?)"
)
LINE = lazy(
    rf"{training_steps.LINE.pattern}|{_ASSERTION.pattern}|{training_setup.LINE.pattern}",
    re.IGNORECASE,
)
NEEDLES = (
    *training_setup.NEEDLES,
    "iteration",
    "step:",
    "train_step_timing",
    "loss=",
    "loss/",
    "'loss'",
    '"loss"',
    'loss":',
    "Rank ",
)


class Accused(NamedTuple):
    """The rank whose own check found a number that is not finite."""

    rank: int
    node: str
    device: str
    what: str

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.node}, GPU {self.device})"


def read_training(lines: Lines) -> Report | None:
    """Return the report of a training's log; None where no line has a step, an assertion or the
    size of a batch.

    Its notes name single slow steps, which are no fault.
    """
    steps = read_steps(lines)
    accused = _accused(lines)
    setup = read_setup(lines)
    if not steps and not accused:
        if setup.sequence:
            return Report("training log without a step")
        return None
    results = [*_not_finite(steps, accused), *_slower(steps)]
    measurements = measurements_of(steps, setup=setup)
    notes = _slow_steps(steps)
    return Report(_description(steps), results, measurements, notes=notes)


def measurements_of(
    steps: Steps, subject: Subject | None = None, setup: TrainingSetup | None = None
) -> tuple[Measurement, ...]:
    """Step time (ms), model FLOP/s and tokens per GPU, samples per second: medians after the
    warm-up.

    What no step has is left out. `subject` is the cluster unless another one is given; without a
    `setup`, rates that are not logged cannot be computed from the times.
    """
    subject = subject or Subject("cluster", "training")
    setup = setup or TrainingSetup()
    after = _after_warmup(steps)
    conditions = setup.conditions()
    measurements = []
    for metric, unit, values in (
        ("step_time", "ms", [step.time_ms for step in after]),
        ("model_flops", "TFLOP/s", [step.tflops_per_gpu for step in after]),
        ("tokens_per_gpu", "tokens/s", [_tokens(step, setup) for step in after]),
        ("throughput", "samples/s", [step.samples_s for step in after]),
    ):
        known = tuple(value for value in values if value is not None and 0 < value < float("inf"))
        if not known:
            continue
        where: dict[str, ConditionValue] = {"steps": len(known)}
        if metric == "tokens_per_gpu":
            where = {**conditions, **where}
        measurement = Measurement(
            metric=metric,
            value=median(known),
            unit=unit,
            subject=subject,
            conditions=where,
            samples=known,
            better="lower" if unit in TIMES else "higher",
        )
        measurements.append(measurement)
    return tuple(measurements)


def _tokens(step: Step, setup: TrainingSetup) -> float | None:
    """Return tokens/s of each GPU: as logged, else from the time of the step and its batch."""
    if step.tokens_s_per_gpu is None and step.time_ms and step.time_ms > 0:
        return setup.tokens_s_per_gpu(step.time_ms)
    return step.tokens_s_per_gpu


def _description(steps: Steps) -> str:
    """Describe the log: how many steps, how long one takes, how much it computes."""
    if not steps:
        return "training log"
    words = f"training log of {count(len(steps), 'step')}"
    rates = [quantity(measured.value, measured.unit) for measured in measurements_of(steps)[:3]]
    if rates:
        words += f" ({', '.join(rates)})"
    return words


def _accused(lines: Lines) -> list[Accused]:
    """Return the ranks whose own checks found something, in the order of the log.

    Each rank is there once, with what it found first.
    """
    accused: dict[str, Accused] = {}
    for match in filter(None, map(_ASSERTION.match, lines)):
        old = ""
        if match["old_rank"]:  # as earlier versions of Megatron-LM print it
            old = "old_"
        rank = match[old + "rank"]
        found = Accused(
            rank=int(rank),
            node=match[old + "node"] or "node not named",
            device=match[old + "device"],
            what=match[old + "what"],
        )
        accused.setdefault(rank, found)
    return list(accused.values())


def _not_finite(steps: Steps, accused: Sequence[Accused]) -> list[Result]:
    """Return a loss or gradient that is no number; `degraded` if the training went on with
    numbers.

    Where a rank's own check found one, that is a failure, whether the training went on or not.
    """
    bad = [at for at, step in enumerate(steps) if not step.is_finite]
    if not bad:
        return [failed(NOT_FINITE, f"{each}: {each.what}") for each in accused[:1]]
    first = steps[bad[0]]
    last = steps[bad[-1]]
    quantity = "the gradient norm"
    if first.loss is not None and first.loss - first.loss != 0:  # it is NaN or infinite
        quantity = "the loss"
    verdict = Verdict.FAIL
    if bad[-1] == len(steps) - 1:
        words = f"{quantity} is not finite from step {first.number} on"
    else:
        if not accused:
            verdict = Verdict.DEGRADED
        words = (
            f"{quantity} was not finite at {count(len(bad), 'step')}, {first.number} to "
            f"{last.number}, and is finite after them"
        )
    if accused:
        words += f", first on {accused[0]}"
    if len(accused) > 1:
        words += f" and {len(accused) - 1} more ranks"
    return [Result(verdict, NOT_FINITE, words)]


def _after_warmup(steps: Steps) -> Steps:
    """Return the steps after the warm-up: all of one or two, else one at the least."""
    if len(steps) <= 2:
        return steps
    warm_up = int(len(steps) * _WARM_UP) + 1
    return steps[min(warm_up, len(steps) - 1) :]


def _costs(steps: Steps) -> tuple[list[tuple[int | str | None, float]], str]:
    """Return the cost of each step in one unit: its time, else the reciprocal of a rate.

    The costs are pairs (number of the step, cost); steps without that figure are left out. The
    second value is the unit, in words.
    """
    times = [(step.number, step.time_ms) for step in steps if step.time_ms]
    if times:
        return times, "ms"
    of_tokens = [
        (step.number, 1000 / step.tokens_s_per_gpu) for step in steps if step.tokens_s_per_gpu
    ]
    if of_tokens:
        return of_tokens, "ms a token"
    of_samples = [(step.number, 1000 / step.samples_s) for step in steps if step.samples_s]
    return of_samples, "ms a sample"


def _slow_steps(steps: Steps) -> list[str]:
    """Return single steps that took much longer than the 100 before them; the first five."""
    costs, unit = _costs(steps)
    slow = []
    for at in range(1, len(costs)):
        number, cost = costs[at]
        before = median(value for _, value in costs[max(0, at - 100) : at])
        if cost >= SLOW_STEP * before:
            took = quantity(cost, unit)
            slow.append(f"step {number} took {took}, {cost / before:.1f} times those before")
    return slow[:5]


def _slower(steps: Steps) -> list[Result]:
    """Return a slowdown that lasts until the end, with its first step; a pass without one.

    Of too few steps, nothing is said.
    """
    numbered, unit = _costs(_after_warmup(steps))
    if len(numbered) < MIN_COMPARED:
        return []
    costs = [cost for _, cost in numbered]
    at = _change(costs)
    before = median(costs[:at])
    after = median(costs[at:])
    if after < SLOWER_BY * before:
        return [passed("")]
    first, _ = numbered[at]
    longer = f"{after / before:.2f} times the {quantity(before, '')} before"
    return [degraded(SLOWER, f"steps from {first} on take {quantity(after, unit)}, {longer}")]


def _change(costs: Sequence[float]) -> int:
    """Return the place from which costs are highest against those before, with some steps on either
    side.

    That is where the sum of the deviations from their mean is lowest: until there costs are below
    it, from there on above.
    """
    middle = median(costs)
    deviations = [max(-0.5, min(0.5, cost / middle - 1)) for cost in costs]
    usual = mean(deviations)
    side = MIN_COMPARED // 4
    total = 0.0
    lowest = float("inf")
    place = side
    for at, deviation in enumerate(deviations):
        if side <= at <= len(costs) - side and total < lowest:
            lowest = total
            place = at
        total += deviation - usual
    return place
