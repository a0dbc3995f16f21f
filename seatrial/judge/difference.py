"""What changed between two runs, in order of weight: verdicts, software, then measurements. Pure.

A measurement's move counts by its own noise: the natural log of the ratio over the standard deviation of the difference
of two such values. The noise is what the interval of a judgement by history rests on, else what is assumed of such a
number (seatrial/judge/baselines/tolerance.py).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from seatrial.judge.baselines.tolerance import tolerance_of
from seatrial.model.curves import readings
from seatrial.model.measurement import Measurement
from seatrial.model.result import Judgement, RunResult
from seatrial.model.verdict import Verdict

_K = 3.0  # an interval of the history is three standard deviations wide
_LEAST_SIGMA = 0.005  # rates repeat no better than half a percent

Direction = Literal["better", "worse", "same", ""]


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A verdict that is not what it was; `what` is the run or a check's name, None a check that was not there."""

    what: str
    before: Verdict | None
    after: Verdict | None


@dataclass(frozen=True, slots=True)
class SoftwareChange:
    """One piece of software or one fact, None where a run does not name it."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class MeasurementChange:
    """One measurement in both runs; `ratio` is after over before, `sigmas` how far that is against its own noise."""

    check: str
    before: Measurement
    after: Measurement
    ratio: float
    sigmas: float

    @property
    def direction(self) -> Direction:
        if self.after.better is None:
            return ""
        if self.ratio == 1:
            return "same"
        return "better" if (self.ratio > 1) is (self.after.better == "higher") else "worse"


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from one run to the other; `only_before` and `only_after` count measurements of one of them."""

    before: RunResult
    after: RunResult
    verdicts: tuple[VerdictChange, ...]
    software: tuple[SoftwareChange, ...]
    measurements: tuple[MeasurementChange, ...]
    only_before: int
    only_after: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": _run(self.before),
            "after": _run(self.after),
            "verdicts": [{"what": t.what, "before": _word(t.before), "after": _word(t.after)} for t in self.verdicts],
            "software": [{"what": r.what, "before": r.before, "after": r.after} for r in self.software],
            "measurements": [_moved(m) for m in self.measurements],
            "only_before": self.only_before,
            "only_after": self.only_after,
        }


def difference(before: RunResult, after: RunResult) -> Difference:
    """What changed, the weightiest first."""
    old, new = _by_series(before), _by_series(after)
    moved = (_compared(key, old[key], new[key]) for key in old if key in new)
    return Difference(
        before,
        after,
        tuple(_turned(before, after)),
        tuple(_replaced(_facts(before), _facts(after))),
        tuple(sorted((m for m in moved if m), key=lambda m: (-m.sigmas, m.check, m.after.series()))),
        len(old.keys() - new.keys()),
        len(new.keys() - old.keys()),
    )


_Known = tuple[Measurement, Judgement | None]


def _by_series(run: RunResult) -> dict[tuple[str, str], _Known]:
    return {
        (check.name, _anywhere(reading.measurement).series()): (reading.measurement, reading.judgement)
        for check in run.checks
        for reading in readings(check)
    }


def _anywhere(measurement: Measurement) -> Measurement:
    """What is of the whole cluster without the cluster's name: two runs may be of two clusters."""
    subject = measurement.subject
    return replace(measurement, subject=replace(subject, name="")) if subject.kind == "cluster" else measurement


def _compared(key: tuple[str, str], before: _Known, after: _Known) -> MeasurementChange | None:
    """None where one of the values has no logarithm."""
    old, new = before[0].value, after[0].value
    if not (math.isfinite(old) and math.isfinite(new) and old > 0 and new > 0):
        return None
    sigma = max(_sigma(*before), _sigma(*after))
    return MeasurementChange(key[0], before[0], after[0], new / old, abs(math.log(new / old)) / (sigma * math.sqrt(2)))


def _sigma(measurement: Measurement, judgement: Judgement | None) -> float:
    """The standard deviation of one value on natural logs."""
    learned = _learned(measurement, judgement) if judgement and judgement.source == "history" else None
    return max(_LEAST_SIGMA, tolerance_of(measurement).sigma if learned is None else learned)


def _learned(measurement: Measurement, judgement: Judgement) -> float | None:
    bound = judgement.expected.low if judgement.expected.low is not None else judgement.expected.high
    if judgement.deviation is None or judgement.deviation <= -1 or not bound or bound <= 0:
        return None
    centre = measurement.value / (1 + judgement.deviation)
    return abs(math.log(bound / centre)) / _K if centre > 0 else None


def _turned(before: RunResult, after: RunResult) -> Iterator[VerdictChange]:
    if before.verdict is not after.verdict:
        yield VerdictChange("run", before.verdict, after.verdict)
    old = {check.name: check.verdict for check in before.checks}
    new = {check.name: check.verdict for check in after.checks}
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) is not new.get(name):
            yield VerdictChange(name, old.get(name), new.get(name))


def _facts(run: RunResult) -> dict[str, str]:
    """The software, and what else makes runs of one cluster differ."""
    return {
        **run.fingerprint,
        "suite": run.suite,
        "nodes": str(run.setup.nodes if run.setup else len(run.nodes)),
        "cluster": run.cluster,
    }


def _replaced(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[SoftwareChange]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield SoftwareChange(name, before.get(name), after.get(name))


def _run(run: RunResult) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "cluster": run.cluster,
        "started": run.started.isoformat(timespec="seconds"),
        "verdict": run.verdict.value,
        "reason": run.reason,
    }


def _word(verdict: Verdict | None) -> str | None:
    return verdict.value if verdict else None


def _moved(moved: MeasurementChange) -> dict[str, Any]:
    m = moved.after
    return {
        "check": moved.check,
        "metric": m.metric,
        "subject": {"kind": m.subject.kind, "name": m.subject.name},
        "conditions": dict(m.conditions),
        "unit": m.unit,
        "before": moved.before.value,
        "after": m.value,
        "ratio": moved.ratio,
        "sigmas": round(moved.sigmas, 3),
        "direction": moved.direction or None,
    }
