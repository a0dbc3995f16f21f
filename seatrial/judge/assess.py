"""From measurements to the verdicts of checks, and to what is to be measured once more. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from seatrial.catalog.published import published, swept_sizes
from seatrial.checks.metrics import Doubt, Doubts, is_repeated_only_low
from seatrial.detection.outliers import MOST_READINGS
from seatrial.judge.completeness import blamed_nodes, far_below_links, unmeasured
from seatrial.judge.findings import Finding, JudgedSeries, findings
from seatrial.judge.knowledge import Knowledge
from seatrial.judge.number import from_pin, judge_number
from seatrial.judge.series import SeriesJudge, SeriesTable
from seatrial.judge.votes import counting, is_noisy, is_sanity_pass, summary
from seatrial.model.measurement import Measurement, by_series, once
from seatrial.model.reason import Reason, extended, join, uncoded
from seatrial.model.result import Check, Judgement, Suspect, SuspectKind
from seatrial.model.verdict import Verdict, worst

_AGREEING = 2  # of three: what is known from elsewhere takes two readings on the same side
_WITHOUT_RATE = 0.8  # the confidence that a part that moved nothing, where others did, has a fault


@dataclass(frozen=True, slots=True)
class Assessment:
    """The checks with their judgements and verdicts, and by check what to measure once more before
    those are sure.
    """

    checks: list[Check]
    doubts: Doubts


def assess(checks: Sequence[Check], knowledge: Knowledge) -> Assessment:
    """Judge each measurement that can be judged, and say what follows from that for its check.

    Measurements of the same series are repeats, in the order they were taken, and count by their
    median.
    """
    judge = RunJudge(checks, knowledge)
    return Assessment(judge.judged(checks), judge.doubts())


class RunJudge:
    """All numbers of a run, judged together; more readings may follow."""

    def __init__(self, checks: Sequence[Check], knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._check_of = {m.series(): check.name for check in checks for m in check.measurements}
        self._taken = by_series(m for check in checks for m in check.measurements if m.better)
        self._sizes = {check.name: swept_sizes(check.measurements) for check in checks}
        compared = {**by_series(knowledge.peers), **self._taken}
        unpinned = {name: taken for name, taken in compared.items() if name not in knowledge.pinned}
        names = [
            name for name, taken in unpinned.items() if all(m.finite and m.value > 0 for m in taken)
        ]
        self._place = {name: i for i, name in enumerate(names)}
        table = SeriesTable.of([compared[name][0] for name in names], knowledge.groups)
        self._series = SeriesJudge(table, knowledge.past_of(table))
        for nth in range(max((len(compared[name]) for name in names), default=0)):
            self._add(
                [
                    (self._place[name], compared[name][nth])
                    for name in names
                    if len(compared[name]) > nth
                ]
            )
        self._judged = self._judged_series()
        self._numbers = {name: self._number(name) for name in self._taken}

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Add further readings, in the order they were taken."""
        new = by_series(m for m in measurements if m.better)
        for name, taken in new.items():
            self._taken.setdefault(name, []).extend(taken)
        for nth in range(max(map(len, new.values()), default=0)):
            some = (
                (self._place[name], taken[nth])
                for name, taken in new.items()
                if name in self._place and len(taken) > nth
            )
            self._add(list(some))
        self._judged = self._judged_series()
        self._numbers |= {name: self._number(name) for name in new if name in self._check_of}

    def _add(self, some: Sequence[tuple[int, Measurement]]) -> None:
        values = np.full(len(self._place), np.nan)
        for place, m in some:
            values[place] = m.value
        if some:
            self._series.add(self._series.table.logs(values))

    def _judged_series(self) -> JudgedSeries | None:
        return JudgedSeries(self._series, self._series.outcome()) if self._place else None

    def _number(self, name: str) -> Judgement | None:
        """Return the judgement by what is known from elsewhere: physics, a pin, the catalog or the
        model.
        """
        taken, pin = self._taken[name], self._knowledge.pinned.get(name)
        m = once(taken)[0]
        pinned = from_pin(m, pin) if pin else None
        sizes = self._sizes[self._check_of[name]](m)
        baselines = [*published(m, self._knowledge.setup, sizes), *([pinned] if pinned else [])]
        if not baselines and self._has_reference(name):
            return None
        judgement = judge_number(m, baselines)
        return (
            replace(judgement, repeats=tuple(t.value for t in taken))
            if judgement and len(taken) > 1
            else judgement
        )

    def _has_reference(self, name: str) -> bool:
        place = self._place.get(name)
        return place is not None and self._judged is not None and self._judged.has_reference[place]

    def _judgement(self, name: str) -> Judgement | None:
        """Return the harsher judgement; a defect of the number itself comes first."""
        number = self._numbers[name]
        if not self._has_reference(name) or self._judged is None:
            return number
        own, taken = self._judged.judgement(self._place[name]), self._taken[name]
        if len(taken) > 1:
            own = replace(own, measurement=once(taken)[0], repeats=tuple(t.value for t in taken))
        if number is None or is_sanity_pass(number):
            return own
        return (
            number
            if number.verdict.severity < own.verdict.severity or not is_noisy(number)
            else own
        )

    def doubts(self) -> Doubts:
        """Return by check what to measure once more."""
        doubts: dict[str, list[Doubt]] = defaultdict(list)
        in_doubt = set() if self._judged is None else self._in_doubt(self._judged)
        for name, number in self._numbers.items():
            taken = self._taken[name]
            if name in in_doubt:
                doubts[self._check_of[name]].append(Doubt(taken[0], len(taken), MOST_READINGS))
            elif number is not None and is_noisy(number) and _is_undecided(number, taken):
                doubts[self._check_of[name]].append(Doubt(taken[0], len(taken), 2 * _AGREEING - 1))
        return dict(doubts)

    def _in_doubt(self, judged: JudgedSeries) -> set[str]:
        """Return numbers to repeat.

        Those that take a whole check, or show only large losses, are repeated if they read low;
        others if unsure.
        """
        outcome, first = judged.outcome, judged.table.first
        low = outcome.doubtful & (outcome.value < outcome.expected - outcome.limit / 3)
        places = np.flatnonzero(outcome.doubtful | outcome.supporting).tolist()
        # Peers are not here
        names = {i: name for i in places if (name := first[i].series()) in self._check_of}
        only_low = {
            i for i, name in names.items() if is_repeated_only_low(first[i], self._check_of[name])
        }
        return {name for i, name in names.items() if low[i] or i not in only_low}

    def judged(self, checks: Sequence[Check]) -> list[Check]:
        """Return the checks with the judgements of their numbers."""
        judgements = {
            name: judgement for name in self._numbers if (judgement := self._judgement(name))
        }
        run_findings = self._findings()
        blamed, nodes = blamed_nodes(checks), self._knowledge.nodes or self._knowledge.setup.nodes
        # Of logs without a fabric the judge of logs says it, with the evidence
        is_run = bool(self._knowledge.nodes)
        by_check: dict[str, list[str]] = defaultdict(list)
        for name in judgements:
            by_check[self._check_of[name]].append(name)
        return [
            self._judged_check(
                check,
                {n: judgements[n] for n in by_check[check.name]},
                run_findings,
                [
                    *unmeasured(check, nodes, blamed),
                    *far_below_links(check, self._knowledge.setup, is_run),
                ],
            )
            for check in checks
        ]

    def _findings(self) -> list[Finding]:
        """Return findings about this run's own series, without peers from other runs, which are not
        news.
        """
        if self._judged is None:
            return []
        run_findings = []
        nodes = {node for taken in self._taken.values() for node in taken[0].subject.nodes}
        for finding in findings(self._judged):
            own = [i for i in finding.series if self._name(i) in self._check_of]
            if len(own) == len(finding.series):
                run_findings.append(finding)
            elif own:
                suspects = tuple(s for s in finding.suspects if s.name.partition("/")[0] in nodes)
                run_findings.append(replace(finding, series=tuple(own), suspects=suspects))
        return run_findings

    def _judged_check(
        self,
        check: Check,
        judgements: Mapping[str, Judgement],
        run_findings: Sequence[Finding],
        missing: Sequence[Reason],
    ) -> Check:
        """Judge one check; `missing` says which numbers some nodes lack."""
        judgements = self._with_own(check, judgements)
        recorded = {j.measurement.series() for j in check.judgements}
        new = {
            n: self._changed(j)
            for n, j in judgements.items()
            if not (is_sanity_pass(j) and n in recorded)
        }
        if not new:
            return check
        own = [f for f in run_findings if self._name(f.series[0]) in new]
        together = [
            f for f in own if len(f.series) > 1 and f.judgement.measurement.subject.kind == "group"
        ]
        members = {self._name(i): f.judgement for f in together for i in f.series}
        alone = [j for name, j in new.items() if name not in members]
        # A number that is low together with its peers is as bad as they are, so that it teaches
        # nothing.
        every = [
            replace(j, verdict=members[name].verdict, reason=members[name].reason)
            if name in members
            else j
            for name, j in new.items()
        ]
        counted = [*(self._changed(f.judgement) for f in together), *counting(alone)]
        verdicts = (
            check.verdict,
            *(j.verdict for j in counted),
            *(Verdict.INCONCLUSIVE for _ in missing),
        )
        reason = self._summary(check, every, counted)
        return replace(
            check,
            verdict=worst(verdicts),
            reason=join((reason, *missing) if counted else (*missing, reason)),
            judgements=(*check.judgements, *(f.judgement for f in together), *every),
            suspects=(*check.suspects, *_suspects(own, every)),
            raw_result=check.raw,
        )

    def _with_own(
        self, check: Check, judgements: Mapping[str, Judgement]
    ) -> Mapping[str, Judgement]:
        """Return the harsher of the judge's judgements and the check's own for numbers it blames
        nodes for.
        """
        if not check.raw.suspects:
            return judgements
        from seatrial.checks.table import judged_by  # every check, with its way to the nodes

        merged = dict(judgements)
        for own in judged_by(check, self._knowledge.groups.name_by_node):
            known = merged.get(own.measurement.series())
            if known is None or own.verdict.severity < known.verdict.severity:
                merged[own.measurement.series()] = own
        return merged

    def _name(self, place: int) -> str:
        assert self._judged is not None
        return self._judged.table.first[place].series()

    def _changed(self, judgement: Judgement) -> Judgement:
        """Add to a bad number the software that has changed since the last pass, the first thing to
        look at.
        """
        past = self._knowledge.past
        if not past or not past.changed or judgement.passed or judgement.source != "history":
            return judgement
        return replace(
            judgement, reason=extended(judgement.reason, f"; changed with {past.changed}")
        )

    def _summary(
        self, check: Check, new: Sequence[Judgement], counted: Sequence[Judgement]
    ) -> Reason:
        """Sum up the votes; name groups of nodes that were compared separately, and what is
        watched.
        """
        is_of_nodes = any(judgement.measurement.subject.nodes for judgement in new)
        groups = uncoded(self._knowledge.groups.words if is_of_nodes else "")
        names = {judgement.measurement.series() for judgement in new}
        watches = self._judged.watches(names) if self._judged else ()
        return summary(check, new, counted, groups, *watches)


def _is_undecided(j: Judgement, taken: Sequence[Measurement]) -> bool:
    """Return whether fewer than two readings agree on a number that is bad."""
    low, high = j.expected.low, j.expected.high
    outside = [
        (low is not None and m.value < low) or (high is not None and m.value > high) for m in taken
    ]
    if len(taken) == 1:
        return not j.passed
    return max(sum(outside), len(outside) - sum(outside)) < _AGREEING


def _suspects(found: Sequence[Finding], judgements: Sequence[Judgement]) -> list[Suspect]:
    """Return the suspects of the findings, and nodes, GPUs and links that measured 0 while others
    did not.
    """
    suspects = [suspect for finding in found for suspect in finding.suspects]
    measured = [j.measurement for j in judgements]
    moving = {(m.metric, m.unit, m.subject.kind) for m in measured if m.value > 0}
    for j in judgements:
        m = j.measurement
        is_still = j.source == "sanity" and j.verdict is Verdict.FAIL and not m.value
        if (
            is_still
            and m.subject.kind in ("node", "gpu", "link")
            and (m.metric, m.unit, m.subject.kind) in moving
        ):
            kind = cast(SuspectKind, m.subject.kind)
            suspects.append(Suspect(kind, m.subject.name, _WITHOUT_RATE, j.reason, j.verdict))
    return suspects
