"""Earlier runs in the report: the last good one, and the history of each headline number."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from seatrial.history.rows import VERDICTS, RunRow
from seatrial.model.measurement import Measurement, once
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.difference import Change

if TYPE_CHECKING:
    from seatrial.history.store import Store

RUNS_SHOWN = 60
_RUNS_SEARCHED = 500  # other suites run on the same cluster


@dataclass(frozen=True, slots=True)
class Number:
    """A value in its measurement's unit, of repeats the median as it was judged; None where it was only recorded."""

    value: float
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Earlier runs of the same cluster and suite, oldest first, and what they measured, by series and run id.

    `last_good` is the newest of them that passed; it may be older than all of `runs`. `problem` says why nothing is
    known, where that is not because nothing was run.
    """

    runs: tuple[RunRow, ...] = ()
    last_good: RunRow | None = None
    numbers: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    problem: str = ""

    def last_value(self, series: str) -> float | None:
        """What the last good run measured of that series; None where it did not."""
        if self.last_good is None:
            return None
        number = self.numbers.get(series, {}).get(self.last_good.run_id)
        return number.value if number else None


NO_PAST = EarlierRuns()


def past_of(result: RunResult, store: "Store") -> EarlierRuns:
    """What `store` knows of the runs before this one. Raises SeatrialError when it cannot be read."""
    rows = [row for row in store.runs(result.cluster, _RUNS_SEARCHED) if _is_earlier(row, result)]
    last_good = next((row for row in rows if row.verdict is Verdict.PASS), None)
    shown = tuple(reversed(rows[:RUNS_SHOWN]))
    if not shown:
        return NO_PAST
    numbers = _numbers(store, [row.run_id for row in shown], headlines(result))
    if last_good:
        of_last = _numbers(store, [last_good.run_id], (*headlines(result), *_curves(result)))
        numbers = {series: {**numbers.get(series, {}), **of_last.get(series, {})} for series in {**numbers, **of_last}}
    return EarlierRuns(shown, last_good, numbers)


def _numbers(store: "Store", run_ids: Sequence[str], requested: Iterable[Measurement]) -> dict[str, dict[str, Number]]:
    """By series and run id; a run that has no finite value of a series is left out."""
    names = list(dict.fromkeys(m.series() for m in requested))
    readings = store.readings(run_ids, names)
    taken: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, place in enumerate(zip(readings.series.tolist(), readings.run.tolist(), strict=True)):
        taken[place].append(at)
    numbers: dict[str, dict[str, Number]] = defaultdict(dict)
    for (series, run), rows in taken.items():
        judged = int(readings.verdict[rows[0]])
        verdict = VERDICTS[judged] if judged >= 0 else None
        numbers[names[series]][run_ids[run]] = Number(median(readings.value[rows].tolist()), verdict)
    return dict(numbers)


def headlines(result: RunResult) -> list[Measurement]:
    """The numbers of the whole cluster that runs are compared by, each once: plateaus, latency, throughput, ..."""
    measurements: dict[str, Measurement] = {}
    for m in _of_the_cluster(result):
        if m.better and "message_bytes" not in m.conditions:
            measurements.setdefault(m.series(), m)
    for m in _smallest_latencies(result):
        measurements.setdefault(m.series(), m)
    return list(measurements.values())


def _smallest_latencies(result: RunResult) -> list[Measurement]:
    """Latency counts where the message is smallest; out of place, where both were measured."""
    by_operation: dict[object, Measurement] = {}
    for m in _of_the_cluster(result):
        if m.metric != "latency":
            continue
        operation = m.operation
        if operation not in by_operation or _small_first(m) < _small_first(by_operation[operation]):
            by_operation[operation] = m
    return list(by_operation.values())


def _small_first(m: Measurement) -> tuple[int, bool]:
    size = m.conditions.get("message_bytes")
    return (size if isinstance(size, int) else 0, m.conditions.get("placement") == "in_place")


def _curves(result: RunResult) -> Iterable[Measurement]:
    return (m for m in _of_the_cluster(result) if m.metric == "busbw")


def _of_the_cluster(result: RunResult) -> list[Measurement]:
    """Measured or, where only run.json is left, judged."""
    every = (
        m for check in result.checks for m in (*once(check.measurements), *(j.measurement for j in check.judgements))
    )
    return [m for m in every if m.subject.kind == "cluster" and m.finite]


def _is_earlier(row: RunRow, result: RunResult) -> bool:
    return row.suite == result.suite and row.run_id != result.run_id and row.started < result.started


def software(result: RunResult, past: EarlierRuns) -> list[Change]:
    """Every fact of the fingerprint beside the last good run's; equal on both sides where nothing changed."""
    before = past.last_good.fingerprint if past.last_good else {}
    names = dict.fromkeys((*result.fingerprint, *before))
    return [Change(name, before.get(name) or None, result.fingerprint.get(name) or None) for name in names]
