"""Baselines: what a measurement should be by one source, and how noisy a metric is until that is
measured.

The figures of noise: docs/checks.md#assumed-noise.
"""

from dataclasses import dataclass
from typing import Literal

FAIL_FACTOR = 2.0  # a fail lies this factor beyond the first value that is degraded

Source = Literal["catalog", "model", "pinned", "history", "peers", "physics", "sanity"]


@dataclass(frozen=True, slots=True)
class Baseline:
    """All figures are in the measurement's unit.

    `low` and `high` bound what is expected; None leaves that side open. `floor` lies beyond them on
    the bad side, below `low` where higher is better and above `high` where lower is: past it a
    measurement fails. `samples` is how many values `centre` rests on. `detail` completes the
    sentence "0.02 GB/s is 96 % below ...".
    """

    source: Source
    centre: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    samples: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The assumptions about the healthy values of a metric.

    `sigma` is the standard deviation on natural logs that is assumed until eight runs, or as many
    peers, show it. A limit is at most a factor of `cap` from the expected value, however noisy the
    metric is. A `steady` value counts by itself; others count where half of the sizes of a sweep
    agree. A `coarse` metric shows only large losses: it is measured again where it reads low, not
    until a loss of 10 % is ruled out.
    """

    sigma: float
    cap: float
    steady: bool = True
    coarse: bool = False


STEADY = Tolerance(sigma=0.25, cap=3.0)
SINGLE_SIZE = Tolerance(sigma=0.4, cap=6.0, steady=False)
