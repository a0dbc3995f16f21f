"""What it means that the numbers of like nodes fall into two groups. Pure. The rules: docs/verdicts.md."""

from collections.abc import Iterable, Iterator

from seatrial.checks.repeated import Doubt
from seatrial.judge.baselines.grouping import Split
from seatrial.judge.tolerance import FAIL_FACTOR
from seatrial.model.measurement import Measurement, Subject, by_series
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Judgement, Suspect
from seatrial.model.verdict import Verdict
from seatrial.text.numbers import short
from seatrial.text.words import some_of

MINORITY = 1 / 3  # of the nodes: where more of them are slow, nobody can tell which side is healthy
_CONFIDENCE = 0.5


def splits_of(check: Check, splits: Iterable[Split]) -> list[Split]:
    """Those of the numbers that the check measured."""
    series = {m.series() for m in check.measurements}
    return [split for split in splits if not split.series.isdisjoint(series)]


def judge_splits(splits: Iterable[Split]) -> list[Judgement]:
    """One for each split that earlier runs do not show."""
    return [_judged(split) for split in splits if not split.known]


def slower_together(splits: Iterable[Split]) -> list[Suspect]:
    """The nodes of small groups that earlier runs do not show."""
    new = [split for split in splits if not split.known and is_minority(split)]
    return [Suspect("node", name, _CONFIDENCE, _judged(split).reason) for split in new for name in split.slow]


def measure_twice(splits: Iterable[Split], measured: Iterable[Measurement]) -> list[Doubt]:
    """The slow nodes that were measured once: nobody is blamed for a single measurement."""
    slow = frozenset[str]().union(*(split.series for split in splits if not split.known))
    return [Doubt(taken[0], 1, 2) for series, taken in by_series(measured).items() if series in slow and len(taken) < 2]


def is_minority(split: Split) -> bool:
    return len(split.slow) <= MINORITY * (len(split.slow) + len(split.fast))


def known_groups(splits: Iterable[Split]) -> Iterator[str]:
    """2 groups by their numbers: 58 nodes, 6 nodes up to 30 % slower (matmul)."""
    by_nodes: dict[tuple[str, ...], list[Split]] = {}
    for split in splits:
        if split.known:
            by_nodes.setdefault(split.slow, []).append(split)
    for slow, alike in by_nodes.items():
        metrics, most = some_of(dict.fromkeys(split.example.metric for split in alike)), max(map(_percent, alike))
        sizes = f"{len(alike[0].fast):,} nodes, {len(slow):,} nodes up to {most} % slower"
        yield f"2 groups by their numbers: {sizes} ({metrics})"


def _percent(split: Split) -> int:
    """How much slower the slow nodes are; of times, by the speed that they are the inverse of."""
    ratio = split.slow_median / split.fast_median
    return round(100 * (1 - (1 / ratio if split.example.better == "lower" else ratio)))


def _judged(split: Split) -> Judgement:
    """Never a pass: a few slow nodes are `degraded`, below half the speed `fail`; of two large groups nobody can tell
    which is healthy, so it is `inconclusive`."""
    m, total = split.example, len(split.slow) + len(split.fast)
    reason = Reason.of(
        "nodes-divided" if is_minority(split) else "nodes-divided-evenly",
        metric=m.metric,
        slow=len(split.slow),
        nodes=total,
        names=some_of(split.slow),
        percent=_percent(split),
        slow_median=f"{short(split.slow_median)} {m.unit}".strip(),
        fast_median=f"{short(split.fast_median)} {m.unit}".strip(),
    )
    subject = Subject("group", f"{len(split.slow)} of {total} nodes")
    lot = Measurement(m.metric, split.slow_median, m.unit, subject, m.conditions, better=m.better)
    deviation = split.slow_median / split.fast_median - 1
    return Judgement(lot, _verdict(split), reason, "peers", deviation=deviation)


def _verdict(split: Split) -> Verdict:
    if not is_minority(split):
        return Verdict.INCONCLUSIVE
    return Verdict.FAIL if _percent(split) > 100 * (1 - 1 / FAIL_FACTOR) else Verdict.DEGRADED
