"""What earlier runs measured, as the store hands it out, for tests of what is judged against it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median

import numpy as np

from seatrial.checks.contract import Repeated
from seatrial.checks.metrics import Doubt
from seatrial.history.past import PastRuns, chosen_runs
from seatrial.history.rows import RunRow
from seatrial.judge.assess import RunJudge
from seatrial.judge.knowledge import Knowledge
from seatrial.model.measurement import Measurement, by_series
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

FIRST = datetime(2026, 9, 1, 1, tzinfo=UTC)


def knowing(
    setup: Setup, runs: Sequence[Check], accepted: Sequence[bool] | bool = True, changed: str = ""
) -> Knowledge:
    """What is known after `runs`, one night apart, oldest first; those that were not accepted are
    `degraded`.
    """
    good = [accepted] * len(runs) if isinstance(accepted, bool) else list(accepted)
    rows = [_row(number, passed) for number, passed in enumerate(good)]
    place = {row.run_id: number for number, row in enumerate(rows)}
    chosen = chosen_runs(rows)
    names = sorted({m.series() for check in runs for m in check.measurements})
    return Knowledge(
        setup,
        past=_past(chosen, [runs[place[row.run_id]] for row in chosen], names, changed),
        names=names,
    )


def _row(number: int, passed: bool) -> RunRow:
    at = FIRST + timedelta(days=number)
    return RunRow(
        f"run-{number}",
        "lab",
        "quick",
        at,
        at,
        Verdict.PASS if passed else Verdict.DEGRADED,
        {},
        "",
    )


def _past(
    rows: Sequence[RunRow], runs: Sequence[Check], names: Sequence[str], changed: str
) -> PastRuns:
    shape = len(runs), len(names)
    first, second, middle = (np.full(shape, np.nan) for _ in range(3))
    within = np.zeros(shape)
    count = np.zeros(shape, dtype=np.int64)
    for i, check in enumerate(runs):
        taken = by_series(check.measurements)
        for j, name in enumerate(names):
            values = [m.value for m in taken.get(name, ())]
            if values:
                first[i, j], middle[i, j], count[i, j] = values[0], median(values), len(values)
            if len(values) > 1:
                second[i, j] = values[1]
                within[i, j] = np.var(values) * len(values) / np.mean(values) ** 2
    good = np.array([row.verdict is Verdict.PASS for row in rows], dtype=bool)[:, None] & (
        count > 0
    )
    return PastRuns(rows, first, second, middle, within, count, good, changed)


def settled(
    check: Check, knowledge: Knowledge, read: Callable[[Measurement], float] | None = None
) -> Check:
    """The judged check once nothing is in doubt any more; `read` measures again, else all readings
    are as the first.
    """
    judge, more = RunJudge([check], knowledge), list[Measurement]()
    while doubts := judge.doubts().get(check.name, []):
        again = [
            replace(d.measurement, value=read(d.measurement) if read else d.measurement.value)
            for d in doubts
        ]
        assert len(more) < 100 * len(check.measurements), "the doubts do not end"
        judge.add(again)
        more += again
    return judge.judged([replace(check, measurements=(*check.measurements, *more))])[0]


def as_before(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
    """Repeats in which each number reads again what it read the first time."""
    return {name: Repeated([doubt.measurement for doubt in some]) for name, some in doubts.items()}
