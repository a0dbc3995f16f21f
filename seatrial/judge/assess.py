"""From measurements to the verdicts of checks, and to what is to be measured once more. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from seatrial.checks.connectivity.judged_rates import judged_rates
from seatrial.checks.metrics import Doubts
from seatrial.judge.completeness import blamed_nodes, far_below_links, unmeasured
from seatrial.judge.doubts import doubts_of
from seatrial.judge.findings import Finding, findings
from seatrial.judge.knowledge import Knowledge
from seatrial.judge.run_numbers import RunNumbers
from seatrial.judge.series import PEERS
from seatrial.judge.votes import (
    counting,
    is_sanity_pass,
    summary,
)
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, extended, join
from seatrial.model.result import Check, Judgement, Suspect, SuspectKind
from seatrial.model.verdict import Verdict, worst

_WITHOUT_RATE = 0.8  # the confidence that a part that measured 0, where others did not, has a fault


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
    """The judge of all checks of a run, and of what is to be measured once more."""

    def __init__(self, checks: Sequence[Check], knowledge: Knowledge) -> None:
        """Judge the numbers of the checks by what is known."""
        self._knowledge = knowledge
        self._run = RunNumbers(checks, knowledge)

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Add further readings, in the order they were taken."""
        self._run.add(measurements)

    def doubts(self) -> Doubts:
        """Return by check what to measure once more."""
        return doubts_of(self._run)

    def judged(self, checks: Sequence[Check]) -> list[Check]:
        """Return the checks with the judgements of their numbers."""
        by_check: dict[str, dict[str, Judgement]] = defaultdict(dict)
        for name in self._run.numbers:
            if judgement := self._run.judgement(name):
                check_name = self._run.check_of[name]
                by_check[check_name][name] = judgement
        run_findings = self._findings()
        blamed = blamed_nodes(checks)
        setup = self._knowledge.setup
        nodes = self._knowledge.nodes or setup.nodes
        # For logs without a fabric, the judge of logs says it, with the evidence
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
        if self._run.compared.judged is None:
            return []
        nodes = set[str]()
        for taken in self._run.taken.values():
            nodes.update(taken[0].subject.nodes)
        run_findings = []
        for finding in findings(self._run.compared.judged):
            own = tuple(
                i for i in finding.series if self._run.compared.name(i) in self._run.check_of
            )
            if own == finding.series:
                run_findings.append(finding)
            elif own:
                suspects = tuple(s for s in finding.suspects if _node_of(s) in nodes)
                run_findings.append(replace(finding, series=own, suspects=suspects))
        return run_findings

    def _judged_check(
        self,
        check: Check,
        judgements: Mapping[str, Judgement],
        run_findings: Sequence[Finding],
        missing: Sequence[Reason],
    ) -> Check:
        """Judge one check; `missing` says which numbers some nodes lack."""
        new = self._new(check, judgements)
        if not new:
            return check
        own = [f for f in run_findings if self._run.compared.name(f.series[0]) in new]
        together = [f for f in own if _is_of_group(f)]
        of_groups = [f.judgement for f in together]
        group_of = self._group_of(together)
        alone = [j for name, j in new.items() if name not in group_of]
        counted = [*map(self._changed, of_groups), *counting(alone)]
        every = []
        for name, judgement in new.items():
            if group := group_of.get(name):
                # A number that is low together with its peers is as bad as they are, so that it
                # teaches nothing.
                every.append(replace(judgement, verdict=group.verdict, reason=group.reason))
            else:
                every.append(judgement)
        reason = self._summary(check, every, counted)
        verdicts = [check.verdict, *(judgement.verdict for judgement in counted)]
        if missing:
            verdicts.append(Verdict.INCONCLUSIVE)
        return replace(
            check,
            verdict=worst(verdicts),
            reason=join((reason, *missing) if counted else (*missing, reason)),
            judgements=(*check.judgements, *of_groups, *every),
            suspects=(*check.suspects, *_suspects(own, every)),
            raw_result=check.raw,
        )

    def _new(self, check: Check, judgements: Mapping[str, Judgement]) -> dict[str, Judgement]:
        """Return the judgements that the check does not hold yet."""
        recorded = {j.measurement.series() for j in check.judgements}
        new = dict[str, Judgement]()
        for name, judgement in self._with_own(check, judgements).items():
            if name not in recorded or not is_sanity_pass(judgement):
                new[name] = self._changed(judgement)
        return new

    def _group_of(self, together: Iterable[Finding]) -> dict[str, Judgement]:
        """Return the judgement of its group for each number that is low together with its peers."""
        group_of = dict[str, Judgement]()
        for finding in together:
            for i in finding.series:
                group_of[self._run.compared.name(i)] = finding.judgement
        return group_of

    def _with_own(
        self, check: Check, judgements: Mapping[str, Judgement]
    ) -> Mapping[str, Judgement]:
        """Return the harsher of the judge's judgements and the check's own for numbers it blames
        nodes for.
        """
        if not check.raw.suspects:
            return judgements
        merged = dict(judgements)
        groups = self._knowledge.groups.name_by_node
        for own in judged_rates(check, groups):
            name = own.measurement.series()
            known = merged.get(name)
            if known is None or own.verdict.severity < known.verdict.severity:
                merged[name] = own
        return merged

    def _changed(self, judgement: Judgement) -> Judgement:
        """Add to a bad number the software that has changed since the last pass, the first thing to
        look at.
        """
        past = self._knowledge.past
        if not past or not past.changed:
            return judgement
        if judgement.passed or judgement.source != "history":
            return judgement
        reason = extended(judgement.reason, f"; changed with {past.changed}")
        return replace(judgement, reason=reason)

    def _summary(
        self, check: Check, new: Sequence[Judgement], counted: Sequence[Judgement]
    ) -> Reason:
        """Sum up the votes; name groups of nodes that were compared separately, and what is
        watched.
        """
        groups = Reason()
        if any(judgement.measurement.subject.nodes for judgement in new):
            groups = self._knowledge.groups.reason
        names = {judgement.measurement.series() for judgement in new}
        watches: Iterable[Reason] = ()
        if self._run.compared.judged:
            watches = self._run.compared.judged.watches(names)
        return summary(check, new, counted, groups, *watches)


def _is_of_group(finding: Finding) -> bool:
    subject = finding.judgement.measurement.subject
    return subject.kind == "group" and len(finding.series) > 1


def _node_of(suspect: Suspect) -> str:
    node, _, _ = suspect.name.partition("/")
    return node


def _suspects(found: Sequence[Finding], judgements: Sequence[Judgement]) -> list[Suspect]:
    """Return the suspects of the findings, and nodes, GPUs and links that measured 0 while others
    did not.
    """
    suspects = list[Suspect]()
    for finding in found:
        suspects += finding.suspects
    measured = [j.measurement for j in judgements]
    moving = {_alike(m) for m in measured if m.value > 0}
    for j in judgements:
        m = j.measurement
        is_part = m.subject.kind in PEERS
        if is_part and _is_zero(j) and _alike(m) in moving:
            suspect = Suspect(
                kind=cast(SuspectKind, m.subject.kind),
                name=m.subject.name,
                confidence=_WITHOUT_RATE,
                evidence=j.reason,
                verdict=j.verdict,
            )
            suspects.append(suspect)
    return suspects


def _is_zero(j: Judgement) -> bool:
    """Return whether a number fails because it is 0."""
    fails = j.source == "sanity" and j.verdict is Verdict.FAIL
    return fails and not j.measurement.value


def _alike(m: Measurement) -> tuple[str, str, str]:
    """Return the key of numbers of parts of one kind: metric, unit and kind of subject."""
    return m.metric, m.unit, m.subject.kind
