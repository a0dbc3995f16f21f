"""Judge runs that are over again: stored ones by today's rules, and rows of any origin run by run.

Rows are tidy, as measurements.csv has them. Several rows of one series in a run are its readings in
order; the second and later ones are taken only if the judge asks for them, as a real run would
measure again.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from seatrial.config.run import whole_name
from seatrial.detection.noise import AGREEING
from seatrial.detection.readings import Floats, Ints, Past
from seatrial.detection.together import UNKNOWN_DAY
from seatrial.history.past import RunContext, chosen_runs
from seatrial.history.rows import RunRow
from seatrial.judge.assess import assess
from seatrial.judge.findings import Finding, findings
from seatrial.judge.judged_series import JudgedSeries
from seatrial.judge.knowledge import explained, knowledge_of
from seatrial.judge.node_groups import group_nodes
from seatrial.judge.number import judge_number
from seatrial.judge.series import SeriesJudge, SeriesTable, carried
from seatrial.model.errors import InputError
from seatrial.model.measurement import TIMES, Measurement, Subject, SubjectKind
from seatrial.model.reason import Reason, join
from seatrial.model.result import Judgement, RunResult, Suspect, merge_suspects
from seatrial.model.setup import Hardware, NodeHardware, Setup
from seatrial.model.verdict import Verdict
from seatrial.text.headline import conclude, next_steps, other_problems
from seatrial.text.printable import printable
from seatrial.text.words import nearest_of

if TYPE_CHECKING:
    import pandas as pd

    from seatrial.history.store import Store


NEEDED = ("run_id", "metric", "subject_kind", "subject", "value", "unit")
FACTS = ("model", "driver", "clock")
_OPTIONAL = ("started", "cluster", "suite", "check", "better", *FACTS)
_KEYS = ("metric", "subject_kind", "subject", "unit", "better", "check", "model")  # of a series
_LEGAL: Mapping[str, Sequence[str]] = {
    "subject_kind": get_args(SubjectKind),
    "better": ("higher", "lower", ""),
}
# Of measurements.csv
_RESULTS = ("verdict", "expected_low", "expected_high", "source", "samples", "printed", "reason")
_KEPT = ("first", "rest", "location", "within", "count", "good")  # of each run, for those after it


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
            {"kind": s.kind, "name": s.name, "confidence": s.confidence} for s in self.suspects
        ]
        return {
            "run_id": self.run_id,
            "verdict": self.verdict.value,
            "reason": self.reason.sentence,
            "suspects": suspects,
            "readings": self.readings,
        }


def read_rows(path: Path) -> "pd.DataFrame":
    """Return the rows of a CSV file.

    Raises InputError, one line for each error, where a column or a number is missing.
    """
    import pandas as pd

    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path}: cannot be read as CSV: {printable(str(error))}") from error
    columns = len(rows.columns)
    if not isinstance(rows.index, pd.RangeIndex):  # pandas takes what is too much for names of rows
        cells = columns + rows.index.nlevels
        raise InputError(f"{path}: line 2: {cells} cells, and the header names {columns} columns")
    errors = list(_missing_columns(rows))
    if not errors:
        errors = [f"line {line}: {problem}" for line, problem in islice(_bad_cells(rows), 5)]
    if errors:
        raise InputError("; ".join(f"{path}: {error}" for error in errors))
    return rows


def _missing_columns(rows: "pd.DataFrame") -> Iterator[str]:
    """Yield that a column is missing, and what may be meant for it."""
    names = [printable(str(column)) for column in rows.columns]
    for name in NEEDED:
        if name not in rows.columns:
            near = nearest_of(name, names) or f"there are {', '.join(names[:20])}"
            yield f"column {name} is missing; {near}"


def _bad_cells(rows: "pd.DataFrame") -> Iterator[tuple[int, str]]:
    """Yield the line of a bad cell in the file, and what is wrong: names first, then numbers, then
    words.
    """
    import pandas as pd

    for column in ("run_id", "metric", "subject"):
        for at in rows.index[rows[column].str.strip() == ""]:
            yield at + 2, f"{column}: is empty"
    values = rows["value"]
    is_number = pd.to_numeric(values, errors="coerce").notna()
    is_number |= values.str.lower().isin(("nan", "inf", "-inf"))
    for at, text in values[~is_number].items():
        yield cast(int, at) + 2, f"value: {printable(text)[:40]!r} is not a number"
    for column, legal in _LEGAL.items():
        if column not in rows.columns:
            continue
        for at, text in rows[column][~rows[column].isin(legal)].items():
            words = [word for word in legal if word]
            near = nearest_of(text, words) or f"legal: {', '.join(words)}"
            yield cast(int, at) + 2, f"{column}: {printable(text)[:40]!r}; {near}"


def replay(rows: "pd.DataFrame") -> list[ReplayedRun]:
    """Judge each run of `rows` by the runs before it, in order of `started`, else of the rows."""
    frame = _tidy(rows)
    replayed: dict[tuple[str, ...], ReplayedRun] = {}
    for (cluster, suite), part in frame.groupby(["cluster", "suite"], sort=False):
        for run in _Replay(part).runs():
            replayed[str(cluster), str(suite), run.run_id] = run
    runs = frame[["cluster", "suite", "run_id"]].drop_duplicates()
    return [replayed[key] for key in runs.itertuples(index=False)]


def _tidy(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows that are to be judged, runs in their order, with all columns that the replay
    uses.
    """
    import pandas as pd

    frame = rows.drop(columns=[name for name in _RESULTS if name in rows.columns]).copy()
    for name in (*_OPTIONAL, *NEEDED):
        if name not in frame.columns:
            frame[name] = ""
        elif name != "value":
            frame[name] = frame[name].fillna("").astype(str)
    frame["value"] = pd.to_numeric(frame["value"], errors="coerce")
    if "better" not in rows.columns:
        frame["better"] = np.where(frame["unit"].isin(sorted(TIMES)), "lower", "higher")
    frame = frame[frame["better"] != ""]
    if (frame["started"] == "").any():
        return frame
    return frame.sort_values("started", kind="stable")


class _Replay:
    """The runs of one cluster and suite, one after the other; M series in all, T runs.

    `_rows` has what each run measured, by the names of the past (T, M), and `_tables` the table of
    the last series that were judged, since most runs have the same ones.
    """

    def __init__(self, frame: "pd.DataFrame") -> None:
        """Number the series, which their names and the conditions that the rows have tell apart."""
        others = frame.columns.difference([*NEEDED, *_OPTIONAL], sort=False)
        conditions = [name for name in others if frame[name].notna().any()]
        series = frame.groupby([*_KEYS, *conditions], sort=False, dropna=False)
        self._frame = frame.assign(series=series.ngroup())
        first_rows = series.head(1).to_dict("records")
        self._series = [_series_of(dict(row), conditions) for row in first_rows]
        self._runs: list[RunRow] = []
        self._weekdays: list[int] = []
        self._rows = {name: np.empty((0, len(self._series))) for name in _KEPT}
        self._tables: dict[Hashable, SeriesTable] = {}

    def runs(self) -> Iterator[ReplayedRun]:
        """Yield the judgement of each run by those before it."""
        for run_id, rows in self._frame.groupby("run_id", sort=False):
            places, values = _readings(rows)
            self._weekdays.append(_weekday(str(rows["started"].iloc[0])))
            judge = SeriesJudge(self._table(rows, places), self._past(places))
            judged = _read(judge, values)
            broken = list(_broken(judge.table.first, values[0]))
            run = _concluded(str(run_id), judged, findings(judged), broken)
            self._keep(run, places, judged)
            yield run

    def _table(self, rows: "pd.DataFrame", places: Ints) -> SeriesTable:
        """Return the table of a run's series, that of the last run if it had the same ones."""
        facts = _facts(rows)
        key = (places.tobytes(), frozenset(facts.items()))
        if key not in self._tables:
            table = SeriesTable.of([self._series[i] for i in places], group_nodes(facts))
            self._tables = {key: table}
        return self._tables[key]

    def _past(self, places: Ints) -> Past:
        """Return the last runs of the series; for a new one, those over another number of ranks."""
        chosen = {row.run_id for row in chosen_runs(self._runs)}
        some = [i for i, row in enumerate(self._runs) if row.run_id in chosen]
        at = np.array(some, dtype=np.int64)
        taught = self._rows["good"][at].sum(axis=0)
        source = places.copy()
        for i, place in enumerate(places.tolist()):
            if taught[place] < AGREEING:
                source[i] = carried(place, self._series, taught > 0)
        own = np.ix_(at, places)
        other = np.ix_(at, source)
        measured = self._rows["count"][own] > 0
        past = {
            name: np.where(measured, rows[own], rows[other]) for name, rows in self._rows.items()
        }
        weekdays = [*(self._weekdays[i] for i in some), self._weekdays[-1]]
        return Past(
            first=past["first"],
            rest=past["rest"],
            location=past["location"],
            within=past["within"],
            count=past["count"].astype(np.int64),
            good=past["good"] > 0,
            weekday=np.array(weekdays, dtype=np.int64),
        )

    def _keep(self, run: ReplayedRun, places: Ints, judged: JudgedSeries) -> None:
        """Keep what the run measured for those after it."""
        readings = judged.readings
        outcome = judged.outcome
        number = outcome.readings
        rest = np.full(places.size, np.nan)
        np.divide(np.nansum(readings[1:], axis=0), number - 1, out=rest, where=number > 1)
        mean = np.nansum(readings, axis=0) / np.maximum(number, 1)
        own = {
            "first": readings[0],
            "rest": rest,
            "location": outcome.location,
            "within": np.nansum((readings - mean) ** 2, axis=0),
            "count": number,
            "good": ~judged.bad & ~judged.unproven,
        }
        for name, values in own.items():
            missing = 0.0 if name in ("within", "count", "good") else np.nan
            row = np.full((1, len(self._series)), missing)
            row[0, places] = values
            self._rows[name] = np.vstack([self._rows[name], row])
        at = datetime.fromtimestamp(len(self._runs), UTC)
        self._runs.append(
            RunRow(
                run_id=run.run_id,
                cluster="",
                suite="",
                started=at,
                finished=at,
                verdict=run.verdict,
                reason=run.reason,
                fingerprint={},
                out="",
            )
        )


def _readings(rows: "pd.DataFrame") -> tuple[Ints, Floats]:
    """Return the series of a run, and the readings of each, in order (K, M)."""
    places, column = np.unique(rows["series"].to_numpy(), return_inverse=True)
    nth = rows.groupby("series").cumcount().to_numpy()
    values = np.full((int(nth.max()) + 1, places.size), np.nan)
    values[nth, column] = rows["value"].to_numpy()
    return places, values


def _broken(series: Sequence[Measurement], values: Floats) -> Iterator[Judgement]:
    """Yield the judgements of readings that no cluster yields, such as 0."""
    for m, value in zip(series, values.tolist(), strict=True):
        measured = replace(m, value=value)
        if measured.finite and value > 0:
            continue
        if judgement := judge_number(measured, ()):
            yield judgement


def _read(judge: SeriesJudge, values: Floats) -> JudgedSeries:
    """Read as often as the judge asks, as long as there are `values` (K, M)."""
    logs = judge.table.logs(values)
    judge.add(logs[0])
    outcome = judge.outcome()
    while True:
        row = np.minimum(outcome.readings, len(logs) - 1)
        following = logs[row, np.arange(row.size)]
        asked = (outcome.doubtful | outcome.supporting) & (outcome.readings < len(logs))
        repeats = np.where(asked, following, np.nan)
        if not np.isfinite(repeats).any():
            return JudgedSeries(judge, outcome)
        judge.add(repeats)
        outcome = judge.outcome()


def _concluded(
    run_id: str, judged: JudgedSeries, findings: Sequence[Finding], broken: Sequence[Judgement]
) -> ReplayedRun:
    """Return the judgement of a run: the worst of what is bad, else that it passed."""
    bad = [finding.judgement for finding in findings]
    bad += [judged.judgement(i) for i in np.flatnonzero(judged.unproven).tolist()]
    bad += [judgement for judgement in broken if not judgement.passed]
    outcome = judged.outcome
    readings = int(outcome.readings.sum())
    if not bad:
        reason = Reason.of("replayed-without-baseline")
        if count := int(outcome.judged.sum()):
            reason = Reason.of("replayed-pass", judged=count, series=len(judged.table.first))
        return ReplayedRun(
            run_id=run_id,
            verdict=Verdict.PASS,
            reason=join((reason, *judged.watches())),
            suspects=(),
            readings=readings,
        )
    first = min(bad, key=lambda judgement: judgement.verdict.severity)
    others = other_problems(judgement.measurement for judgement in bad if judgement is not first)
    return ReplayedRun(
        run_id=run_id,
        verdict=first.verdict,
        reason=join((first.reason, others)),
        suspects=tuple(suspect for finding in findings for suspect in finding.suspects),
        readings=readings,
    )


def _series_of(row: Mapping[Any, Any], conditions: Sequence[str]) -> Measurement:
    """Return the series that a row is of, without its value."""
    labels = {}
    for name in conditions:
        if row[name] and row[name] == row[name]:  # NaN is not itself
            labels[name] = _condition(str(row[name]))
    better: Literal["higher", "lower"] = "lower" if row["better"] == "lower" else "higher"
    return Measurement(
        metric=row["metric"],
        value=math.nan,
        unit=row["unit"],
        subject=Subject(cast(SubjectKind, row["subject_kind"]), row["subject"]),
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
    nodes = rows[rows["subject_kind"].isin(("node", "gpu"))].drop_duplicates("subject")
    facts: dict[str, NodeHardware] = {}
    for subject, model, driver, clock in nodes[["subject", *FACTS]].itertuples(index=False):
        node, _, _ = subject.partition("/")
        mhz = None
        if clock.replace(".", "", 1).isdecimal():
            mhz = int(float(clock))
        facts.setdefault(node, NodeHardware(model, mhz, driver=driver))
    return facts


def rejudge(run: RunResult, store: "Store") -> RunResult:
    """Judge the run by today's rules and the runs before it; without its setup, not by catalog or
    physics.
    """
    setup = run.setup or Setup(
        hardware="", nodes=max(1, len(run.nodes)), gpus_per_node=0, slots_per_node=1
    )
    checks = [check.unjudged() for check in run.checks]
    context = RunContext(
        cluster=run.cluster,
        suite=whole_name(run.suite),
        fingerprint=run.fingerprint,
        started=run.started,
        nodes=run.nodes,
    )
    knowledge = knowledge_of(checks, setup, store, context)
    judged = explained(assess(checks, knowledge).checks, knowledge.setup)
    verdict, reason = conclude(judged, len(run.nodes))
    result = replace(
        run, verdict=verdict, reason=reason, checks=judged, suspects=merge_suspects(judged)
    )
    return replace(result, next_steps=next_steps(result))
