"""The time of each part of training steps on one rank, measured by events on its device.

The phases of a step are data, forward, backward and optimizer. `compute` is the part of forward and
backward for which the rank's blocks, embedding and output layer compute, excluding waits for
parameters, gradients or other ranks, unless ranks share a block. Copied to the nodes next to
training.py.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

# That of _Mark, which is never changed in place
warnings.filterwarnings("ignore", message=".*returned a view tensor")

PHASES = ("data", "forward", "backward", "optimizer")


def settled(times: Sequence[float], warmup: int) -> Sequence[float]:
    """Return the times of the steps after the warm-up, which builds buckets, connections and
    kernels.

    All times if no steps come after it.
    """
    return times[warmup:] or times


def median(values: Sequence[float]) -> float | None:
    """Return the median; None without values, as for a training that failed in its first step."""
    if values:
        return statistics.median(values)
    return None


def p99(values: Sequence[float]) -> float | None:
    """Return the 99th percentile; None without values."""
    if not values:
        return None
    place = math.ceil(0.99 * len(values)) - 1
    return sorted(values)[place]


class Marks:
    """Points in time on a device: events on a GPU's stream, a clock on processors."""

    def __init__(
        self, device: torch.device, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.on_gpu = device.type == "cuda"
        self.clock = clock

    def now(self) -> Any:
        """Record a point in time, without synchronization."""
        if not self.on_gpu:
            return self.clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ms(self, first: Any, last: Any) -> float:
        """Return the milliseconds between two points; waits until the second one is reached."""
        if not self.on_gpu:
            return float((last - first) * 1e3)
        last.synchronize()
        return float(first.elapsed_time(last))


@dataclass
class Step:
    """A step whose times are not read yet: the ends of its phases, and the spans in which its
    blocks computed.
    """

    points: list[tuple[str, Any]] = field(default_factory=list)
    spans: list[tuple[Any, Any]] = field(default_factory=list)


class StepClock:
    """Measures steps: call `start`, `end` for each phase in order, `close` once in a while, and
    later `settle`.

    `times` are milliseconds of each step on this rank, by phase, and as `step` and `compute`.
    """

    def __init__(self, device: torch.device) -> None:
        self.marks = Marks(device)
        self.times: dict[str, list[float]] = defaultdict(list)
        self.steps: list[Step] = []

    def start(self) -> None:
        """Begin a step."""
        self.steps.append(Step([("start", self.marks.now())]))

    def end(self, phase: str) -> None:
        """End a phase of the step."""
        self.steps[-1].points.append((phase, self.marks.now()))

    def close(self) -> list[Step]:
        """Return the steps since the last call."""
        steps = self.steps
        self.steps = []
        return steps

    def settle(self, steps: Sequence[Step]) -> list[float]:
        """Read the times of steps, waiting for their ends; return the milliseconds of each whole
        step.
        """
        whole = []
        for step in steps:
            whole.append(self.marks.between_ms(step.points[0][1], step.points[-1][1]))
            for (_, first), (phase, last) in zip(step.points, step.points[1:]):
                self.times[phase].append(self.marks.between_ms(first, last))
            self.times["compute"].append(sum(self.marks.between_ms(*span) for span in step.spans))
        self.times["step"] += whole
        return whole

    def median(self, name: str, warmup: int) -> float | None:
        """Return the median of a phase, `step` or `compute`, over the steps after the warm-up."""
        return median(settled(self.times[name], warmup))

    def watch(self, module: nn.Module) -> None:
        """Time the forward and backward computation of a module; call this after sharding it.

        The hooks of `fully_shard`, which wait for parameters, then run outside of the measured
        span.
        """
        began = []

        def opened() -> None:
            began.append(self.marks.now())

        def closed() -> None:
            if began:
                self.steps[-1].spans.append((began.pop(), self.marks.now()))

        def before(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            first = _Mark.apply(inputs[0], closed)
            opened()
            return (first, *inputs[1:])

        def after(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
            closed()
            return _Mark.apply(output, opened)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after, prepend=True)


class _Mark(torch.autograd.Function):
    """The identity, whose backward pass calls a function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: Callable[[], None]) -> Tensor:
        ctx.call = call
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.call()
        return gradient, None
