"""From the judged series of a run to a judgement for each, and few findings. Pure.

Many alike are one finding without suspects; what is wrong with one node, one GPU or one link is one
suspect.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from seatrial.detection.noise import AGREEING, ENOUGH, Bools
from seatrial.detection.outliers import MINORITY, Outcome, Shift
from seatrial.judge.series import SeriesJudge
from seatrial.model.baseline import FAIL_FACTOR
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join
from seatrial.model.result import Expected, Judgement, Suspect, SuspectKind
from seatrial.model.verdict import Verdict
from seatrial.text.headline import other_problems
from seatrial.text.words import measured, quantity, some_of


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause: its judgement, the places of the series that it stands for, and who is to
    blame.
    """

    judgement: Judgement
    series: tuple[int, ...]
    suspects: tuple[Suspect, ...] = ()


class JudgedSeries:
    """The judgement of each series of a run that has a reference, by its place."""

    def __init__(self, judge: SeriesJudge, outcome: Outcome) -> None:
        reference = judge.reference
        self.table, self.outcome, self.readings = judge.table, outcome, judge.readings
        alone = np.bincount(self.table.group)[self.table.group] == 1
        self._is_median = ((reference.runs >= ENOUGH) | (alone & (reference.runs > 0))) & (
            outcome.start == 0
        )
        centre = np.where(self._is_median, reference.own + outcome.moved, outcome.expected)
        self._centre = centre.tolist()
        self._low = (outcome.expected - outcome.limit).tolist()
        self._sign = self.table.sign.tolist()
        self._runs, self._value = reference.runs.tolist(), outcome.value.tolist()
        self._moved = outcome.moved.tolist()
        self.has_reference: list[bool] = outcome.judged.tolist()
        self._bad, self._times = outcome.bad.tolist(), outcome.readings.tolist()
        self.unproven = outcome.unproven  # no pass, and it teaches nothing
        self._sizes = np.bincount(self.table.group)[self.table.group].tolist()

    @property
    def bad(self) -> Bools:
        """Mask of the series that read too low, by themselves or with their peers; nothing is
        learned from them.
        """
        bad = self.outcome.bad.copy()
        for shift in self.outcome.shifts:
            bad[shift.members] |= shift.moved < -shift.limit
        return bad

    def judgement(self, i: int) -> Judgement:
        """Return the judgement of a series that has a reference."""
        m, bad = self.table.first[i], self._bad[i]
        unproven = bool(self.unproven[i])
        code = (
            "low-unproven"
            if unproven
            else f"worse-than-{self.source(i)}"
            if bad
            else "within-limit"
        )
        words: dict[str, object] = {
            "number": measured(self.measurement(i)),
            "against": self._against(i),
            "limit": percent_words(self._low[i] - self._centre[i], m),
        }
        if bad or unproven:
            words |= {
                "percent": percent_words(self._distance(i), m),
                "side": _side(m),
                "agreeing": int(self.outcome.agreeing[i]),
                "readings": int(self.outcome.readings[i]),
                "since": self._since(i),
            }
        elif self._times[i] > 1:
            words["number"] = f"{words['number']}, the median of {self._times[i]} measurements"
        low = self.table.value(i, self._low[i])
        expected = Expected(high=low) if m.better == "lower" else Expected(low=low)
        deviation = math.exp(self._sign[i] * (self._value[i] - self._centre[i])) - 1
        return Judgement(
            self.measurement(i),
            self.verdict(i),
            Reason.of(code, **words),
            self.source(i),
            expected,
            deviation,
        )

    def measurement(self, i: int) -> Measurement:
        """Return the series with the median of its readings."""
        m = self.table.first[i]
        if self._times[i] < 2 and m.finite:
            return m
        return Measurement(
            m.metric,
            self.table.value(i, self._value[i]),
            m.unit,
            m.subject,
            m.conditions,
            m.samples,
            m.better,
        )

    def verdict(self, i: int) -> Verdict:
        if self.unproven[i]:
            return Verdict.INCONCLUSIVE
        if not self._bad[i]:
            return Verdict.PASS
        return (
            Verdict.FAIL
            if self._value[i] < self._low[i] - math.log(FAIL_FACTOR)
            else Verdict.DEGRADED
        )

    def _distance(self, i: int) -> float:
        """Return how much lower than expected the series has read on average since the change."""
        start = int(self.outcome.start[i])
        return -float(self.outcome.loss[i]) if start else float(self._value[i] - self._centre[i])

    def _since(self, i: int) -> str:
        """Say since when a series is lower, and how sure that is; "" if it is since this run."""
        start = int(self.outcome.start[i])
        return (
            f", since {start + 1} runs ({self.confidence(i):.0%} sure)".replace("%", " %")
            if start
            else ""
        )

    def watches(self, names: Container[str] | None = None) -> Iterator[Reason]:
        """Yield series that look lower but not surely enough to be bad, among `names` or all."""
        for i in np.flatnonzero(self.outcome.watched).tolist():
            m, runs = self.measurement(i), int(self.outcome.start[i]) + 1
            if names is not None and m.series() not in names:
                continue
            yield Reason.of(
                "watched",
                number=measured(m),
                percent=percent_words(self._distance(i), m),
                worse="longer" if m.better == "lower" else "lower",
                since=f"since {runs} runs" if runs > 1 else "in this run",
                sure=round(100 * self.confidence(i)),
            )

    def source(self, i: int) -> str:
        return "history" if self._runs[i] else "peers"

    def confidence(self, i: int) -> float:
        """Return how sure it is that the series has become lower."""
        return round(float(self.outcome.confidence[i]), 2)

    def _against(self, i: int) -> str:
        m = self.table.first[i]
        centre = quantity(self.table.value(i, self._centre[i]), m.unit)
        kinds, peers, runs = _kinds(m), self._sizes[i], self._runs[i]
        if self.outcome.start[i]:
            words = f"its {centre} before"
        elif self._is_median[i] or (runs and peers == 1):
            words = f"its median of {centre} in {runs} runs"
        elif runs:
            words = (
                f"the {centre} expected from its {runs} run{'s'[: runs > 1]} and {peers - 1} "
                f"other {kinds}"
            )
        else:
            words = f"the median of {centre} of {peers} {kinds}"
        moved = self._moved[i]
        return f"{words}, less what all {kinds} moved by" if abs(moved) > 0.005 else words


def percent_words(distance: float, m: Measurement) -> str:
    """Format a ratio, given as the distance of logs, as percent lower or, of times, longer."""
    return f"{round(100 * abs(math.exp(-distance if m.better == 'lower' else distance) - 1), 1):g}"


def _kinds(m: Measurement) -> str:
    return "GPUs" if m.subject.kind == "gpu" else f"{m.subject.kind}s"


def _side(m: Measurement) -> str:
    return "above" if m.better == "lower" else "below"


def findings(judged: JudgedSeries) -> list[Finding]:
    """Return the findings, the worst first, and of equals those that name a node, GPU or link."""
    outcome = judged.outcome
    shifted = [
        _moved_together(judged, shift) for shift in outcome.shifts if shift.moved < -shift.limit
    ]
    alike, alone = _alike(judged, np.flatnonzero(outcome.bad).tolist())
    every = [*shifted, *alike, *_by_cause(judged, alone)]
    return sorted(
        every, key=lambda f: (f.judgement.verdict.severity, not f.suspects, -len(f.series))
    )


def _moved_together(judged: JudgedSeries, shift: Shift) -> Finding:
    """Return a finding on peers that are slower than in their past, or new and slower than the
    known ones.
    """
    places = shift.members.tolist()
    rest = int((judged.table.group == judged.table.group[places[0]]).sum()) - len(places)
    words = {
        "past": "their earlier runs",
        "known": f"the {rest} that are known",
        "others": f"the other {rest}",
    }
    judgement = _of_many(judged, places, words[shift.against], shift.moved, shift.limit)
    if not shift.bad:  # seen once, and nothing was measured again
        judgement = replace(judgement, verdict=Verdict.INCONCLUSIVE)
    return Finding(judgement, tuple(places))


def _alike(judged: JudgedSeries, bad: Sequence[int]) -> tuple[list[Finding], list[int]]:
    """Return findings on groups of which more than a third, or all that share a fact, are low; and
    the rest.
    """
    alike, left = [], []
    by_group: dict[int, list[int]] = defaultdict(list)
    for i in bad:
        by_group[int(judged.table.group[i])].append(i)
    for group, places in by_group.items():
        peers = np.flatnonzero(judged.table.group == group).tolist()
        slow, every = (
            _owning_nodes(judged.table.first[i].subject for i in some) for some in (places, peers)
        )
        is_shared = len(slow) > 1 and judged.table.groups.name_of(slow) and len(slow) < len(every)
        if is_shared or (len(slow) >= AGREEING and len(slow) > MINORITY * len(every)):
            distance = float(
                np.median([judged.outcome.value[i] - judged.outcome.expected[i] for i in places])
            )
            limit = float(np.median(judged.outcome.limit[places]))
            against = (
                "their earlier runs"
                if judged.source(places[0]) == "history"
                else f"the median of {len(peers)}"
            )
            alike.append(Finding(_of_many(judged, places, against, distance, limit), tuple(places)))
        else:
            left += places
    return alike, left


def _owning_nodes(subjects: Iterable[Subject]) -> set[str]:
    """Return the nodes of GPUs and nodes; links by their own names."""
    return {
        subject.name if subject.kind == "link" else subject.nodes[0]
        for subject in subjects
        if subject.nodes
    }


def _of_many(
    judged: JudgedSeries, places: Sequence[int], against: str, distance: float, limit: float
) -> Judgement:
    m = judged.table.first[places[0]]
    subjects = [judged.table.first[i].subject for i in places]
    kinds, total = _kinds(m), int((judged.table.group == judged.table.group[places[0]]).sum())
    names = _names(subjects)
    # What all of them have, and no other
    if alike := judged.table.groups.name_of(_owning_nodes(subjects)):
        names = f"those with {alike}"
        total = sum(_without_nodes(other) == _without_nodes(m) for other in judged.table.first)
    verdict = Verdict.FAIL if distance < -(limit + math.log(FAIL_FACTOR)) else Verdict.DEGRADED
    reason = Reason.of(
        "many-alike",
        metric=m.metric,
        count=len(places),
        total=total,
        kinds=kinds,
        names=names,
        percent=percent_words(distance, m),
        side=_side(m),
        against=against,
        limit=percent_words(-limit, m),
    )
    value = judged.table.value(
        places[0], float(np.median([judged.outcome.value[i] for i in places]))
    )
    subject = Subject("group", f"{len(places)} of {total} {kinds}")
    measurement = Measurement(m.metric, value, m.unit, subject, m.conditions, better=m.better)
    deviation = math.exp(-distance if m.better == "lower" else distance) - 1
    return Judgement(measurement, verdict, reason, judged.source(places[0]), deviation=deviation)


def _without_nodes(m: Measurement) -> tuple[object, ...]:
    return m.metric, m.unit, m.subject.kind, frozenset(m.conditions.items())


def _names(subjects: Sequence[Subject]) -> str:
    """Format names: "node-1, node-2 and 3 more", or "gpu-0 of each" for the same GPU of many
    nodes.
    """
    parts = {subject.name.partition("/")[2] for subject in subjects}
    if len(subjects) > 1 and len(parts) == 1 and "" not in parts:
        return f"{parts.pop()} of {len(subjects)} nodes"
    return some_of(sorted(_owning_nodes(subjects)))


def _by_cause(judged: JudgedSeries, bad: Sequence[int]) -> Iterator[Finding]:
    """Yield one finding for each node, GPU, link or number of the whole cluster."""
    distance = judged.outcome.value - judged.outcome.expected
    by_subject: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, (kind, name) in zip(bad, _culprits(judged, bad), strict=True):
        by_subject[kind, name].append(i)
    for (kind, name), places in by_subject.items():
        worst = min(places, key=lambda i: (judged.table.first[i].subject.kind != kind, distance[i]))
        judgement = judged.judgement(worst)
        if kind not in ("node", "gpu", "link"):
            yield Finding(judgement, tuple(places))
            continue
        others = other_problems(judged.table.first[i] for i in places if i != worst)
        evidence = join((judgement.reason, others))
        sure = max(judged.confidence(i) for i in places)
        suspect = Suspect(cast(SuspectKind, kind), name, sure, evidence, judgement.verdict)
        yield Finding(judgement, tuple(places), (suspect,))


def _culprits(judged: JudgedSeries, bad: Sequence[int]) -> list[tuple[str, str]]:
    """Return the culprit of each bad number.

    A node is that of its own number, of two or more of its GPUs, and of most of its links.
    """
    subjects = [judged.table.first[i].subject for i in bad]
    links = {subject.name for subject in subjects if subject.kind == "link"}
    measured: dict[str, set[str]] = defaultdict(set)
    for m in judged.table.first if links else ():
        if m.subject.kind == "link":
            for node in m.subject.nodes:
                measured[node].add(m.subject.name)
    nodes = {subject.name for subject in subjects if subject.kind == "node"}
    gpus = {subject.name: subject.nodes[0] for subject in subjects if subject.kind == "gpu"}
    # Two links at least, and more than half of those that the node has.
    nodes |= {
        node for node, names in measured.items() if len(names & links) > max(1.0, len(names) / 2)
    }
    nodes |= {node for node, count in Counter(gpus.values()).items() if count > 1}
    culprits: list[tuple[str, str]] = []
    for subject in subjects:
        guilty = next((node for node in subject.nodes if node in nodes), None)
        culprits.append((subject.kind, subject.name) if guilty is None else ("node", guilty))
    return culprits
