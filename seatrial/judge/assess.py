"""From judgements to the verdict of a check. Pure: checks and knowledge in, checks out.

A number that averages over a lot (a plateau, a training run) counts on its own. One message size is a few timed
iterations that a stolen time slice spoils, so the sizes of one operation vote: see
docs/decisions/0002-judging-with-few-samples.md.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from typing import Literal, cast

from seatrial.checks.repeated import Doubt
from seatrial.judge.baselines.learned import Learned, learn
from seatrial.judge.baselines.nights import Nights
from seatrial.judge.baselines.peers import from_peers
from seatrial.judge.baselines.selection import Knowledge, baselines_for
from seatrial.judge.tolerance import tolerance_of
from seatrial.judge.completeness import blamed_nodes, unmeasured, without_rate
from seatrial.judge.divided import judge_splits, measure_twice, slower_together, splits_of
from seatrial.judge.judge import judge
from seatrial.judge.repeats import NOISY_SOURCES, doubts, with_repeats
from seatrial.judge.summary import groups_of, summary
from seatrial.model.measurement import Measurement, by_series, once
from seatrial.model.reason import join, rewritten
from seatrial.model.result import Check, Judgement, Suspect
from seatrial.model.verdict import Verdict, worst

# Of suspects among a few peers, at least. In simulated runs all were right, but of few: docs/error-rates.md.
_CONFIDENCE = {Verdict.DEGRADED: 0.6, Verdict.FAIL: 0.8}


@dataclass(frozen=True, slots=True)
class Assessment:
    """The checks with their judgements and verdicts, and by check what to measure once more before those are sure."""

    checks: list[Check]
    doubts: dict[str, list[Doubt]]


def assess(checks: Sequence[Check], knowledge: Knowledge) -> Assessment:
    """Judge each measurement that can be judged, and say what follows from that for its check.

    All numbers of the run are judged together: how sure the judge must be depends on how many there are. Measurements
    of the same series in one check are repeats, in the order they were taken, and count by their median.
    """
    learned = learn((m for check in checks for m in check.measurements), knowledge.nights, knowledge.groups)
    judged = [(check, _judgements(check, knowledge, learned)) for check in checks]
    nodes, blamed = knowledge.nodes or knowledge.setup.nodes, blamed_nodes(checks)
    doubted = ((check.name, _doubts(check, new, learned)) for check, new in judged)
    return Assessment(
        [
            _assessed(check, new, learned, list(unmeasured(check, nodes, blamed)), groups_of(check, knowledge, learned))
            for check, new in judged
        ],
        {name: some for name, some in doubted if some},
    )


def _doubts(check: Check, judgements: Sequence[Judgement], learned: Learned) -> list[Doubt]:
    """What no rule doubts by itself is doubted where it divides its peers."""
    own = doubts(judgements, counting(judgements), check.measurements, learned)
    series = {doubt.measurement.series() for doubt in own}
    divided = measure_twice(splits_of(check, learned.splits), check.measurements)
    return [*own, *(doubt for doubt in divided if doubt.measurement.series() not in series)]


def _judgements(check: Check, knowledge: Knowledge, learned: Learned) -> list[Judgement]:
    """One judgement per series; "no baseline yet" is left out where the check has judged the number itself."""
    counts, taken = replace(check, measurements=once(check.measurements)), by_series(check.measurements)
    known = {j.measurement.series() for j in check.judgements}
    judgements = (*_each(counts, knowledge, learned), *_all_alike(counts, knowledge, learned))
    relevant = [j for j in judgements if not (_is_sanity_pass(j) and j.measurement.series() in known)]
    divided = judge_splits(splits_of(counts, learned.splits))
    new = (_changed(j, knowledge.nights) for j in (*relevant, *_judged_by_peers(counts, knowledge, learned), *divided))
    return [with_repeats(j, taken.get(j.measurement.series(), ())) for j in new]


def _assessed(
    check: Check, new: Sequence[Judgement], learned: Learned, missing: Sequence[str], groups: Sequence[str]
) -> Check:
    """`missing` says which numbers some nodes lack, `groups` which nodes were compared with each other alone."""
    if not new:
        return check
    counted, splits = counting(new), splits_of(check, learned.splits)
    verdicts = (check.verdict, *(j.verdict for j in counted), *(Verdict.INCONCLUSIVE for _ in missing))
    reason = summary(check, new, counted, groups)
    return replace(
        check,
        verdict=worst(verdicts),
        reason=join((reason, *missing) if counted else (*missing, reason)),
        judgements=(*check.judgements, *new),
        suspects=(*check.suspects, *_suspects(new, learned), *slower_together(splits)),
        before_judging=check.by_itself,
    )


def _each(check: Check, knowledge: Knowledge, learned: Learned) -> Iterator[Judgement]:
    for m in check.measurements:
        series = m.series()
        own = learned.baselines.get(series)
        past = own if own and own.source == "history" else None
        judgement = judge(m, baselines_for(m, knowledge, check.measurements, past))
        if judgement:
            yield _remarked(judgement, series, learned) if judgement.source == "history" else judgement


def _all_alike(check: Check, knowledge: Knowledge, learned: Learned) -> Iterator[Judgement]:
    """Peers that are slower together, in the check that measured them; not where a person approved how they are."""
    unpinned = {_what(m) for m in check.measurements if m.series() not in knowledge.pinned}
    for m, baseline in learned.together:
        judgement = judge(m, [baseline])
        if judgement and _what(m) in unpinned:
            yield judgement


def _what(m: Measurement) -> tuple[object, ...]:
    return m.metric, m.unit, frozenset(m.conditions.items())


def _judged_by_peers(check: Check, knowledge: Knowledge, learned: Learned) -> list[Judgement]:
    """By the judge of fleets where there are enough peers, else by the rule for few; a pin judges alone."""
    unpinned = [m for m in check.measurements if m.series() not in knowledge.pinned]
    known = {*knowledge.pinned, *learned.baselines}
    pairs = from_peers(check.measurements, knowledge.groups, learned.slower)
    few = [pair for pair in pairs if pair[0].series() not in known]
    judgements = [judge(measurement, [baseline]) for measurement, baseline in few]
    for m in unpinned:
        own = learned.baselines.get(m.series())
        if own and own.source == "peers":
            judgement = judge(m, [own])
            judgements.append(judgement and _remarked(judgement, m.series(), learned))
    return [j for j in judgements if j]


def _remarked(judgement: Judgement, series: str, learned: Learned) -> Judgement:
    """A bad judgement with what it rests on, and since when it is bad."""
    remark = learned.remarks.get(series)
    if remark is None or judgement.verdict is Verdict.PASS:
        return judgement
    return replace(judgement, reason=_with(judgement.reason, remark), drift=learned.drifts.get(series))


def _changed(judgement: Judgement, nights: Nights | None) -> Judgement:
    """A bad number of the history whose software is not tonight's: what has changed is the first thing to look at."""
    if not nights or not nights.changed or judgement.verdict is Verdict.PASS or judgement.source != "history":
        return judgement
    return replace(judgement, reason=_with(judgement.reason, f"changed with {nights.changed}"))


def _with(reason: str, remark: str) -> str:
    """The reason, which keeps its code, and the remark."""
    return rewritten(reason, lambda sentence: f"{sentence}; {remark}")


def _is_sanity_pass(judgement: Judgement) -> bool:
    return judgement.source == "sanity" and judgement.verdict is Verdict.PASS


def counting(judgements: Iterable[Judgement]) -> list[Judgement]:
    """The judgements that decide the check, worst first: those that count alone, and single sizes that agree."""
    alone, votes = [], defaultdict(list)
    for judgement in judgements:
        if _is_vote(judgement):
            votes[_sweep(judgement)].append(judgement)
        else:
            alone.append(judgement)
    agreed = [j for group in votes.values() for j in _agreeing(group)]
    return sorted((j for j in (*alone, *agreed) if j.verdict is not Verdict.PASS), key=_order)


def _is_vote(judgement: Judgement) -> bool:
    return judgement.source in NOISY_SOURCES and not tolerance_of(judgement.measurement).steady


def _sweep(judgement: Judgement) -> tuple[object, ...]:
    """What the sizes of one sweep have in common; its latency is the smallest size over again."""
    m = judgement.measurement
    shared = tuple(m.conditions.get(key) for key in ("operation", "arm", "dtype", "ranks"))
    return (m.subject, *shared)


def _agreeing(group: list[Judgement]) -> list[Judgement]:
    """The bad sizes of one sweep at the verdict that at least half of its sizes (and two, if it has two) reach."""
    sizes = {_size(j) for j in group}
    needed = max(min(2, len(sizes)), ceil(len(sizes) / 2))
    for verdict in (Verdict.FAIL, Verdict.DEGRADED):
        bad = [j for j in group if j.verdict.severity <= verdict.severity]
        if len({_size(j) for j in bad}) >= needed:
            return [replace(j, verdict=verdict) for j in bad]
    return []


def _size(judgement: Judgement) -> object:
    return judgement.measurement.conditions.get("message_bytes")


def _order(judgement: Judgement) -> tuple[int, bool, float]:
    """Worst verdict first, numbers that count alone before single sizes, the largest factor first."""
    ratio = 1 + (judgement.deviation or 0.0)
    distance = abs(log(ratio)) if ratio > 0 else float("inf")
    return judgement.verdict.severity, _is_vote(judgement), -distance


def _suspects(judgements: Sequence[Judgement], learned: Learned) -> list[Suspect]:
    """The nodes, GPUs and links that stand out among their peers, that the odds are against, or that move nothing."""
    likely = learned.confidence
    blamed = (
        j for j in judgements if j.source == "peers" or (j.source == "history" and j.measurement.series() in likely)
    )
    return [
        _suspect(j, likely.get(j.measurement.series(), _CONFIDENCE[j.verdict]))
        for j in (*blamed, *without_rate(judgements))
        if _blames(j)
    ]


def _blames(judgement: Judgement) -> bool:
    return judgement.verdict in _CONFIDENCE and judgement.measurement.subject.kind in ("node", "gpu", "link")


def _suspect(judgement: Judgement, confidence: float) -> Suspect:
    subject = judgement.measurement.subject
    return Suspect(cast(Literal["node", "gpu", "link"], subject.kind), subject.name, confidence, judgement.reason)
