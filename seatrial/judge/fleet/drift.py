"""When a series changed, and whether at once or slowly. Pure.

What a fit leaves unexplained is weighed as t noise, so strays hardly count, and a change has its price.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from seatrial.judge.fleet.odds import FREEDOM, SCALE_PER_STEP, Floats

_LEAST_GAIN = 8.0  # nats; below it, no change explains the nights better than none
_LEAST_NIGHTS = 6

# Of levels, where any number of changes is looked for.
_PRICE = 10.0  # nats of each change: quiet series of 20 to 60 numbers show one in less than one case of 200
_FEWEST = 4  # runs on either side: what three runs show is told by their verdicts
_LEAST_SCALE = 0.005  # rates repeat no better than half a percent
_LEAST_STEP = 0.02  # a smaller one is not worth a mark


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """`since` is the first night that is different, as a place in the nights given.

    `size` is on natural logs, of the step or per day of the decay; below 0 is slower.
    """

    kind: Literal["step", "decay"]
    since: int
    size: float


@dataclass(frozen=True, slots=True)
class LevelShift:
    """The level went from `before` to `after` at index `at`, the first value of the new level."""

    at: int
    before: float
    after: float


def find_change(days: Floats, values: Floats, scale: float) -> ChangePoint | None:
    """The one change that explains `values` (natural logs, n nights, `days` apart) best; None where none is needed.

    A step is two levels; a decay one level and then a straight line. Both have a night and a size to choose, so the one
    that leaves less is taken. `scale` is that of the noise.
    """
    known = np.isfinite(values)
    if known.sum() < _LEAST_NIGHTS:
        return None
    at = np.flatnonzero(known)
    day, value = days[known], values[known]
    still = _left(value - np.median(value), scale)
    fits = list(_fits(day, value, scale))
    best = min(fits, key=lambda fit: fit[0])
    if still - best[0] < _LEAST_GAIN:
        return None
    return ChangePoint(best[1], int(at[best[2]]), best[3])


def find_steps(values: Sequence[float]) -> list[LevelShift]:
    """The lasting changes of level, in order; none where a value is not positive.

    The scale of the noise is estimated from neighbours, so that a step does not count as noise.
    """
    row = np.asarray(values, dtype=np.float64)
    if len(row) < 2 * _FEWEST or not (np.isfinite(row) & (row > 0)).all():
        return []
    logs = np.log(row)
    ends = _cut(logs, max(_LEAST_SCALE, SCALE_PER_STEP * float(np.median(np.abs(np.diff(logs))))))
    around = zip([0, *ends], ends, ends[1:], strict=False)
    edges = [
        0,
        *(at for start, at, end in around if abs(_middle(logs[start:at]) - _middle(logs[at:end])) >= _LEAST_STEP),
    ]
    levels = [float(np.exp(np.median(logs[start:end]))) for start, end in pairwise([*edges, len(logs)])]
    return [LevelShift(at, before, after) for at, (before, after) in zip(edges[1:], pairwise(levels), strict=True)]


def _cut(logs: Floats, scale: float) -> list[int]:
    """Where each level ends that fits best, each change paid for: exact, by dynamic programming."""
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for end in range(_FEWEST, len(logs) + 1):
        best[end] = min(
            (cost + _left(logs[start:end] - _middle(logs[start:end]), scale) + _PRICE, [*ends, end])
            for start, (cost, ends) in best.items()
            if end - start >= _FEWEST
        )
    return best[len(logs)][1]


def _middle(value: Floats) -> float:
    """The median; numpy's own takes ten times as long for a few numbers."""
    ordered: list[float] = sorted(value.tolist())
    return (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2


def _fits(day: Floats, value: Floats, scale: float) -> Iterator[tuple[float, Literal["step", "decay"], int, float]]:
    """What each possible change leaves, its kind, its first night, its size."""
    for first in range(2, len(value)):
        before = float(np.median(value[:first]))
        after = value[first:] - before
        step = float(np.median(after))
        rest = _left(value[:first] - before, scale)
        yield rest + _left(after - step, scale), "step", first, step
        if len(after) > 2:
            since = day[first:] - day[first - 1]
            slope = _slope(since, after, scale)
            yield rest + _left(after - slope * since, scale), "decay", first, slope


def _slope(since: Floats, after: Floats, scale: float) -> float:
    """Through the origin; nights that lie far off weigh less, as under t noise."""
    slope = float(np.median(after / since))
    for _ in range(5):
        weight = 1 / (FREEDOM + ((after - slope * since) / scale) ** 2)
        slope = float((weight * since * after).sum() / (weight * since * since).sum())
    return slope


def _left(rest: Floats, scale: float) -> float:
    return float((FREEDOM + 1) / 2 * np.log1p((rest / scale) ** 2 / FREEDOM).sum())
