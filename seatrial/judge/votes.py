"""From the judgements of a check's numbers to its verdict and the words for it.

Pure, without numpy.

A number that averages over a lot (a plateau, a training run) counts on its own. One message size is
a few timed iterations that a stolen time slice spoils, so the sizes of one operation vote: see
docs/decisions/0002-judging-with-few-samples.md.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from math import ceil, log

from seatrial.checks.metrics import tolerance_of
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Judgement
from seatrial.model.verdict import Verdict
from seatrial.text.headline import other_problems
from seatrial.text.words import metric_name, some_of

# Sanity and physics say that a number is wrong, which no noise explains.
_NOISY_SOURCES = frozenset({"peers", "pinned", "history", "catalog", "model"})


def summary(
    check: Check, judged: Sequence[Judgement], counted: Sequence[Judgement], *notes: Reason
) -> Reason:
    """Return the check's own words first, then the worst judgement, or what all of them rest on,
    with `notes`.
    """
    if not counted:
        rest = join((check.reason, rests_on(judged), *notes))
        return rest if check.passed else check.reason
    own = None if check.passed else check.reason
    others = other_problems(judgement.measurement for judgement in counted[1:])
    return join((own, counted[0].reason, others))


def is_noisy(judgement: Judgement) -> bool:
    return judgement.source in _NOISY_SOURCES


def is_sanity_pass(judgement: Judgement) -> bool:
    return judgement.source == "sanity" and judgement.passed


def rests_on(judgements: Sequence[Judgement]) -> Reason:
    """Say what a passing check was compared with, what was repeated, and which single sizes were
    let pass.
    """
    repeated = sum(bool(j.repeats) for j in judgements)
    odd = sum(not j.passed for j in judgements)
    parts = _compared_with(judgements)
    if repeated:
        numbers = "number was" if repeated == 1 else "numbers were"
        parts.append(Reason.of("numbers-repeated", count=repeated, numbers=numbers))
    if odd:
        sizes = "size" if odd == 1 else "sizes"
        parts.append(Reason.of("sizes-off", count=odd, sizes=sizes))
    return join(parts)


def _compared_with(judgements: Sequence[Judgement]) -> list[Reason]:
    """Say what numbers were compared with, and which of them with nothing."""
    compared = [j for j in judgements if j.compared]
    if not compared:
        return [Reason.of("not-compared")]
    sources = sorted({j.source for j in compared})
    parts = [Reason.of("as-expected", sources=" and ".join(sources))]
    with_baseline = set(map(_named, compared))
    every = dict.fromkeys(map(_named, judgements))
    without = [name for name in every if name not in with_baseline]
    if without:
        parts.append(Reason.of("partly-compared", numbers=some_of(without)))
    return parts


def _named(judgement: Judgement) -> str:
    """Return the operation of the judged number, else the name of its metric."""
    return judgement.measurement.operation or metric_name(judgement.measurement.metric)


def counting(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Return the judgements that decide the check, worst first: those that count alone, and single
    sizes that agree.
    """
    counted = []
    votes: dict[tuple[object, ...], list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        if _is_vote(judgement):
            sweep = _sweep(judgement.measurement)
            votes[sweep].append(judgement)
        elif not judgement.passed:
            counted.append(judgement)
    for group in votes.values():
        counted += _agreeing(group)
    return sorted(counted, key=worst_first)


def too_few_to_count(
    measured: Iterable[Measurement], low: Callable[[Measurement], bool]
) -> set[str]:
    """Return the names of single sizes whose sweep has too few `low` sizes to count."""
    sweeps: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for m in measured:
        if not tolerance_of(m).steady:
            sweeps[_sweep(m)].append(m)
    few = set[str]()
    for sizes in sweeps.values():
        needed = _needed({_size(m) for m in sizes})
        if len({_size(m) for m in sizes if low(m)}) < needed:
            few.update(m.series() for m in sizes)
    return few


def _is_vote(judgement: Judgement) -> bool:
    return is_noisy(judgement) and not tolerance_of(judgement.measurement).steady


def _sweep(m: Measurement) -> tuple[object, ...]:
    """Return what the sizes of one sweep have in common; its latency is a repeat of the smallest
    size.
    """
    shared = tuple(m.conditions.get(key) for key in ("operation", "arm", "dtype", "ranks"))
    return (m.subject, *shared)


def _agreeing(group: list[Judgement]) -> list[Judgement]:
    """Return the bad sizes of one sweep, at the verdict that half of its sizes reach (at least two,
    if it has two).
    """
    needed = _needed({_size(j.measurement) for j in group})
    for verdict in (Verdict.FAIL, Verdict.DEGRADED):
        bad = [j for j in group if j.verdict.severity <= verdict.severity]
        if len({_size(j.measurement) for j in bad}) >= needed:
            return [replace(j, verdict=verdict) for j in bad]
    return []


def _needed(sizes: Set[object]) -> int:
    """Return how many sizes of a sweep have to be bad to count."""
    return max(min(2, len(sizes)), ceil(len(sizes) / 2))


def _size(m: Measurement) -> object:
    return m.conditions.get("message_bytes")


def worst_first(judgement: Judgement) -> tuple[int, bool, float]:
    """Return a sort key: the worst verdict, numbers that count alone before single sizes, the
    largest factor.
    """
    ratio = 1 + (judgement.deviation or 0.0)
    distance = abs(log(ratio)) if ratio > 0 else float("inf")
    return judgement.verdict.severity, _is_vote(judgement), -distance
