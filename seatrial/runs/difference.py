"""Differences between two runs in order of weight: verdicts, software, measurements. Pure.

A measurement's move counts by its own noise: the natural log of the ratio over the standard
deviation of the difference of two such values. The noise is what the interval of a judgement by
earlier runs rests on, else what is assumed of such a number (seatrial/checks/table.py).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from seatrial.checks.metrics import tolerance_of
from seatrial.model.curves import Reading, readings
from seatrial.model.result import RunResult
from seatrial.text.words import measurement_name

if TYPE_CHECKING:
    from pandas import DataFrame

# Standard deviations by earlier runs: the limit of 300 series (seatrial/detection/outliers.py)
INTERVAL_WIDTH = 4.4
_LEAST_SIGMA = 0.005  # rates repeat no better than half a percent

_COLUMNS = (
    "what",
    "check",
    "metric",
    "subject_kind",
    "subject",
    "conditions",
    "unit",
    "before",
    "after",
)


@dataclass(frozen=True, slots=True)
class Change:
    """A verdict, a version or another fact; None where a run does not have it."""

    what: str
    before: str | None
    after: str | None

    @property
    def differs(self) -> bool:
        """Whether the two runs have different values."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Differences of two runs; `only_before` and `only_after` count measurements of one of them.

    `measurements` has a row per measurement of both runs, the furthest move first. Columns: what
    (in words), check, metric, subject_kind, subject, conditions, unit, before, after, ratio (after
    over before), sigmas (how far that is against its own noise), direction (better, worse, same, or
    empty where neither is).
    """

    before: RunResult
    after: RunResult
    verdicts: tuple[Change, ...]
    software: tuple[Change, ...]
    measurements: "DataFrame"
    only_before: int
    only_after: int

    @property
    def is_change(self) -> bool:
        """Whether a verdict differs, or a number by more than an interval of earlier runs would
        allow.
        """
        if self.verdicts:
            return True
        is_far = self.measurements["sigmas"] > INTERVAL_WIDTH
        return bool(is_far.any())

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the difference, measurements as in the table but for `what`."""
        return {
            "before": _run(self.before),
            "after": _run(self.after),
            "verdicts": [asdict(change) for change in self.verdicts],
            "software": [asdict(change) for change in self.software],
            "measurements": [_moved(row) for row in self.measurements.to_dict("records")],
            "only_before": self.only_before,
            "only_after": self.only_after,
        }


def moves(differences: Sequence[Difference]) -> "DataFrame":
    """Return the measurements of all as one table; of more than two runs, with the ids of both in
    each row.
    """
    import pandas as pd

    tables = []
    for each in differences:
        table = each.measurements.drop(columns="conditions")  # `what` has them in words
        if len(differences) > 1:
            table = table.assign(run_before=each.before.run_id, run_after=each.after.run_id)
        tables.append(table)
    if len(tables) == 1:
        return tables[0]
    return pd.concat(tables, ignore_index=True)


def difference(before: RunResult, after: RunResult) -> Difference:
    """Compare two runs, which may be of two clusters.

    Values that are not positive count as measured, but have no ratio, and so no row.
    """
    old = _by_series(before)
    new = _by_series(after)
    pairs = {key: (old[key], new[key]) for key in old if key in new}
    return Difference(
        before=before,
        after=after,
        verdicts=tuple(_changes(_verdicts(before), _verdicts(after))),
        software=tuple(_changes(_facts(before), _facts(after))),
        measurements=_measurements(pairs),
        only_before=len(old.keys() - new.keys()),
        only_after=len(new.keys() - old.keys()),
    )


def _measurements(pairs: Mapping[tuple[str, str], tuple[Reading, Reading]]) -> "DataFrame":
    """Return a row for each pair of positive values."""
    import numpy as np
    import pandas as pd

    rows = [
        (measurement_name(m), check, m.metric, m.subject.kind, m.subject.name, dict(m.conditions), m.unit,
         old.measurement.value, m.value, m.better, max(_sigma(old), _sigma(new)))
        for (check, _), (old, new) in pairs.items()
        if (m := new.measurement).finite and m.value > 0 and old.measurement.finite and old.measurement.value > 0
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=[*_COLUMNS, "better", "sigma"])
    ratio = frame["after"] / frame["before"]
    better = frame.pop("better")
    frame["ratio"] = ratio
    frame["sigmas"] = np.abs(np.log(ratio.astype(float))) / (frame.pop("sigma") * math.sqrt(2))
    conditions = [better.isna(), ratio == 1, (ratio > 1) == (better == "higher")]
    frame["direction"] = np.select(conditions, ["", "same", "better"], "worse")
    return frame.sort_values("sigmas", ascending=False, kind="stable", ignore_index=True)


def _by_series(run: RunResult) -> dict[tuple[str, str], Reading]:
    """Return the readings by check and series; of several in a series, the last."""
    by_series: dict[tuple[str, str], Reading] = {}
    for check in run.checks:
        for reading in readings(check):
            m = reading.measurement
            if m.subject.kind == "cluster":  # without its name: two runs may be of two clusters
                m = replace(m, subject=replace(m.subject, name=""))
            by_series[check.name, m.series()] = reading
    return by_series


def _sigma(reading: Reading) -> float:
    """Return the standard deviation of one value on natural logs."""
    return max(_LEAST_SIGMA, _learned(reading) or tolerance_of(reading.measurement).sigma)


def _learned(reading: Reading) -> float | None:
    """Return the standard deviation on natural logs that earlier runs have shown; None where the
    number was not judged by them.
    """
    judgement = reading.judgement
    if judgement is None or judgement.source != "history":
        return None
    deviation = judgement.deviation
    if deviation is None or deviation <= -1:
        return None
    bound = judgement.expected.low
    if bound is None:
        bound = judgement.expected.high
    centre = reading.measurement.value / (1 + deviation)
    if bound is None or bound <= 0 or not centre > 0:
        return None
    return abs(math.log(bound / centre)) / INTERVAL_WIDTH


def _verdicts(run: RunResult) -> dict[str, str]:
    """Return the verdict of the run and of each check, by name."""
    return {"run": run.verdict, **{check.name: check.verdict for check in run.checks}}


def _facts(run: RunResult) -> dict[str, str]:
    """Return the software, and what else makes runs of one cluster differ."""
    nodes = run.setup.nodes if run.setup else len(run.nodes)
    return {**run.fingerprint, "suite": run.suite, "nodes": str(nodes), "cluster": run.cluster}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    """Yield what differs, in the order of the first run; then what only the second one has."""
    for name in dict.fromkeys((*before, *after)):
        change = Change(name, before.get(name), after.get(name))
        if change.differs:
            yield change


def _run(run: RunResult) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "cluster": run.cluster,
        "started": run.started.isoformat(timespec="seconds"),
        "verdict": run.verdict.value,
        "reason": run.reason.sentence,
    }


def _moved(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the document of a row of the table: the subject as in run.json, no words."""
    own = {
        "subject": {"kind": row["subject_kind"], "name": row["subject"]},
        "sigmas": round(row["sigmas"], 3),
        "direction": row["direction"] or None,
    }
    return {
        name: value
        for name, value in {**row, **own}.items()
        if name not in ("what", "subject_kind")
    }
