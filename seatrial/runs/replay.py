"""Judge runs that are over again, run by run, by rows of any origin.

Several rows of one series in a run are its readings in order; the second and later ones are taken
only if the judge asks for them, as a real run would measure again.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seatrial.detection.readings import Floats, Ints
from seatrial.detection.together import UNKNOWN_DAY
from seatrial.judge.findings import Finding, findings
from seatrial.judge.judged_series import JudgedSeries
from seatrial.judge.node_groups import group_nodes
from seatrial.judge.number import judge_number
from seatrial.judge.series import SeriesJudge, SeriesTable
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join
from seatrial.model.result import Judgement, Suspect
from seatrial.model.setup import Hardware, NodeHardware
from seatrial.model.verdict import Verdict
from seatrial.runs.earlier_runs import EarlierRuns
from seatrial.runs.replay_rows import FACTS, NEEDED, OPTIONAL, tidy
from seatrial.text.headline import other_problems

if TYPE_CHECKING:
    import pandas as pd


_KEYS = ("metric", "subject_kind", "subject", "unit", "better", "check", "model")  # of a series


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """The judgement of one run; `readings` counts the numbers that the judge took."""

    run_id: str
    verdict: Verdict
    reason: Reason
    suspects: tuple[Suspect, ...]
    readings: int

    def to_dict(self) -> dict[str, Any]:
        """Return the run in the document of `seatrial replay --json`."""
        suspects = [
            {"kind": suspect.kind, "name": suspect.name, "confidence": suspect.confidence}
            for suspect in self.suspects
        ]
        return {
            "run_id": self.run_id,
            "verdict": self.verdict.value,
            "reason": self.reason.sentence,
            "suspects": suspects,
            "readings": self.readings,
        }


def replay(rows: "pd.DataFrame") -> list[ReplayedRun]:
    """Judge each run of `rows` by the runs before it, in order of `started`, else of the rows."""
    frame = tidy(rows)
    replayed: dict[tuple[str, ...], ReplayedRun] = {}
    for names, part in frame.groupby(["cluster", "suite"], sort=False):
        cluster, suite = map(str, names)
        for run in _Replay(part).runs():
            replayed[cluster, suite, run.run_id] = run
    runs = frame[["cluster", "suite", "run_id"]].drop_duplicates()
    in_order = runs.itertuples(index=False)
    return [replayed[key] for key in in_order]


class _Replay:
    """The runs of one cluster and suite, one after the other; M series in all.

    `_tables` has the table of the last series that were judged, since most runs have the same ones.
    """

    def __init__(self, frame: "pd.DataFrame") -> None:
        """Number the series, which their names and the conditions that the rows have tell apart."""
        conditions = _conditions_of(frame)
        series = frame.groupby([*_KEYS, *conditions], sort=False, dropna=False)
        self._frame = frame.assign(series=series.ngroup())
        rows = series.head(1).to_dict("records")
        self._series = [_series_of(row, conditions) for row in rows]
        self._earlier = EarlierRuns(self._series)
        self._tables: dict[Hashable, SeriesTable] = {}

    def runs(self) -> Iterator[ReplayedRun]:
        """Yield the judgement of each run by those before it."""
        for run_id, rows in self._frame.groupby("run_id", sort=False):
            places, values = _readings(rows)
            started = str(rows["started"].iloc[0])
            weekday = _weekday(started)
            table = self._table(rows, places)
            past = self._earlier.past(places, weekday)
            judged = _read(SeriesJudge(table, past), values)
            found = findings(judged)
            broken = list(_broken(table.first, values[0]))
            run = _concluded(str(run_id), judged, found, broken)
            self._earlier.add(places, judged, run.verdict, weekday)
            yield run

    def _table(self, rows: "pd.DataFrame", places: Ints) -> SeriesTable:
        """Return the table of a run's series, that of the last run if it had the same ones."""
        facts = _facts(rows)
        key = (places.tobytes(), frozenset(facts.items()))
        if key not in self._tables:
            series = [self._series[i] for i in places]
            table = SeriesTable.of(series, group_nodes(facts))
            self._tables = {key: table}
        return self._tables[key]


def _conditions_of(frame: "pd.DataFrame") -> list[str]:
    """Return the columns that tell series apart beside their names."""
    others = frame.columns.difference([*NEEDED, *OPTIONAL], sort=False)
    return [name for name in others if frame[name].notna().any()]


def _readings(rows: "pd.DataFrame") -> tuple[Ints, Floats]:
    """Return the series of a run, and the readings of each, in order (K, M)."""
    series = rows["series"].to_numpy()
    places, column = np.unique(series, return_inverse=True)
    nth = rows.groupby("series").cumcount().to_numpy()
    most = int(nth.max()) + 1
    values = np.full((most, places.size), np.nan)
    values[nth, column] = rows["value"].to_numpy()
    return places, values


def _broken(series: Sequence[Measurement], values: Floats) -> Iterator[Judgement]:
    """Yield the judgements of readings that no cluster yields, such as 0."""
    for m, value in zip(series, values.tolist(), strict=True):
        if math.isfinite(value) and value > 0:
            continue
        judgement = judge_number(replace(m, value=value), ())
        if judgement:
            yield judgement


def _read(judge: SeriesJudge, values: Floats) -> JudgedSeries:
    """Read as often as the judge asks, as long as there are `values` (K, M)."""
    logs = judge.table.logs(values)
    last = len(logs) - 1
    judge.add(logs[0])
    outcome = judge.outcome()
    while True:
        row = np.minimum(outcome.readings, last)
        following = logs[row, np.arange(row.size)]
        is_asked = outcome.doubtful | outcome.supporting
        has_more = outcome.readings <= last
        repeats = np.where(is_asked & has_more, following, np.nan)
        if not np.isfinite(repeats).any():
            return JudgedSeries(judge, outcome)
        judge.add(repeats)
        outcome = judge.outcome()


def _concluded(
    run_id: str, judged: JudgedSeries, findings: Sequence[Finding], broken: Sequence[Judgement]
) -> ReplayedRun:
    """Return the judgement of a run: the worst of what is bad, else that it passed."""
    bad = []
    suspects: list[Suspect] = []
    for finding in findings:
        bad.append(finding.judgement)
        suspects += finding.suspects
    for place in np.flatnonzero(judged.unproven).tolist():
        bad.append(judged.judgement(place))
    bad += [judgement for judgement in broken if not judgement.passed]
    if bad:
        worst = min(bad, key=lambda judgement: judgement.verdict.severity)
        others = [judgement.measurement for judgement in bad if judgement is not worst]
        verdict = worst.verdict
        reason = join((worst.reason, other_problems(others)))
    else:
        verdict = Verdict.PASS
        reason = join((_passed(judged), *judged.watches()))
    return ReplayedRun(
        run_id=run_id,
        verdict=verdict,
        reason=reason,
        suspects=tuple(suspects),
        readings=int(judged.outcome.readings.sum()),
    )


def _passed(judged: JudgedSeries) -> Reason:
    """Return why a run passed: by how many of its series."""
    count = int(judged.outcome.judged.sum())
    if not count:
        return Reason.of("replayed-without-baseline")
    series = len(judged.table.first)
    return Reason.of("replayed-pass", judged=count, series=series)


def _series_of(row: Mapping[Any, Any], conditions: Sequence[str]) -> Measurement:
    """Return the series that a row is of, without its value."""
    labels = {}
    for name in conditions:
        if row[name] and row[name] == row[name]:  # NaN is not itself
            labels[name] = _condition(str(row[name]))
    better: Literal["higher", "lower"] = "higher"
    if row["better"] == "lower":
        better = "lower"
    return Measurement(
        metric=row["metric"],
        value=math.nan,
        unit=row["unit"],
        subject=Subject(row["subject_kind"], row["subject"]),
        conditions=labels,
        better=better,
    )


def _weekday(started: str) -> int:
    """Return the day of the week, 0 to 6, or UNKNOWN_DAY for what is no time."""
    try:
        return datetime.fromisoformat(started).weekday()
    except ValueError:
        return UNKNOWN_DAY


def _condition(text: str) -> str | int:
    """Return a whole number as one, and anything else as it is."""
    if text.isdecimal() and len(text) < 16:
        return int(text)
    return text


def _facts(rows: "pd.DataFrame") -> Hardware:
    """Return the hardware of each node in this run."""
    is_of_node = rows["subject_kind"].isin(("node", "gpu"))
    parts = rows[is_of_node].drop_duplicates("subject")
    facts_of_parts = parts[["subject", *FACTS]].itertuples(index=False)
    facts: dict[str, NodeHardware] = {}
    for subject, model, driver, clock in facts_of_parts:
        node, _, _ = subject.partition("/")
        hardware = NodeHardware(model, _mhz(clock), driver=driver)
        facts.setdefault(node, hardware)
    return facts


def _mhz(clock: str) -> int | None:
    """Return a clock in whole MHz; None for what is no number."""
    if clock.replace(".", "", 1).isdecimal():
        return int(float(clock))
    return None
