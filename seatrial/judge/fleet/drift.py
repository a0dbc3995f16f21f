"""When a series changed, and whether at once or slowly. Pure.

What a fit leaves unexplained is weighed as t noise, so strays hardly count, and a change has its price.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from seatrial.judge.fleet.odds import FREEDOM, SCALE_PER_STEP, Floats

_PRICE = 10.0  # nats of each level: quiet series of 20 to 60 numbers show two in less than one case of 200
_LEAST_NIGHTS = 6
_FEWEST = 4  # runs of a level: what three runs show is told by their verdicts
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
    """The last change of `values` (natural logs, n nights, `days` apart), which are bad tonight; None without one.

    A step is the last of the levels that fit best, even if it began tonight; a decay is one level and then a straight
    line. The one that leaves less is taken. `scale` is that of the noise.
    """
    known = np.isfinite(values)
    if known.sum() < _LEAST_NIGHTS:
        return None
    at = np.flatnonzero(known)
    day, value = days[known], values[known]
    cost, ends = _levels(value, scale, newest=1)
    decay = min(_decays(day, value, scale))
    if decay[0] < cost:
        return ChangePoint("decay", int(at[decay[1]]), decay[2])
    if len(ends) < 2:
        return None
    before, since = [0, *ends][-3], ends[-2]
    return ChangePoint("step", int(at[since]), _middle(value[since:]) - _middle(value[before:since]))


def find_steps(values: Sequence[float], last: int | None = None) -> list[LevelShift]:
    """The changes of level, in order; none where a value is not positive. `last` is where the judge saw the last one.

    The scale of the noise is estimated from neighbours, so that a step does not count as noise.
    """
    row = np.asarray(values, dtype=np.float64)
    if len(row) < 2 * _FEWEST or not (np.isfinite(row) & (row > 0)).all():
        return []
    logs = np.log(row)
    scale = max(_LEAST_SCALE, SCALE_PER_STEP * float(np.median(np.abs(np.diff(logs)))))
    _, ends = _levels(logs[:last], scale, newest=_FEWEST if last is None else 1)
    if last is not None:
        ends = [*ends, len(logs)]
    around = zip([0, *ends], ends, ends[1:], strict=False)
    edges = [
        0,
        *(at for start, at, end in around if abs(_middle(logs[start:at]) - _middle(logs[at:end])) >= _LEAST_STEP),
    ]
    levels = [float(np.exp(np.median(logs[start:end]))) for start, end in pairwise([*edges, len(logs)])]
    return [LevelShift(at, before, after) for at, (before, after) in zip(edges[1:], pairwise(levels), strict=True)]


def _levels(logs: Floats, scale: float, newest: int) -> tuple[float, list[int]]:
    """What the levels that fit best leave, each paid for, and where each ends: exact, by dynamic programming.

    All have _FEWEST runs, the last `newest` at least.
    """
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for end in range(min(_FEWEST, len(logs)), len(logs) + 1):
        fewest = newest if end == len(logs) else _FEWEST
        best[end] = min(
            (cost + _left(logs[start:end] - _middle(logs[start:end]), scale) + _PRICE, [*ends, end])
            for start, (cost, ends) in best.items()
            if end - start >= fewest
        )
    return best[len(logs)]


def _middle(value: Floats) -> float:
    """The median; numpy's own takes ten times as long for a few numbers."""
    ordered: list[float] = sorted(value.tolist())
    return (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2


def _decays(day: Floats, value: Floats, scale: float) -> Iterator[tuple[float, int, float]]:
    """What each possible decay leaves, its price paid, its first night, its size per day."""
    for first in range(2, len(value) - 2):
        before = _middle(value[:first])
        after, since = value[first:] - before, day[first:] - day[first - 1]
        slope = _slope(since, after, scale)
        left = _left(value[:first] - before, scale) + _left(after - slope * since, scale)
        yield left + 2 * _PRICE, first, slope


def _slope(since: Floats, after: Floats, scale: float) -> float:
    """Through the origin; nights that lie far off weigh less, as under t noise."""
    slope = float(np.median(after / since))
    for _ in range(5):
        weight = 1 / (FREEDOM + ((after - slope * since) / scale) ** 2)
        slope = float((weight * since * after).sum() / (weight * since * since).sum())
    return slope


def _left(rest: Floats, scale: float) -> float:
    return float((FREEDOM + 1) / 2 * np.log1p((rest / scale) ** 2 / FREEDOM).sum())
