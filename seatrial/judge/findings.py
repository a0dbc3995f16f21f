"""From the judged series of a run to few findings. Pure.

Many alike are one finding without suspects; what is wrong with one node, one GPU or one link is one
suspect.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from seatrial.detection.noise import AGREEING, median
from seatrial.detection.shifts import MINORITY, Shift
from seatrial.judge.judged_series import (
    JudgedSeries,
    deviation_of,
    kinds_of,
    percent_words,
    side_of,
)
from seatrial.judge.series import PEERS
from seatrial.judge.votes import worst_first
from seatrial.model.baseline import FAIL_FACTOR
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join
from seatrial.model.result import Judgement, Suspect, SuspectKind
from seatrial.model.verdict import Verdict
from seatrial.text.headline import other_problems
from seatrial.text.words import some_of


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause: its judgement, the indexes of its series, and who is to blame."""

    judgement: Judgement
    series: tuple[int, ...]
    suspects: tuple[Suspect, ...] = ()


def findings(judged: JudgedSeries) -> list[Finding]:
    """Return the findings, the worst first, and of equal ones those that name a node, GPU or
    link.
    """
    outcome = judged.outcome
    found = [_moved_together(judged, shift) for shift in outcome.shifts if shift.is_low]
    bad = np.flatnonzero(outcome.bad).tolist()
    alike, alone = _alike(judged, bad)
    found += alike
    found += _by_cause(judged, alone)
    return sorted(found, key=_rank)


def _rank(finding: Finding) -> tuple[int, bool, float]:
    """Return a sort key: the worst first, then findings with suspects, then the largest loss."""
    severity, _, gain = worst_first(finding.judgement)
    return severity, not finding.suspects, gain


def _moved_together(judged: JudgedSeries, shift: Shift) -> Finding:
    """Return a finding on peers that are slower than in their past, or new and slower than the
    known ones.
    """
    peers = _peers(judged, shift.members[0])
    rest = len(peers) - shift.members.size
    words = {
        "past": "their earlier runs",
        "known": f"the {rest} that are known",
        "others": f"the other {rest}",
    }
    places = judged.moved_with(shift).tolist()
    moved = shift.moved
    if len(places) < shift.members.size:
        outcome = judged.outcome
        lost = outcome.value - outcome.expected + outcome.moved
        moved = median(lost[places])
    judgement = _of_many(judged, places, words[shift.against], moved, shift.limit)
    if not shift.bad:  # seen once, and nothing was measured again
        judgement = replace(judgement, verdict=Verdict.INCONCLUSIVE)
    return Finding(judgement, tuple(places))


def _peers(judged: JudgedSeries, place: int) -> list[int]:
    """Return the indexes of the series in the group of the series at `place`."""
    group = judged.table.group
    is_peer = group == group[place]
    peers: list[int] = np.flatnonzero(is_peer).tolist()
    return peers


def _alike(judged: JudgedSeries, bad: Sequence[int]) -> tuple[list[Finding], list[int]]:
    """Return findings on groups with many low series (see `_are_many`), and all other low
    series.
    """
    by_group: dict[int, list[int]] = defaultdict(list)
    for i in bad:
        group = judged.table.group[i]
        by_group[group].append(i)
    alike = []
    left = []
    for places in by_group.values():
        if not _are_many(judged, places):
            left += places
            continue
        judgement = _of_group(judged, places)
        alike.append(Finding(judgement, tuple(places)))
    return alike, left


def _of_group(judged: JudgedSeries, places: Sequence[int]) -> Judgement:
    """Return the judgement of peers that are each too low, by the medians of their losses and
    limits.
    """
    outcome = judged.outcome
    distances = outcome.value[places] - outcome.expected[places]
    distance = median(distances)
    limit = median(outcome.limit[places])
    against = _against(judged, places[0])
    return _of_many(judged, places, against, distance, limit)


def _against(judged: JudgedSeries, place: int) -> str:
    """Return in words what the peers of the series at `place` are compared with."""
    if judged.source(place) == "history":
        return "their earlier runs"
    peers = _peers(judged, place)
    return f"the median of {len(peers)}"


def _are_many(judged: JudgedSeries, places: Sequence[int]) -> bool:
    """Return whether more than a third of a group is low, or exactly its nodes that share a
    fact.
    """
    slow = _owning_nodes(_subjects(judged, places))
    peers = _peers(judged, places[0])
    every = _owning_nodes(_subjects(judged, peers))
    if 1 < len(slow) < len(every) and judged.table.groups.name_of(slow):
        return True
    least = MINORITY * len(every)
    return len(slow) >= AGREEING and len(slow) > least


def _subjects(judged: JudgedSeries, places: Iterable[int]) -> list[Subject]:
    """Return the subjects of the series."""
    return [judged.table.first[i].subject for i in places]


def _owning_nodes(subjects: Iterable[Subject]) -> set[str]:
    """Return the names of nodes, the nodes of GPUs, and the names of links."""
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
    m = judged.table.first[places[0]]
    kinds = kinds_of(m)
    names, total = _names_and_total(judged, places)
    least = limit + math.log(FAIL_FACTOR)
    verdict = Verdict.DEGRADED
    if distance < -least:
        verdict = Verdict.FAIL
    reason = Reason.of(
        "many-alike",
        metric=m.metric,
        count=len(places),
        total=total,
        kinds=kinds,
        names=names,
        percent=percent_words(distance, m),
        side=side_of(m),
        against=against,
        limit=percent_words(-limit, m),
    )
    return Judgement(
        measurement=_measured_together(judged, places, f"{len(places)} of {total} {kinds}"),
        verdict=verdict,
        reason=reason,
        source=judged.source(places[0]),
        deviation=deviation_of(distance, m),
    )


def _measured_together(judged: JudgedSeries, places: Sequence[int], name: str) -> Measurement:
    """Return the median of the series, as the measurement of a group called `name`."""
    m = judged.table.first[places[0]]
    value = median(judged.outcome.value[places])
    return Measurement(
        metric=m.metric,
        value=judged.table.value(places[0], value),
        unit=m.unit,
        subject=Subject("group", name),
        conditions=m.conditions,
        better=m.better,
    )


def _names_and_total(judged: JudgedSeries, places: Sequence[int]) -> tuple[str, int]:
    """Return the words for low series of one group, and the number of series that they are out of.

    Series of exactly the nodes that share a fact are named by the fact.
    """
    subjects = _subjects(judged, places)
    nodes = _owning_nodes(subjects)
    alike = judged.table.groups.name_of(nodes)
    if not alike:
        peers = _peers(judged, places[0])
        return _names(subjects), len(peers)
    # Named by their fact, the series are counted among the same number of all nodes
    first = judged.table.first
    number = _without_nodes(first[places[0]])
    total = sum(_without_nodes(other) == number for other in first)
    return f"those with {alike}", total


def _without_nodes(m: Measurement) -> tuple[object, ...]:
    """Return the key of a number that is the same on all nodes."""
    conditions = frozenset(m.conditions.items())
    return m.metric, m.unit, m.subject.kind, conditions


def _names(subjects: Sequence[Subject]) -> str:
    """Format names: "node-1, node-2 and 3 more", or "gpu-0 of each" for the same GPU of many
    nodes.
    """
    parts = {subject.name.partition("/")[2] for subject in subjects}
    if len(subjects) > 1 and len(parts) == 1 and "" not in parts:
        return f"{parts.pop()} of {len(subjects)} nodes"
    nodes = _owning_nodes(subjects)
    return some_of(sorted(nodes))


def _by_cause(judged: JudgedSeries, bad: Sequence[int]) -> Iterator[Finding]:
    """Yield one finding for each node, GPU, link or number of the whole cluster."""
    subjects = _subjects(judged, bad)
    nodes = _blamed_nodes(judged, subjects)
    by_culprit: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, subject in zip(bad, subjects, strict=True):
        by_culprit[_culprit(subject, nodes)].append(i)
    for (kind, name), places in by_culprit.items():
        yield _of_culprit(judged, places, kind, name)


def _of_culprit(judged: JudgedSeries, places: Sequence[int], kind: str, name: str) -> Finding:
    """Return the finding on the culprit of the series at `places`."""
    worst = _worst(judged, places, kind)
    judgement = judged.judgement(worst)
    finding = Finding(judgement, tuple(places))
    if kind not in PEERS:
        return finding
    others = [judged.table.first[i] for i in places if i != worst]
    suspect = Suspect(
        kind=cast(SuspectKind, kind),
        name=name,
        confidence=max(map(judged.confidence, places)),
        evidence=join((judgement.reason, other_problems(others))),
        verdict=judgement.verdict,
    )
    return replace(finding, suspects=(suspect,))


def _worst(judged: JudgedSeries, places: Iterable[int], kind: str) -> int:
    """Return the index of the lowest series, with series of this `kind` before those of parts
    within.
    """
    outcome = judged.outcome

    def rank(i: int) -> tuple[bool, float]:
        subject = judged.table.first[i].subject
        distance = outcome.value[i] - outcome.expected[i]
        return subject.kind != kind, distance

    return min(places, key=rank)


def _culprit(subject: Subject, nodes: Set[str]) -> tuple[str, str]:
    """Return the first node of the subject that is among the culprits `nodes`, else the subject."""
    for node in subject.nodes:
        if node in nodes:
            return "node", node
    return subject.kind, subject.name


def _blamed_nodes(judged: JudgedSeries, subjects: Iterable[Subject]) -> set[str]:
    """Return the nodes that are culprits: of their own numbers, of two or more of their GPUs, and
    of most of their links.
    """
    nodes = set[str]()
    links = set[str]()
    node_of_gpu = dict[str, str]()
    for subject in subjects:
        if subject.kind == "node":
            nodes.add(subject.name)
        elif subject.kind == "link":
            links.add(subject.name)
        elif subject.kind == "gpu":
            node_of_gpu[subject.name] = subject.nodes[0]
    gpus = Counter(node_of_gpu.values())
    nodes.update(node for node, count in gpus.items() if count > 1)
    return nodes | _nodes_of_links(judged, links)


def _nodes_of_links(judged: JudgedSeries, bad: Set[str]) -> set[str]:
    """Return the nodes with at least two bad links that are more than half of their measured
    links.
    """
    if not bad:
        return set()
    nodes = set[str]()
    for node, links in _links_of_nodes(judged).items():
        bad_links = links & bad
        if len(bad_links) > max(1.0, len(links) / 2):
            nodes.add(node)
    return nodes


def _links_of_nodes(judged: JudgedSeries) -> dict[str, set[str]]:
    """Return the links of each node that were measured."""
    links: dict[str, set[str]] = defaultdict(set)
    for m in judged.table.first:
        if m.subject.kind == "link":
            for node in m.subject.nodes:
                links[node].add(m.subject.name)
    return links
