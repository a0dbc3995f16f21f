"""A measurement: one number with unit, subject, conditions and the raw samples behind it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

SubjectKind = Literal["cluster", "node", "gpu", "link", "group"]
ConditionValue = str | int | float | bool
Conditions = dict[str, ConditionValue]  # by name

TIMES = frozenset({"us", "ms", "s"})


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a measurement: the cluster, a node, a GPU, a link ("node-0--node-3") or a
    named group.
    """

    kind: SubjectKind
    name: str

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the subject: both ends of a link, none for the cluster or a group."""
        if self.kind == "link":
            return tuple(self.name.split("--"))
        return (self.name.partition("/")[0],) if self.kind in ("node", "gpu") else ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number.

    `metric` is the field's own name (busbw, latency, loss, clock_skew); `value` is in `unit`.
    `samples` are the raw repeats that `value` summarises, in the same unit. `better` says which
    direction is good; None means that the number is only recorded, never compared. `printed` is
    what the program itself printed, where `value` is computed.
    """

    metric: str
    value: float
    unit: str
    subject: Subject
    conditions: Mapping[str, ConditionValue] = field(default_factory=dict)
    samples: tuple[float, ...] = ()
    better: Literal["higher", "lower"] | None = "higher"
    printed: float | None = field(default=None, compare=False)
    # Computed once: the keys of a fleet are read often
    _series: str = field(default="", init=False, repr=False, compare=False)

    @property
    def finite(self) -> bool:
        """Whether the value is neither NaN nor infinite."""
        return math.isfinite(self.value)

    @property
    def above_zero(self) -> bool:
        """Whether only values above 0 are possible, as for times and rates."""
        return self.unit in TIMES or self.unit.endswith("/s")

    @property
    def operation(self) -> str | None:
        """The collective, and the arm that it was swept in: "all_reduce", "all_reduce (network)";
        None for others.
        """
        operation = self.conditions.get("operation")
        arm = self.conditions.get("arm")
        return None if operation is None else f"{operation} ({arm})" if arm else str(operation)

    def series(self) -> str:
        """Return the key that the same measurement has in every run: metric, subject, conditions
        and unit.
        """
        if not self._series:
            conditions = ",".join(
                [f"{key}={self.conditions[key]}" for key in sorted(self.conditions)]
            )
            series = (
                f"{self.metric}|{self.subject.kind}:{self.subject.name}|{conditions}|{self.unit}"
            )
            object.__setattr__(self, "_series", series)
        return self._series


def finite(value: float | None) -> float | None:
    """Return the value; None if it is NaN or infinite, which JSON lacks."""
    return value if value is not None and math.isfinite(value) else None


def by_series(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Return the measurements of each series in the order they were taken: the first, and its
    repeats.
    """
    series: dict[str, list[Measurement]] = {}
    for m in measurements:
        series.setdefault(m.series(), []).append(m)
    return series


def once(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Return each series once, with the median of its repeats."""
    return tuple(
        replace(taken[0], value=median(m.value for m in taken)) if len(taken) > 1 else taken[0]
        for taken in by_series(measurements).values()
    )
