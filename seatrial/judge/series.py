"""The series of a run as arrays: which are peers, what noise is assumed of them, and their readings
as logs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from seatrial.checks.metrics import tolerance_of
from seatrial.detection.outliers import YOUNG_READINGS, Outcome, judge
from seatrial.detection.readings import Bools, Floats, Ints, Past, ThisRun
from seatrial.detection.references import Reference, learn
from seatrial.judge.node_groups import NodeGroups
from seatrial.model.measurement import Measurement
from seatrial.model.setup import is_busbw

PEERS = ("node", "gpu", "link")


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """M series, each with its first measurement of this run; `group` numbers those that are peers,
    from 0.

    `sign` is -1 where less is better; `assumed` and `cap`, on logs, are the metric's own tolerance.
    """

    first: Sequence[Measurement]
    sign: Floats
    group: Ints
    assumed: Floats
    cap: Floats
    groups: NodeGroups

    @classmethod
    def of(cls, first: Sequence[Measurement], groups: NodeGroups) -> Self:
        """Make the table; nodes, GPUs and links of like nodes that measure the same are peers, all
        else is alone.
        """
        numbers: dict[object, int] = {}
        keys = (peer_key(m, groups) if m.subject.kind in PEERS else i for i, m in enumerate(first))
        tolerances = [tolerance_of(m) for m in first]
        return cls(
            first=first,
            sign=np.array([-1.0 if m.better == "lower" else 1.0 for m in first]),
            group=np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64),
            assumed=np.array([t.sigma for t in tolerances]),
            cap=np.array([math.log(t.cap) for t in tolerances]),
            groups=groups,
        )

    def logs(self, values: Floats) -> Floats:
        """Return natural logs of (..., M) values, more = better; NaN where a value has none."""
        return np.asarray(
            self.sign * np.log(np.where((values > 0) & np.isfinite(values), values, np.nan))
        )

    def value(self, i: int, log: float) -> float:
        """Return the value of series `i` in its unit."""
        return math.exp(float(self.sign[i]) * log)


def peer_key(m: Measurement, groups: NodeGroups) -> tuple[object, ...]:
    """Return what peers have in common."""
    return (
        m.metric,
        m.unit,
        m.better,
        m.subject.kind,
        frozenset(m.conditions.items()),
        groups.of(m.subject),
    )


class SeriesJudge:
    """Judges the readings of a run as they come in, against what earlier runs measured."""

    def __init__(self, table: SeriesTable, past: Past, *, one_machine: bool = False) -> None:
        """Compare the series of `table`; `one_machine` plays all nodes."""
        self.table, self.past = table, past
        self._one_machine = one_machine
        known = past.good.sum(axis=0) > 1
        # New series tell their noise, and how far they lie apart, by all of their readings
        self._learned = 2 if known.all() else YOUNG_READINGS
        # (K, M) logs, in the order they were taken
        self.readings = np.full((1, len(table.first)), np.nan)
        self._count = np.zeros(len(table.first), dtype=np.int64)
        self._reference: Reference | None = None

    @property
    def reference(self) -> Reference:
        """What the series should read, learned from the past and the first two readings of this
        run, and then kept; from six if some series are new.
        """
        if self._reference is None:
            none = np.full((2, len(self.table.first)), np.nan)
            rows = np.vstack([self.readings, none])
            self._reference = learn(
                self.past,
                ThisRun(
                    readings=rows[: self._learned],
                    group=self.table.group,
                    assumed=self.table.assumed,
                    cap=self.table.cap,
                    one_machine=self._one_machine,
                ),
            )
        return self._reference

    def add(self, logs: Floats) -> None:
        """Add a reading of each series (M); NaN where it was not read."""
        taken = np.flatnonzero(np.isfinite(logs))
        if not taken.size:
            return
        rows = self._count[taken]
        if rows.max() >= len(self.readings):
            self.readings = np.vstack([self.readings, np.full((1, len(self.table.first)), np.nan)])
        self.readings[rows, taken] = logs[taken]
        self._count[taken] += 1
        if rows.min() < self._learned:
            self._reference = None

    def outcome(self) -> Outcome:
        return judge(self.reference, self.readings)


def carried(place: int, series: Sequence[Measurement], known: Bools) -> int:
    """Return the last place of the same collective over another number of ranks that is `known`;
    else `place`.

    A ring's busbw is what its links carry, so it is the same over any number of ranks.
    """
    m = series[place]
    if not is_busbw(m):
        return place
    same = (
        i
        for i in np.flatnonzero(known)[::-1].tolist()
        if _without_ranks(series[i]) == _without_ranks(m)
    )
    return next(same, place)


def _without_ranks(m: Measurement) -> tuple[object, ...]:
    return (
        m.metric,
        m.unit,
        m.subject,
        frozenset((key, value) for key, value in m.conditions.items() if key != "ranks"),
    )
