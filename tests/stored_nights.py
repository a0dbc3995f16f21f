"""Past nights as a store hands them out, for tests of what is judged against them."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from seatrial.history.rows import Readings, RunRow
from seatrial.judge.baselines.nights import Nights
from seatrial.judge.fleet.past import choose
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict


def nights_of(runs: Sequence[Check], changed: str = "", references: int | None = None) -> Nights:
    """What a store would hand out for runs that passed, one night apart, oldest first."""
    first = datetime(2026, 9, 1, 1, tzinfo=UTC)
    names = sorted({m.series() for check in runs for m in check.measurements})
    *started, tonight = (first + timedelta(days=night) for night in range(len(runs) + 1))
    known = [RunRow(f"run-{i}", "lab", "quick", t, t, Verdict.PASS, "", {}, "") for i, t in enumerate(started)]
    chosen = choose(np.ones(len(runs), dtype=bool), np.ones(len(runs), dtype=bool))
    count = len(chosen.reference) if references is None else references
    return Nights(
        names, known, count, _readings(runs, names), tonight, lambda some: (known, _readings(runs, some)), changed
    )


def _readings(runs: Sequence[Check], names: Sequence[str]) -> Readings:
    place = {name: i for i, name in enumerate(names)}
    rows: list[tuple[int, int, int, float]] = []
    for run, check in enumerate(runs):
        seen: Counter[str] = Counter()
        for m in (m for m in check.measurements if m.series() in place):
            rows.append((run, place[m.series()], seen[m.series()], m.value))
            seen[m.series()] += 1
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    whole = table[:, :3].astype(np.int64)
    return Readings(whole[:, 0], whole[:, 1], whole[:, 2], table[:, 3], np.full(len(rows), -1))
