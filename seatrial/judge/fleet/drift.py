"""When a series changed, and whether at once or slowly. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seatrial.judge.fleet.odds import FREEDOM, Floats

_LEAST_GAIN = 8.0  # nats; below it, no change explains the nights better than none
_LEAST_NIGHTS = 6


@dataclass(frozen=True, slots=True)
class Change:
    """`since` is the first night that is different, as a place in the nights given.

    `size` is on natural logs, of the step or per day of the decay; below 0 is slower.
    """

    kind: Literal["step", "decay"]
    since: int
    size: float


def find_change(days: Floats, values: Floats, scale: float) -> Change | None:
    """The one change that explains `values` (natural logs, n nights, `days` apart) best; None where none is needed.

    A step is two levels; a decay one level and then a straight line. Both have a night and a size to choose, so the one
    that leaves less is taken. What is left is weighed as t noise of that `scale`, so strays hardly count.
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
    return Change(best[1], int(at[best[2]]), best[3])


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
