"""Statistics of values by group."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seatrial.judge.fleet.odds import Floats

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_ENOUGH = 8_000  # values: half as many still tell the median to 2 % of their noise
_MANY = 2_000  # values: of fewer the median is had faster at once
_SAMPLED = 8  # every nth value narrows down where the median is
_REACH = 1.5  # three standard deviations of a rank, in roots of the sample


class Grouped:
    """Statistics of values by group, however the series are ordered."""

    def __init__(self, group: Ints, groups: int) -> None:
        self.group, self.groups = group, groups
        self.sizes = np.bincount(group, minlength=groups)
        order = np.argsort(group, kind="stable")
        cuts = np.cumsum(self.sizes)[:-1]
        self._members: list[Any] = np.split(order, cuts) if groups > 1 else [slice(None)] * groups

    @classmethod
    def of(cls, group: Ints) -> Self:
        """By the groups there are."""
        return cls(group, int(group.max(initial=-1)) + 1)

    def sample(self, most: int) -> Ints:
        """The series that stand for all: every nth of a group that has more than `most`."""
        if self.group.size <= most:
            return np.arange(self.group.size)
        every = np.arange(self.group.size)
        return np.sort(np.concatenate([every[m][:: 1 + every[m].size // most] for m in self._members]))

    def median(self, values: Floats) -> Floats:
        """NaN for a group without values."""
        return np.array([_median(values[members]) for members in self._members])

    def median_of_rows(self, rows: Floats) -> tuple[Floats, Ints]:
        """The median of all values in all rows (of as many as tell it well), and how many there are."""
        blocks = [rows[:, members].ravel() for members in self._members]
        count = [np.count_nonzero(np.isfinite(block)) for block in blocks]
        return np.array([_median(block) for block in blocks]), np.array(count)

    def lower_quartile_of_rows(self, rows: Floats) -> Floats:
        """Of all values in all rows; NaN for a group without values."""
        return np.array([_lower_quartile(rows[:, members].ravel()) for members in self._members])

    def total(self, values: Floats | Ints | Bools) -> Floats:
        return np.bincount(self.group, values, minlength=self.groups).astype(np.float64)

    def count(self, flags: Bools) -> Ints:
        return np.bincount(self.group[flags], minlength=self.groups) if not flags.all() else self.sizes

    def any(self, flags: Bools) -> Bools:
        return np.bincount(self.group[flags], minlength=self.groups) > 0

    def largest(self, values: Ints) -> Ints:
        sizes = np.zeros(self.groups, dtype=np.int64)
        np.maximum.at(sizes, self.group, values)
        return sizes


def _median(values: Floats) -> float:
    """Of every nth value where there are more than enough."""
    finite = _finite(values[:: 1 + values.size // _ENOUGH])
    if not finite.size:
        return np.nan
    half = finite.size // 2
    place, near = _near_middle(finite, half) if finite.size >= _MANY else (half, finite)
    ordered = np.partition(near, place)  # by one place: numpy takes five times as long for two
    middle = float(ordered[place])
    return middle if finite.size % 2 else (float(ordered[:place].max()) + middle) / 2


def _near_middle(values: Floats, half: int) -> tuple[int, Floats]:
    """Few of many values, and the rank among them of the one that has rank `half` among all: every nth shows where."""
    some = np.sort(values[::_SAMPLED])
    reach = int(_REACH * np.sqrt(some.size))
    low, high = some[some.size // 2 - reach], some[some.size // 2 + reach]
    near = values[(values >= low) & (values <= high)]
    place = half - int(np.count_nonzero(values < low))
    return (place, near) if 0 < place < near.size else (half, values)


def _lower_quartile(values: Floats) -> float:
    finite = _finite(values)
    return float(np.partition(finite, finite.size // 4)[finite.size // 4]) if finite.size else np.nan


def _finite(values: Floats) -> Floats:
    known = np.isfinite(values)
    return values if known.all() else values[known]
