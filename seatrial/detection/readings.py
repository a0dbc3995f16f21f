"""What earlier runs and this one have read, as arrays of natural logs with more = better."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Past:
    """Readings of earlier runs, oldest first: (T, M), NaN where nothing was measured.

    `first` is the first reading of a run, `rest` the mean of the others, `location` the location of
    all, `within` their sum of squares around their mean, and `count` their number.

    `good` marks readings that a healthy level is learned from; the rest is evidence alone.
    `weekday` (T + 1) is the weekday of each run and of this one, 0 to 6, or UNKNOWN_DAY.
    """

    first: Floats
    rest: Floats
    location: Floats
    within: Floats
    count: Ints
    good: Bools
    weekday: Ints

    def accepted(self, rows: Floats) -> Floats:
        return np.where(self.good, rows, np.nan)

    def without_season(self, season: Floats) -> Self:
        """Return the past less `season` (T, M)."""
        first, rest, location = (rows - season for rows in (self.first, self.rest, self.location))
        return replace(self, first=first, rest=rest, location=location)


@dataclass(frozen=True, slots=True)
class ThisRun:
    """The M series of a run.

    `readings` (K, M), at least two rows, are those so far, in the order they were taken; NaN for
    none. `group` is the number of each series' group of peers, from 0, `assumed` is the noise if
    data are too few, and `cap`, on logs, is the largest distance of a limit from the expected
    value. `one_machine`: one machine plays all nodes, so a loss of all is no fault of a node.
    """

    readings: Floats
    group: Ints
    assumed: Floats
    cap: Floats
    one_machine: bool = False

    @property
    def first(self) -> Floats:
        """The first readings (M)."""
        return np.asarray(self.readings[0])

    @property
    def second(self) -> Floats:
        """The second readings (M)."""
        return np.asarray(self.readings[1])

    def without_season(self, season: Floats) -> Self:
        """Return the run less `season` (M)."""
        return replace(self, readings=self.readings - season)
