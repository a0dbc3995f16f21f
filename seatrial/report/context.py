"""Context of a report: earlier runs, headline numbers with their history, and log files."""

import logging
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from seatrial.campaign.bands import Band, bands_of
from seatrial.config.run import log_files as run_logs
from seatrial.history.past import changes
from seatrial.history.rows import VERDICTS, RunRow
from seatrial.model.curves import worst_first
from seatrial.model.errors import classed, described
from seatrial.model.measurement import Measurement, once
from seatrial.model.result import Expected, Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.difference import Change
from seatrial.system.private import read_opener
from seatrial.text import words
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from seatrial.history.store import Store


RUNS_SHOWN = 60
log = logging.getLogger("seatrial.report")
LOG_TAIL_LINES = 25
MAX_LOGS = 3000


@dataclass(frozen=True, slots=True)
class Number:
    """A value (of repeats, the median) in its measurement's unit; `verdict` is None if it was only
    recorded.
    """

    value: float
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Earlier runs of the same cluster and suite, oldest first, and what they measured, by series
    and run id.

    `last_good` is the newest of them that passed; it may be older than all of `runs`. `problem`
    says why nothing is known, where that is not because nothing was run.
    """

    runs: tuple[RunRow, ...] = ()
    last_good: RunRow | None = None
    numbers: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    problem: str = ""

    def last_value(self, series: str) -> float | None:
        """Return the value of that series in the last good run, None without one."""
        if self.last_good is None:
            return None
        number = self.numbers.get(series, {}).get(self.last_good.run_id)
        if number is None:
            return None
        return number.value


NO_PAST = EarlierRuns()


def past_of(result: RunResult, store: "Store") -> EarlierRuns:
    """Read the runs before this one from `store`. Raises SeatrialError.

    Of the last good run, the curves of busbw are read as well as the headline numbers.
    """
    which = (result.cluster, result.suite, result.started)
    last_good = next(iter(store.runs_before(*which, 1, Verdict.PASS)), None)
    shown = tuple(reversed(store.runs_before(*which, RUNS_SHOWN)))
    if not shown:
        return NO_PAST
    requested = headlines(result)
    numbers = _numbers(store, [row.run_id for row in shown], requested)
    if last_good:
        curves = (m for m in _of_the_cluster(result) if m.metric == "busbw")
        of_last = _numbers(store, [last_good.run_id], (*requested, *curves))
        for series, by_run in of_last.items():
            numbers[series] = {**numbers.get(series, {}), **by_run}
    return EarlierRuns(shown, last_good, numbers)


def _numbers(
    store: "Store", run_ids: Sequence[str], requested: Iterable[Measurement]
) -> dict[str, dict[str, Number]]:
    """Return finite values by series and run id: of repeats the median, with the verdict of the
    first.
    """
    names = list(dict.fromkeys(m.series() for m in requested))
    medians = store.readings(run_ids, names).medians()
    numbers: dict[str, dict[str, Number]] = defaultdict(dict)
    for run, series, value, judged in medians.itertuples(index=False):
        verdict = VERDICTS[judged] if judged >= 0 else None
        numbers[names[series]][run_ids[run]] = Number(value, verdict)
    return dict(numbers)


def headlines(result: RunResult) -> list[Measurement]:
    """Return the numbers of the whole cluster to compare runs by: plateaus, latency, throughput,
    ...

    Of the latencies of an operation, only that of the smallest message; each series once.
    """
    of_cluster = _of_the_cluster(result)
    whole = [m for m in of_cluster if m.better and "message_bytes" not in m.conditions]
    latencies: dict[object, list[Measurement]] = defaultdict(list)
    for m in of_cluster:
        if m.metric == "latency":
            latencies[m.operation].append(m)
    smallest = [min(of_one, key=_small_first) for of_one in latencies.values()]
    by_series: dict[str, Measurement] = {}
    for m in (*whole, *smallest):
        by_series.setdefault(m.series(), m)
    return list(by_series.values())


def _small_first(m: Measurement) -> tuple[int, bool]:
    """Sort by message size, and out of place first."""
    size = m.conditions.get("message_bytes")
    return (size if isinstance(size, int) else 0, m.conditions.get("placement") == "in_place")


def _of_the_cluster(result: RunResult) -> list[Measurement]:
    """Return finite measurements of the cluster; from judgements if only run.json is left."""
    every: list[Measurement] = []
    for check in result.checks:
        every += once(check.measurements)
        every += [judgement.measurement for judgement in check.judgements]
    return [m for m in every if m.subject.kind == "cluster" and m.finite]


def software(result: RunResult, past: EarlierRuns) -> list[Change]:
    """Return every fact of the fingerprint with the last good run's, also those that are the
    same.
    """
    now = result.fingerprint
    before = past.last_good.fingerprint if past.last_good else {}
    names = dict.fromkeys((*now, *before))
    return [Change(name, before.get(name) or None, now.get(name) or None) for name in names]


@dataclass(frozen=True, slots=True)
class HeadlinePoint:
    """A headline number in one run; `software` names changes since the run before."""

    run_id: str
    started: datetime
    value: float
    verdict: Verdict | None
    software: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """One number of the whole cluster; `judgements` come worst first, `trend` oldest first."""

    measurement: Measurement
    judgements: tuple[Judgement, ...]
    last: float | None
    trend: tuple[HeadlinePoint, ...]

    @property
    def name(self) -> str:
        return words.metric_of(self.measurement)

    @property
    def expected(self) -> Expected:
        """What the worst judgement expected; nothing where it was only recorded."""
        if not self.judgements:
            return Expected()
        return self.judgements[0].expected

    @property
    def verdict(self) -> Verdict | None:
        """The worst verdict; None where it was only recorded."""
        if not self.judgements:
            return None
        return self.judgements[0].verdict

    @property
    def compared(self) -> bool:
        """Whether the number was compared with a baseline."""
        return any(judgement.compared for judgement in self.judgements)

    @property
    def change(self) -> float | None:
        """The relative change against the last good run, such as -0.1; None without such a run, or
        if it measured 0.
        """
        if not self.last:
            return None
        return self.measurement.value / self.last - 1


def headline_numbers(result: RunResult, past: EarlierRuns) -> list[Headline]:
    """Return the headline numbers in the order of the checks."""
    numbers = []
    for m in headlines(result):
        series = m.series()
        own_judgements = [
            judgement
            for check in result.checks
            for judgement in check.judgements
            if judgement.measurement.series() == series
        ]
        judgements = tuple(sorted(own_judgements, key=worst_first))
        verdict = judgements[0].verdict if judgements else None
        now = HeadlinePoint(result.run_id, result.started, m.value, verdict)
        last = past.last_value(series)
        numbers.append(Headline(m, judgements, last, (*_trend(series, past), now)))
    return numbers


def _trend(series: str, past: EarlierRuns) -> Iterator[HeadlinePoint]:
    """Yield the earlier runs that have the number.

    What changed in the software is told against the run before, whether that has the number or
    not.
    """
    numbers = past.numbers.get(series, {})
    before: RunRow | None = None
    for row in past.runs:
        number = numbers.get(row.run_id)
        if number and math.isfinite(number.value):
            software = changes(before.fingerprint, row.fingerprint) if before else ""
            yield HeadlinePoint(row.run_id, row.started, number.value, number.verdict, software)
        before = row


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file below `logs/`; `href` leads there from the report beside it."""

    name: str
    href: str
    size: int


@dataclass(frozen=True, slots=True)
class ReportContext:
    """What a report shows beside the result.

    `log_tail` are the last lines of the run's log, shown when the verdict is not a pass. `bands`
    are the numbers of a campaign over its hours.
    """

    past: EarlierRuns = NO_PAST
    logs: tuple[LogFile, ...] = ()
    log_tail: tuple[str, ...] = ()
    bands: Sequence[Band] = ()


NO_CONTEXT = ReportContext()


def context_of(
    result: RunResult, folder: Path, store: "Store | None" = None, log_file: Path | None = None
) -> ReportContext:
    """Collect the context of the run in `folder`; errors of the store are shown in the report."""
    tail = _tail(log_file or folder / "logs" / "run.log")
    return ReportContext(_past(result, store), log_files(folder), tail, _bands(result, store))


def log_files(folder: Path) -> tuple[LogFile, ...]:
    """List non-empty files below `logs/` without links, those of the run before those of its
    nodes.
    """
    paths = [path for path in run_logs(folder) if path.stat().st_size]
    paths.sort(key=lambda path: len(path.parts))
    logs = []
    for path in paths[:MAX_LOGS]:
        below = path.relative_to(folder)
        name = Path(*below.parts[1:]).as_posix()
        # Names that are no UTF-8 lead to the file too
        href = quote(os.fsencode(below.as_posix()))
        logs.append(LogFile(name, href, path.stat().st_size))
    return tuple(logs)


def _past(result: RunResult, store: "Store | None") -> EarlierRuns:
    """Read the earlier runs, or say why nothing is known of them."""
    if store is None:
        return EarlierRuns(problem="the history could not be opened")
    try:
        return past_of(result, store)
    except Exception as error:  # a report without its past is worth more than none
        problem = described(error)
        log.warning("the report goes without earlier runs: %s", problem)
        return EarlierRuns(problem=problem)


def _bands(result: RunResult, store: "Store | None") -> Sequence[Band]:
    """Read the numbers of a campaign over its hours; none without a store, or where it fails."""
    if store is None:
        return ()
    try:
        return bands_of(result, store)
    except Exception as error:  # a report without pictures is worth more than none
        log.warning("the report goes without pictures of the campaign: %s", classed(error))
        return ()


def _tail(log_file: Path) -> tuple[str, ...]:
    """Read the last lines of the log without secrets; links are not followed."""
    if not log_file.is_file() or log_file.is_symlink():
        return ()
    most_bytes = LOG_TAIL_LINES * 400
    with open(log_file, "rb", opener=read_opener) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - most_bytes))
        text = file.read(most_bytes).decode(errors="replace")
    lines = text.splitlines()[-LOG_TAIL_LINES:]
    return tuple(Secrets.of(os.environ).out_of(lines))
