"""Measurements that were taken more than once: what counts of them, and which to take once more before blaming. Pure.

Where the judge of fleets knows enough it says itself what it doubts (seatrial/judge/fleet/suspicion.py).
Elsewhere two that agree decide: what looks bad is measured again, and a third time where those two disagree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from seatrial.checks.repeated import Doubt
from seatrial.judge.baselines.learned import Learned
from seatrial.judge.tolerance import tolerance_of
from seatrial.model.measurement import Measurement, by_series
from seatrial.model.reason import rewritten
from seatrial.model.result import Judgement
from seatrial.model.verdict import Verdict

# Sanity and physics say that a number is wrong, which no noise explains.
NOISY_SOURCES = frozenset({"peers", "pinned", "history", "catalog", "model"})
_AGREEING = 2


def with_repeats(judgement: Judgement, taken: Sequence[Measurement]) -> Judgement:
    """The judgement of a median with what it is the median of, if it is one."""
    if len(taken) < 2:
        return judgement
    repeats = tuple(m.value for m in taken)
    reason = rewritten(judgement.reason, lambda sentence: f"{sentence}; the median of {len(repeats)} measurements")
    return replace(judgement, repeats=repeats, reason=reason)


def doubts(
    judgements: Iterable[Judgement], counted: Iterable[Judgement], measured: Iterable[Measurement], learned: Learned
) -> list[Doubt]:
    """What to measure once more before its judgement is sure; `counted` are the bad ones that decide the check."""
    taken, deciding = by_series(measured), {j.measurement.series() for j in counted}
    doubt_by_check = {}
    for j in judgements:
        series = j.measurement.series()
        if j.source in NOISY_SOURCES and series in taken and series not in doubt_by_check:
            values = [m.value for m in taken[series]]
            most = _most(j, series, values, series in deciding, learned)
            if len(values) < most:
                doubt_by_check[series] = Doubt(j.measurement, len(values), most)
    return list(doubt_by_check.values())


def _most(j: Judgement, series: str, values: Sequence[float], decides: bool, learned: Learned) -> int:
    """How often at most the series is to be measured; 0 where its judgement is sure."""
    if j.source in ("history", "peers") and series in learned.baselines:
        if series in learned.doubtful and not (j.verdict is Verdict.PASS and tolerance_of(j.measurement).coarse):
            return learned.doubtful[series]
        if j.verdict is Verdict.PASS or series in learned.remarks:
            return 0
    return 2 * _AGREEING - 1 if _undecided(j, values, decides) else 0


def _undecided(j: Judgement, values: Sequence[float], decides: bool) -> bool:
    bad = sum(_outside(j, value) for value in values)
    return decides if len(values) == 1 else max(bad, len(values) - bad) < _AGREEING


def _outside(j: Judgement, value: float) -> bool:
    low, high = j.expected.low, j.expected.high
    return (low is not None and value < low) or (high is not None and value > high)
