"""Where a row of numbers changed its level for good. Pure.

The medians on logs that fit the numbers best, where each change has its price; kept is a change that is far beyond the
noise, which is estimated from neighbours so that a step does not count as noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

_FEWEST = 4  # runs on either side: what three runs show is told by their verdicts
_SIGMAS = 5.5  # of the difference of two medians; the best of some fifty splits is looked at
_PRICE = 10.0  # of a change, in standard deviations of misfit that it has to save
_LEAST_NOISE = 0.005  # rates repeat no better than half a percent
_LEAST_CHANGE = 0.02  # a smaller change is not worth a mark
_MEDIAN = 1.25  # a median is that much noisier than a mean
_MAD = 1.4826  # from a median of absolute deviations to a standard deviation, of normal noise


@dataclass(frozen=True, slots=True)
class Step:
    """The level went from `before` to `after` at index `at`, the first value of the new level."""

    at: int
    before: float
    after: float


def steps(values: Sequence[float]) -> list[Step]:
    """The changes of level, in order; none where a value is not positive."""
    if len(values) < 2 * _FEWEST or not all(math.isfinite(v) and v > 0 for v in values):
        return []
    logs = [math.log(value) for value in values]
    noise = _noise(logs)
    edges = [0, *_kept(logs, _best_edges(logs, noise), noise), len(logs)]
    levels = [math.exp(median(logs[a:b])) for a, b in pairwise(edges)]
    return [Step(at, levels[i], levels[i + 1]) for i, at in enumerate(edges[1:-1])]


def _noise(logs: Sequence[float]) -> float:
    """The standard deviation of one value, from what lies between neighbours."""
    jumps = [abs(b - a) for a, b in pairwise(logs)]
    return max(_LEAST_NOISE, _MAD * median(jumps) / math.sqrt(2))


def _best_edges(logs: Sequence[float], noise: float) -> list[int]:
    """Where the levels begin and end that fit best, each change paid for: exact, by dynamic programming."""
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for end in range(_FEWEST, len(logs) + 1):
        found = (
            (cost + _misfit(logs[start:end]) / noise + _PRICE, [*edges, end])
            for start, (cost, edges) in best.items()
            if end - start >= _FEWEST
        )
        best[end] = min(found)
    return best[len(logs)][1][:-1]


def _kept(logs: Sequence[float], edges: Sequence[int], noise: float) -> list[int]:
    """The edges on both sides of which the medians differ by more than noise would make them."""
    bounds = [0, *edges, len(logs)]
    sides = zip(bounds, edges, bounds[2:], strict=False)
    return [at for start, at, end in sides if _differ(logs[start:at], logs[at:end], noise)]


def _differ(before: Sequence[float], after: Sequence[float], noise: float) -> bool:
    error = _MEDIAN * noise * math.sqrt(1 / len(before) + 1 / len(after))
    return abs(median(before) - median(after)) >= max(_SIGMAS * error, _LEAST_CHANGE)


def _misfit(logs: Sequence[float]) -> float:
    middle = median(logs)
    return sum(abs(value - middle) for value in logs)
