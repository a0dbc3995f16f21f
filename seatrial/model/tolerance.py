"""The noise of a metric until it is measured. The figures: docs/decisions/0002-judging-with-few-samples.md."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The assumptions about the healthy values of a metric.

    `sigma` is the standard deviation on natural logs that is assumed until eight runs, or as many peers, show it. A
    limit is at most a factor of `cap` from the expected value, however noisy the metric is. A `steady` value counts by
    itself; others count where half of the sizes of a sweep agree. A `coarse` metric shows only large losses: it is
    measured again where it reads low, not until a loss of 10 % is ruled out.
    """

    sigma: float
    cap: float
    steady: bool = True
    coarse: bool = False


STEADY = Tolerance(sigma=0.25, cap=3.0)
SINGLE_SIZE = Tolerance(sigma=0.4, cap=6.0, steady=False)
