"""From the judged series of a run to a judgement for each, and few findings. Pure.

Many alike are one finding without suspects; what is wrong with one node, one GPU or one link is one
suspect.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from seatrial.detection.noise import AGREEING, ENOUGH
from seatrial.detection.outliers import Outcome
from seatrial.detection.readings import Bools
from seatrial.detection.shifts import MINORITY, Shift
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
    """The judgement of each series of a run that has a reference, by its place.

    Lists, since single series are asked for: `_centre` is what is expected of each, its own median
    where `_is_median`, `_low` the limit below it, both as logs like its `_value`. `_runs` and
    `_times` count earlier runs and readings of this one, `_sizes` the series of its group.
    """

    def __init__(self, judge: SeriesJudge, outcome: Outcome) -> None:
        """Read from the outcome what the judgements say."""
        reference = judge.reference
        self.table = judge.table
        self.outcome = outcome
        self.readings = judge.readings
        sizes = np.bincount(self.table.group)[self.table.group]
        has_enough = (reference.runs >= ENOUGH) | ((sizes == 1) & (reference.runs > 0))
        self._is_median = has_enough & (outcome.start == 0)
        centre = np.where(self._is_median, reference.own + outcome.moved, outcome.expected)
        self._centre = centre.tolist()
        self._low = (outcome.expected - outcome.limit).tolist()
        self._sign = self.table.sign.tolist()
        self._runs = reference.runs.tolist()
        self._value = outcome.value.tolist()
        self._moved = outcome.moved.tolist()
        self.has_reference: list[bool] = outcome.judged.tolist()
        self._bad = outcome.bad.tolist()
        self._times = outcome.readings.tolist()
        self.unproven = outcome.unproven  # no pass, and it teaches nothing
        self._sizes = sizes.tolist()

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
        m = self.table.first[i]
        low = self.table.value(i, self._low[i])
        expected = Expected(low=low)
        if m.better == "lower":
            expected = Expected(high=low)
        distance = self._sign[i] * (self._value[i] - self._centre[i])
        return Judgement(
            measurement=self.measurement(i),
            verdict=self.verdict(i),
            reason=self._reason(i),
            source=self.source(i),
            expected=expected,
            deviation=math.exp(distance) - 1,
        )

    def _reason(self, i: int) -> Reason:
        """Return how a series reads against its reference."""
        m = self.table.first[i]
        times = self._times[i]
        bad = self._bad[i]
        unproven = bool(self.unproven[i])
        number = measured(self.measurement(i))
        words: dict[str, object] = {
            "number": number,
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
        elif times > 1:
            words["number"] = f"{number}, the median of {times} measurements"
        if unproven:
            return Reason.of("low-unproven", **words)
        if bad:
            return Reason.of(f"worse-than-{self.source(i)}", **words)
        return Reason.of("within-limit", **words)

    def measurement(self, i: int) -> Measurement:
        """Return the series with the median of its readings."""
        m = self.table.first[i]
        if self._times[i] < 2 and m.finite:
            return m
        return Measurement(
            metric=m.metric,
            value=self.table.value(i, self._value[i]),
            unit=m.unit,
            subject=m.subject,
            conditions=m.conditions,
            samples=m.samples,
            better=m.better,
        )

    def verdict(self, i: int) -> Verdict:
        """Return the verdict of a series that has a reference."""
        if self.unproven[i]:
            return Verdict.INCONCLUSIVE
        if not self._bad[i]:
            return Verdict.PASS
        if self._value[i] < self._low[i] - math.log(FAIL_FACTOR):
            return Verdict.FAIL
        return Verdict.DEGRADED

    def _distance(self, i: int) -> float:
        """Return how much lower than expected the series has read on average since the change."""
        if self.outcome.start[i]:
            return -float(self.outcome.loss[i])
        return float(self._value[i] - self._centre[i])

    def _since(self, i: int) -> str:
        """Say since when a series is lower, and how sure that is; "" if it is since this run."""
        start = int(self.outcome.start[i])
        if not start:
            return ""
        sure = f"{self.confidence(i):.0%} sure".replace("%", " %")
        return f", since {start + 1} runs ({sure})"

    def watches(self, names: Container[str] | None = None) -> Iterator[Reason]:
        """Yield series that look lower but not surely enough to be bad, among `names` or all."""
        for i in np.flatnonzero(self.outcome.watched).tolist():
            m = self.measurement(i)
            if names is not None and m.series() not in names:
                continue
            runs = int(self.outcome.start[i]) + 1
            yield Reason.of(
                "watched",
                number=measured(m),
                percent=percent_words(self._distance(i), m),
                worse="longer" if m.better == "lower" else "lower",
                since=f"since {runs} runs" if runs > 1 else "in this run",
                sure=round(100 * self.confidence(i)),
            )

    def source(self, i: int) -> str:
        """Return what a series is compared with: its own history, or its peers alone."""
        return "history" if self._runs[i] else "peers"

    def confidence(self, i: int) -> float:
        """Return how sure it is that the series has become lower."""
        return round(float(self.outcome.confidence[i]), 2)

    def _against(self, i: int) -> str:
        """Return what a series is compared with, in words."""
        m = self.table.first[i]
        centre = quantity(self.table.value(i, self._centre[i]), m.unit)
        kinds = _kinds(m)
        peers = self._sizes[i]
        runs = self._runs[i]
        if self.outcome.start[i]:
            words = f"its {centre} before"
        elif self._is_median[i] or (runs and peers == 1):
            words = f"its median of {centre} in {runs} runs"
        elif runs:
            own = f"{runs} run{'s'[: runs > 1]}"
            words = f"the {centre} expected from its {own} and {peers - 1} other {kinds}"
        else:
            words = f"the median of {centre} of {peers} {kinds}"
        if abs(self._moved[i]) > 0.005:
            words += f", less what all {kinds} moved by"
        return words


def percent_words(distance: float, m: Measurement) -> str:
    """Format a ratio, given as the distance of logs, as percent lower or, of times, longer."""
    percent = round(100 * abs(_deviation(distance, m)), 1)
    return f"{percent:g}"


def _deviation(distance: float, m: Measurement) -> float:
    """Return by which share a value differs, given as the distance of logs; of times it grows."""
    if m.better == "lower":
        distance = -distance
    return math.exp(distance) - 1


def _kinds(m: Measurement) -> str:
    """Return what the subjects of a number are called together."""
    return "GPUs" if m.subject.kind == "gpu" else f"{m.subject.kind}s"


def _side(m: Measurement) -> str:
    """Return on which side of what is expected a bad number is."""
    return "above" if m.better == "lower" else "below"


def findings(judged: JudgedSeries) -> list[Finding]:
    """Return the findings, the worst first, and of equals those that name a node, GPU or link."""
    outcome = judged.outcome
    lower = [shift for shift in outcome.shifts if shift.moved < -shift.limit]
    shifted = [_moved_together(judged, shift) for shift in lower]
    alike, alone = _alike(judged, np.flatnonzero(outcome.bad).tolist())

    def rank(finding: Finding) -> tuple[int, bool, int]:
        """Return what to sort by; of equals those that stand for most series come first."""
        severity = finding.judgement.verdict.severity
        return severity, not finding.suspects, -len(finding.series)

    return sorted([*shifted, *alike, *_by_cause(judged, alone)], key=rank)


def _moved_together(judged: JudgedSeries, shift: Shift) -> Finding:
    """Return a finding on peers that are slower than in their past, or new and slower than the
    known ones.
    """
    places = shift.members.tolist()
    rest = len(_peers(judged, places[0])) - len(places)
    words = {
        "past": "their earlier runs",
        "known": f"the {rest} that are known",
        "others": f"the other {rest}",
    }
    judgement = _of_many(judged, places, words[shift.against], shift.moved, shift.limit)
    if not shift.bad:  # seen once, and nothing was measured again
        judgement = replace(judgement, verdict=Verdict.INCONCLUSIVE)
    return Finding(judgement, tuple(places))


def _peers(judged: JudgedSeries, place: int) -> list[int]:
    """Return the series of the group of one of them."""
    group = judged.table.group
    peers: list[int] = np.flatnonzero(group == group[place]).tolist()
    return peers


def _alike(judged: JudgedSeries, bad: Sequence[int]) -> tuple[list[Finding], list[int]]:
    """Return findings on groups of which more than a third, or all that share a fact, are low; and
    the rest.
    """
    alike = []
    left = []
    by_group: dict[int, list[int]] = defaultdict(list)
    for i in bad:
        by_group[int(judged.table.group[i])].append(i)
    for places in by_group.values():
        if not _are_many(judged, places):
            left += places
            continue
        outcome = judged.outcome
        distance = float(np.median(outcome.value[places] - outcome.expected[places]))
        limit = float(np.median(outcome.limit[places]))
        against = "their earlier runs"
        if judged.source(places[0]) != "history":
            against = f"the median of {len(_peers(judged, places[0]))}"
        judgement = _of_many(judged, places, against, distance, limit)
        alike.append(Finding(judgement, tuple(places)))
    return alike, left


def _are_many(judged: JudgedSeries, places: Sequence[int]) -> bool:
    """Return whether more than a third of a group are low, or all of its nodes that share a fact
    and no others.
    """
    first = judged.table.first
    slow = _owning_nodes(first[i].subject for i in places)
    every = _owning_nodes(first[i].subject for i in _peers(judged, places[0]))
    if 1 < len(slow) < len(every) and judged.table.groups.name_of(slow):
        return True
    return len(slow) >= AGREEING and len(slow) > MINORITY * len(every)


def _owning_nodes(subjects: Iterable[Subject]) -> set[str]:
    """Return the nodes of GPUs and nodes; links by their own names."""
    names = set[str]()
    for subject in subjects:
        if subject.kind == "link":
            names.add(subject.name)
        elif subject.nodes:
            names.add(subject.nodes[0])
    return names


def _of_many(
    judged: JudgedSeries, places: Sequence[int], against: str, distance: float, limit: float
) -> Judgement:
    """Return the judgement of series of one group that are low together."""
    first = judged.table.first
    m = first[places[0]]
    subjects = [first[i].subject for i in places]
    kinds = _kinds(m)
    total = len(_peers(judged, places[0]))
    names = _names(subjects)
    # What all of them have, and no other
    if alike := judged.table.groups.name_of(_owning_nodes(subjects)):
        names = f"those with {alike}"
        total = sum(_without_nodes(other) == _without_nodes(m) for other in first)
    failed = distance < -(limit + math.log(FAIL_FACTOR))
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
    median = float(np.median(judged.outcome.value[places]))
    measurement = Measurement(
        metric=m.metric,
        value=judged.table.value(places[0], median),
        unit=m.unit,
        subject=Subject("group", f"{len(places)} of {total} {kinds}"),
        conditions=m.conditions,
        better=m.better,
    )
    return Judgement(
        measurement=measurement,
        verdict=Verdict.FAIL if failed else Verdict.DEGRADED,
        reason=reason,
        source=judged.source(places[0]),
        deviation=_deviation(distance, m),
    )


def _without_nodes(m: Measurement) -> tuple[object, ...]:
    """Return what a number has in common with the same one of other nodes."""
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
    first = judged.table.first
    by_culprit: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, culprit in zip(bad, _culprits(judged, bad), strict=True):
        by_culprit[culprit].append(i)
    for (kind, name), places in by_culprit.items():
        worst = _worst(judged, places, kind)
        judgement = judged.judgement(worst)
        if kind not in ("node", "gpu", "link"):
            yield Finding(judgement, tuple(places))
            continue
        others = other_problems(first[i] for i in places if i != worst)
        suspect = Suspect(
            kind=cast(SuspectKind, kind),
            name=name,
            confidence=max(judged.confidence(i) for i in places),
            evidence=join((judgement.reason, others)),
            verdict=judgement.verdict,
        )
        yield Finding(judgement, tuple(places), (suspect,))


def _worst(judged: JudgedSeries, places: Iterable[int], kind: str) -> int:
    """Return the series that reads lowest, of a part of this kind before those within it."""
    outcome = judged.outcome

    def rank(i: int) -> tuple[bool, float]:
        is_within = judged.table.first[i].subject.kind != kind
        return is_within, outcome.value[i] - outcome.expected[i]

    return min(places, key=rank)


def _culprits(judged: JudgedSeries, bad: Sequence[int]) -> list[tuple[str, str]]:
    """Return the culprit of each bad number.

    A node is that of its own number, of two or more of its GPUs, and of most of its links.
    """
    subjects = [judged.table.first[i].subject for i in bad]
    nodes = {subject.name for subject in subjects if subject.kind == "node"}
    nodes |= _nodes_of_links(judged, {s.name for s in subjects if s.kind == "link"})
    gpus = {subject.name: subject.nodes[0] for subject in subjects if subject.kind == "gpu"}
    nodes |= {node for node, count in Counter(gpus.values()).items() if count > 1}
    culprits: list[tuple[str, str]] = []
    for subject in subjects:
        culprit = (subject.kind, subject.name)
        for node in subject.nodes:
            if node in nodes:
                culprit = ("node", node)
                break
        culprits.append(culprit)
    return culprits


def _nodes_of_links(judged: JudgedSeries, bad: Set[str]) -> set[str]:
    """Return nodes of which two links at least are bad, and more than half of those that were
    measured.
    """
    if not bad:
        return set()
    measured_links: dict[str, set[str]] = defaultdict(set)
    for m in judged.table.first:
        if m.subject.kind == "link":
            for node in m.subject.nodes:
                measured_links[node].add(m.subject.name)
    nodes = set[str]()
    for node, links in measured_links.items():
        if len(links & bad) > max(1.0, len(links) / 2):
            nodes.add(node)
    return nodes
