"""The headline numbers: each with what is expected of it by whom, what the last good run had, and its history. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from seatrial.history.rows import RunRow
from seatrial.model.curves import worst_first
from seatrial.model.measurement import Measurement
from seatrial.model.result import Expected, Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.past import EarlierRuns, headlines
from seatrial.text import words

_SOFTWARE_TOLD = 3


@dataclass(frozen=True, slots=True)
class HeadlinePoint:
    """A headline number in one run; `software` is what is not as in the run before, in words."""

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
        """As short as it stays clear: busbw plateau of all_reduce."""
        operation = self.measurement.operation
        return words.metric_name(self.measurement.metric) + (f" of {operation}" if operation else "")

    @property
    def expected(self) -> Expected:
        return self.judgements[0].expected if self.judgements else Expected()

    @property
    def verdict(self) -> Verdict | None:
        return self.judgements[0].verdict if self.judgements else None

    @property
    def standing(self) -> str | None:
        """The verdict, or `unjudged` where it was compared with nothing."""
        return self.judgements[0].standing if self.judgements else None

    @property
    def change(self) -> float | None:
        """Against the last good run: -0.1 is a tenth less."""
        return self.measurement.value / self.last - 1 if self.last else None


def headline_numbers(result: RunResult, past: EarlierRuns) -> list[Headline]:
    """The headline numbers in the order of the checks."""
    return [_headline(m, result, past) for m in headlines(result)]


def _headline(m: Measurement, result: RunResult, past: EarlierRuns) -> Headline:
    series = m.series()
    own_judgements = [j for check in result.checks for j in check.judgements if j.measurement.series() == series]
    judgements = tuple(sorted(own_judgements, key=worst_first))
    now = HeadlinePoint(result.run_id, result.started, m.value, judgements[0].verdict if judgements else None)
    return Headline(m, judgements, past.last_value(series), (*_trend(series, past), now))


def _trend(series: str, past: EarlierRuns) -> Iterator[HeadlinePoint]:
    """The runs that have the number."""
    numbers = past.numbers.get(series, {})
    before: RunRow | None = None
    for row in past.runs:
        if (number := numbers.get(row.run_id)) and math.isfinite(number.value):
            software = software_changes(before, row) if before else ""
            yield HeadlinePoint(row.run_id, row.started, number.value, number.verdict, software)
        before = row


def software_changes(before: RunRow, after: RunRow) -> str:
    """What is not what it was: "nccl 2.26.2 to 2.27.3"."""
    old, new = before.fingerprint, after.fingerprint
    names = [name for name in dict.fromkeys((*old, *new)) if (old.get(name) or "") != (new.get(name) or "")]
    changes = [
        f"{name} {old.get(name) or 'unknown'} to {new.get(name) or 'unknown'}" for name in names[:_SOFTWARE_TOLD]
    ]
    more = [f"and {len(names) - _SOFTWARE_TOLD} more"] if len(names) > _SOFTWARE_TOLD else []
    return ", ".join((*changes, *more))
