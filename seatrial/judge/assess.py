"""From measurements to the verdicts of checks, and to what is to be measured once more. Pure."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
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
from seatrial.judge.votes import (
    counting,
    is_noisy,
    is_sanity_pass,
    summary,
    too_few_to_count,
)
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
    """All numbers of a run, judged together; more readings may follow.

    By the name of a series: `_check_of` is the check that measured it, `_taken` are its readings,
    and `_numbers` its judgement by what is known from elsewhere. `_place` is where those are that
    are compared with their past and their peers: they have no pin, and no reading that is broken.
    """

    def __init__(self, checks: Sequence[Check], knowledge: Knowledge) -> None:
        """Judge the numbers of the checks by what is known."""
        self._knowledge = knowledge
        self._check_of = {m.series(): check.name for check in checks for m in check.measurements}
        self._taken = by_series(m for check in checks for m in check.measurements if m.better)
        self._sizes = {check.name: swept_sizes(check.measurements) for check in checks}
        compared = {**by_series(knowledge.peers), **self._taken}
        for name, taken in list(compared.items()):
            if name in knowledge.pinned or not all(m.finite and m.value > 0 for m in taken):
                del compared[name]
        self._place = {name: i for i, name in enumerate(compared)}
        table = SeriesTable.of([taken[0] for taken in compared.values()], knowledge.groups)
        past = knowledge.past_of(table)
        self._series = SeriesJudge(table, past, one_machine=knowledge.setup.one_machine)
        self._add(compared)
        self._judged = self._judged_series()
        self._numbers = {name: self._number(name) for name in self._taken}

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Add further readings, in the order they were taken."""
        new = by_series(m for m in measurements if m.better)
        for name, taken in new.items():
            self._taken.setdefault(name, []).extend(taken)
        self._add(new)
        self._judged = self._judged_series()
        for name in new:
            if name in self._check_of:
                self._numbers[name] = self._number(name)

    def _add(self, readings: Mapping[str, Sequence[Measurement]]) -> None:
        """Add the first readings of the series that are compared, then their second ones, and so
        on.
        """
        by_place = dict[int, Sequence[Measurement]]()
        for name, taken in readings.items():
            if name in self._place:
                by_place[self._place[name]] = taken
        for nth in range(max(map(len, by_place.values()), default=0)):
            values = np.full(len(self._place), np.nan)
            for place, taken in by_place.items():
                if len(taken) > nth:
                    values[place] = taken[nth].value
            self._series.add(self._series.table.logs(values))

    def _judged_series(self) -> JudgedSeries | None:
        """Judge the series that are compared, if there are any."""
        if not self._place:
            return None
        return JudgedSeries(self._series, self._series.outcome())

    def _number(self, name: str) -> Judgement | None:
        """Return the judgement by what is known from elsewhere: physics, a pin, the catalog or the
        model.
        """
        taken = self._taken[name]
        m = once(taken)[0]
        swept = self._sizes[self._check_of[name]]
        baselines = [*published(m, self._knowledge.setup, swept(m))]
        pin = self._knowledge.pinned.get(name)
        if pin and (pinned := from_pin(m, pin)):
            baselines.append(pinned)
        if not baselines and self._has_reference(name):
            return None
        judgement = judge_number(m, baselines)
        if judgement and len(taken) > 1:
            judgement = replace(judgement, repeats=_values(taken))
        return judgement

    def _has_reference(self, name: str) -> bool:
        """Return whether a number is judged by its history or its peers."""
        if self._judged is None or name not in self._place:
            return False
        return self._judged.has_reference[self._place[name]]

    def _judgement(self, name: str) -> Judgement | None:
        """Return the harsher judgement; a defect of the number itself comes first."""
        number = self._numbers[name]
        if not self._has_reference(name) or self._judged is None:
            return number
        own = self._judged.judgement(self._place[name])
        taken = self._taken[name]
        if len(taken) > 1:
            own = replace(own, measurement=once(taken)[0], repeats=_values(taken))
        if number is None or is_sanity_pass(number):
            return own
        is_harsher = number.verdict.severity < own.verdict.severity
        if is_harsher or not is_noisy(number):
            return number
        return own

    def doubts(self) -> Doubts:
        """Return by check what to measure once more."""
        doubts = dict[str, Doubt]()
        in_doubt = set[str]()
        if self._judged is not None:
            in_doubt = self._in_doubt(self._judged)
        for name, number in self._numbers.items():
            taken = self._taken[name]
            if name in in_doubt:
                most = MOST_READINGS
            elif number is not None and is_noisy(number) and _is_undecided(number, taken):
                most = 2 * _AGREEING - 1
            else:
                continue
            doubts[name] = Doubt(taken[0], len(taken), most)
        by_check: dict[str, list[Doubt]] = defaultdict(list)
        few = self._single_sizes(doubts)
        for name, doubt in doubts.items():
            if name not in few:
                by_check[self._check_of[name]].append(doubt)
        return dict(by_check)

    def _single_sizes(self, doubts: Container[str]) -> set[str]:
        """Return single sizes that would not count if all that are in doubt were bad."""

        def may_be_bad(m: Measurement) -> bool:
            name = m.series()
            number = self._numbers.get(name)
            if name in doubts or (number and not number.passed):
                return True
            if self._judged is None or not self._has_reference(name):
                return False
            return self._judged.verdict(self._place[name]) is not Verdict.PASS

        return too_few_to_count((taken[0] for taken in self._taken.values()), may_be_bad)

    def _in_doubt(self, judged: JudgedSeries) -> set[str]:
        """Return numbers to repeat.

        Those that take a whole check, or show only large losses, are repeated if they read low,
        with their peers on the same machine; others if unsure.
        """
        outcome = judged.outcome
        low = outcome.doubtful & (outcome.value < outcome.expected - outcome.limit / 3)
        if self._knowledge.setup.one_machine:
            group = judged.table.group
            low |= outcome.supporting & np.isin(group, group[low])
        repeated = set[str]()
        for i in np.flatnonzero(outcome.doubtful | outcome.supporting).tolist():
            m = judged.table.first[i]
            check = self._check_of.get(m.series())
            if check is None:  # of a peer
                continue
            if low[i] or not is_repeated_only_low(m, check):
                repeated.add(m.series())
        return repeated

    def judged(self, checks: Sequence[Check]) -> list[Check]:
        """Return the checks with the judgements of their numbers."""
        by_check: dict[str, dict[str, Judgement]] = defaultdict(dict)
        for name in self._numbers:
            if judgement := self._judgement(name):
                by_check[self._check_of[name]][name] = judgement
        run_findings = self._findings()
        blamed = blamed_nodes(checks)
        setup = self._knowledge.setup
        nodes = self._knowledge.nodes or setup.nodes
        # Of logs without a fabric the judge of logs says it, with the evidence
        is_run = bool(self._knowledge.nodes)
        judged = []
        for check in checks:
            missing = [
                *unmeasured(check, nodes, blamed),
                *far_below_links(check, setup, is_run),
            ]
            judgements = by_check[check.name]
            judged.append(self._judged_check(check, judgements, run_findings, missing))
        return judged

    def _findings(self) -> list[Finding]:
        """Return findings about this run's own series, without peers from other runs, which are not
        news.
        """
        if self._judged is None:
            return []
        nodes = {node for taken in self._taken.values() for node in taken[0].subject.nodes}
        run_findings = []
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
        recorded = {j.measurement.series() for j in check.judgements}
        new = dict[str, Judgement]()
        for name, judgement in self._with_own(check, judgements).items():
            if name not in recorded or not is_sanity_pass(judgement):
                new[name] = self._changed(judgement)
        if not new:
            return check
        own = [f for f in run_findings if self._name(f.series[0]) in new]
        of_many = [f for f in own if len(f.series) > 1]
        together = [f for f in of_many if f.judgement.measurement.subject.kind == "group"]
        group_of = {self._name(i): f.judgement for f in together for i in f.series}
        alone = []
        every = []
        for name, judgement in new.items():
            group = group_of.get(name)
            if group is None:
                alone.append(judgement)
                every.append(judgement)
            else:
                # A number that is low together with its peers is as bad as they are, so that it
                # teaches nothing.
                every.append(replace(judgement, verdict=group.verdict, reason=group.reason))
        of_groups = [finding.judgement for finding in together]
        counted = [*map(self._changed, of_groups), *counting(alone)]
        verdicts = [check.verdict, *(judgement.verdict for judgement in counted)]
        if missing:
            verdicts.append(Verdict.INCONCLUSIVE)
        reason = self._summary(check, every, counted)
        return replace(
            check,
            verdict=worst(verdicts),
            reason=join((reason, *missing) if counted else (*missing, reason)),
            judgements=(*check.judgements, *of_groups, *every),
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
            name = own.measurement.series()
            known = merged.get(name)
            if known is None or own.verdict.severity < known.verdict.severity:
                merged[name] = own
        return merged

    def _name(self, place: int) -> str:
        """Return the name of a series that is compared."""
        assert self._judged is not None
        return self._judged.table.first[place].series()

    def _changed(self, judgement: Judgement) -> Judgement:
        """Add to a bad number the software that has changed since the last pass, the first thing to
        look at.
        """
        past = self._knowledge.past
        if not past or not past.changed or judgement.passed or judgement.source != "history":
            return judgement
        reason = extended(judgement.reason, f"; changed with {past.changed}")
        return replace(judgement, reason=reason)

    def _summary(
        self, check: Check, new: Sequence[Judgement], counted: Sequence[Judgement]
    ) -> Reason:
        """Sum up the votes; name groups of nodes that were compared separately, and what is
        watched.
        """
        groups = ""
        if any(judgement.measurement.subject.nodes for judgement in new):
            groups = self._knowledge.groups.words
        names = {judgement.measurement.series() for judgement in new}
        watches = self._judged.watches(names) if self._judged else ()
        return summary(check, new, counted, uncoded(groups), *watches)


def _is_undecided(j: Judgement, taken: Sequence[Measurement]) -> bool:
    """Return whether fewer than two readings agree on a number that is bad."""
    if len(taken) == 1:
        return not j.passed
    low = -inf if j.expected.low is None else j.expected.low
    high = inf if j.expected.high is None else j.expected.high
    outside = sum(m.value < low or m.value > high for m in taken)
    return max(outside, len(taken) - outside) < _AGREEING


def _values(taken: Sequence[Measurement]) -> tuple[float, ...]:
    """Return the values of the readings of a number."""
    return tuple(m.value for m in taken)


def _suspects(found: Sequence[Finding], judgements: Sequence[Judgement]) -> list[Suspect]:
    """Return the suspects of the findings, and nodes, GPUs and links that measured 0 while others
    did not.
    """
    suspects = [suspect for finding in found for suspect in finding.suspects]
    moving = {_alike(j.measurement) for j in judgements if j.measurement.value > 0}
    for j in judgements:
        m = j.measurement
        if j.source != "sanity" or j.verdict is not Verdict.FAIL or m.value:
            continue
        if m.subject.kind in ("node", "gpu", "link") and _alike(m) in moving:
            kind = cast(SuspectKind, m.subject.kind)
            suspects.append(
                Suspect(
                    kind=kind,
                    name=m.subject.name,
                    confidence=_WITHOUT_RATE,
                    evidence=j.reason,
                    verdict=j.verdict,
                )
            )
    return suspects


def _alike(m: Measurement) -> tuple[str, str, str]:
    """Return what numbers of parts of the same kind have in common."""
    return m.metric, m.unit, m.subject.kind
