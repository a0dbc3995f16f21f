"""Step `localize` of a run: which part of the testbed has slowed since, or makes a collective slow
or fail.

First the numbers of single nodes are measured again, which takes seconds and names a node that has
slowed; TCP streams only where no collective is bad but no history would show it. Then a bad
collective runs in rounds of disjoint groups of nodes, each by an mpirun of its own, beside each
other.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.collectives.outcome import SweepOutcome
from seatrial.checks.collectives.section import Collectives, PlannedSweep, sweep_of
from seatrial.checks.collectives.sweep import at_once, planned_sweeps, sweep_once
from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.stages import roll_call
from seatrial.checks.contract import CheckContext, Repeated, StepResult
from seatrial.checks.devices.check import DEVICES
from seatrial.checks.metrics import Doubt, Doubts
from seatrial.checks.table import repeat_checks
from seatrial.config.run import Run
from seatrial.localize.group_tests import GroupTest
from seatrial.localize.localization import Localization, localize, tests_of
from seatrial.localize.rounds import Budget, Group, State, plan, start, update
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import SURE, Check, Document, Suspect, merge_suspects
from seatrial.model.setup import NETWORK
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict, worst
from seatrial.nccl.busbw import plateau_sizes
from seatrial.remote.ssh import in_parallel

log = logging.getLogger("seatrial.localize")

LOCALIZE = "localize"
_LEAST_NODES = 3  # of two, neither can be told from their link
_ALONE = (CONNECTIVITY.name, COLLECTIVES.name, DEVICES.name)  # the quickest first
_ALONE_SHARE = 0.25  # of the time
_LEAST_TIMEOUT_S = 30.0  # of a test

RepeatDoubts = Callable[[Doubts, float], Mapping[str, Repeated]]  # until when, time.monotonic
Judge = Callable[[Sequence[Check], RepeatDoubts | None, float], list[Check]]


@dataclass(frozen=True, slots=True)
class Localized:
    """The check `localize` with the nodes that are left, and the `localization` of run.json."""

    step: StepResult
    document: Mapping[str, Any]


def is_due(context: CheckContext, checks: Sequence[Check]) -> bool:
    """Return whether a node has slowed, or a collective is or may be slow and no part is
    suspected.
    """
    # Taken nodes are not kept for that long
    if len(context.testbed.nodes) < _LEAST_NODES or context.run.taken:
        return False
    if _has_slowed(context):
        return True
    if any(suspect.confidence >= SURE for check in checks for suspect in check.suspects):
        return False
    for check in checks:
        tried = check.name == COLLECTIVES.name and check.verdict is not Verdict.NOT_RUN
        if tried and (check.verdict.is_fault or not _shows_half(check)):
            return True
    return False


def _has_slowed(context: CheckContext) -> bool:
    """Return whether a node has slowed after its first streams."""
    findings = context.recall(Findings)
    return findings is not None and bool(findings.slowed)


def _shows_half(check: Check) -> bool:
    """Return whether a loss of half of a collective's rate would be below what is expected of
    it.
    """
    for judgement in check.judgements:
        if judgement.measurement.metric == "busbw_plateau":
            low = judgement.expected.low
            if low is not None and low > judgement.measurement.value / 2:
                return True
    return False


def localize_run(
    context: CheckContext, checks: Sequence[Check], judge: Judge, until: float
) -> Localized | None:
    """Name what has slowed since, or the part that makes the collectives of `checks` bad; None
    where neither is.

    No round begins after `until`, of time.monotonic.
    """
    started = time.monotonic()
    bad = next(
        (check for check in checks if check.name == COLLECTIVES.name and check.verdict.is_fault),
        None,
    )
    alone = _ALONE if bad else _ALONE[:1]
    alone_until = started + _ALONE_SHARE * (until - started)
    again = _measured_again(context, checks, alone, judge, alone_until)
    suspects = tuple(suspect for suspect in merge_suspects(again) if suspect.confidence >= SURE)
    if bad and not suspects:
        return _in_rounds(context, bad, started, until)
    if suspects:
        verdicts = [check.verdict for check in again]
        fault = worst([bad.verdict if bad else Verdict.DEGRADED, *verdicts])
        found = join([placed(suspect.name, suspect.evidence) for suspect in suspects[:2]])
        reason = Reason.of("localize-measured-again", found=found)
    elif _has_slowed(context) and not any(check.measurements for check in again):
        fault = Verdict.INCONCLUSIVE
        reason = _budget_spent(context.run, rounds=0)
    else:
        return None
    check = Check(
        name=LOCALIZE,
        verdict=fault,
        reason=reason,
        seconds=time.monotonic() - started,
        suspects=suspects,
    )
    return Localized(StepResult(check, context.testbed), _document(check, localize(())))


def _in_rounds(context: CheckContext, bad: Check, started: float, until: float) -> Localized:
    """Run rounds of groups by the sweep of the check that is bad."""
    section = context.section(Collectives)
    sweep = _bad_sweep(bad, planned_sweeps(context.testbed, section))
    rounds = _Rounds(context, section, sweep, until)
    rounds.run()
    check = replace(rounds.check(bad.verdict), seconds=time.monotonic() - started)
    state = rounds.state
    document = _document(check, state.localization, state.rounds, sweep.label)
    return Localized(StepResult(check, rounds.testbed), document)


def _budget_spent(run: Run, rounds: int) -> Reason:
    """Return the reason that no time was left for more rounds."""
    return Reason.of("localize-budget-spent", rounds=rounds, budget_s=f"{run.suite.budget_s:g}")


def _measured_again(
    context: CheckContext, checks: Sequence[Check], names: Sequence[str], judge: Judge, until: float
) -> list[Check]:
    """Repeat the numbers of single nodes in the checks `names`, and judge them without the first
    readings.
    """
    earlier = context.recall(Findings)
    fresh = Findings(context.testbed, model_by_node=earlier.model_by_node if earlier else {})
    repeat = partial(repeat_checks, replace(context, kept=(fresh, *context.kept)))
    by_name = {check.name: check for check in checks}
    doubts = {name: _doubts(by_name[name]) for name in names if name in by_name}
    repeated = repeat({name: some for name, some in doubts.items() if some}, until)
    slow = [
        name
        for name, again in repeated.items()
        if again.check and again.check.suspects and not again.over
    ]
    # A machine that was busy for a moment is no fault
    repeated |= repeat({name: doubts[name] for name in slow}, until)
    fresh_checks = []
    for name, again in repeated.items():
        doubted = {doubt.measurement.series() for doubt in doubts[name]}
        measured = {m.series() for m in again.measurements}
        if not doubted <= measured:
            # Time was over: without its best neighbour a healthy node looks slow
            again.check = None
        first = Check(name=name, verdict=Verdict.PASS, reason=Reason())
        fresh_checks.append(again.added_to(first))
    return judge(fresh_checks, repeat, until)


def _doubts(check: Check) -> list[Doubt]:
    """Return one doubt for each series of a node or GPU in which more or less is better."""
    measured = {}
    for m in check.measurements:
        if m.better and m.subject.kind in ("node", "gpu"):
            measured[m.series()] = m
    return [Doubt(m, 1, 2) for m in measured.values()]


def _bad_sweep(check: Check, planned: Sequence[PlannedSweep]) -> PlannedSweep:
    """Return the first sweep over all nodes that was bad or has no number, at the sizes of its
    plateau.
    """
    bad = {sweep_of(j.measurement) for j in check.judgements if j.verdict.is_fault}
    measured = {sweep_of(m) for m in check.measurements}
    over_all = [sweep for sweep in planned if sweep.arm in ("", NETWORK)]
    keys = {(sweep.operation, sweep.arm): sweep for sweep in over_all}
    sweep = next(
        (sweep for key, sweep in keys.items() if key in bad or key not in measured), over_all[0]
    )
    plateau = plateau_sizes(sweep.sizes.sizes())
    ends = {"min_bytes": plateau[0], "max_bytes": plateau[-1]}
    return replace(sweep, sizes=sweep.sizes.model_copy(update=ends))


class _Rounds:
    """Rounds on `testbed`, which shrinks as nodes die; `suspects` and `problems` are of those."""

    def __init__(
        self, context: CheckContext, section: Collectives, sweep: PlannedSweep, until: float
    ) -> None:
        testbed = context.testbed
        self.testbed = testbed
        self.sweep = sweep
        self._run = context.run
        self._section = section
        self._until = until
        self._suspects: list[Suspect] = []
        self._problems: list[Reason] = []
        self._spent = False
        self.state: State = start(testbed.names, _gpus(testbed), testbed.groups)

    def run(self) -> None:
        """Run rounds until it is settled, or one more as long as the last would end after the time
        limit.
        """
        last_s = 0.0
        while groups := plan(self.state, Budget()):
            began = time.monotonic()
            if began + last_s >= self._until:
                self._spent = True
                return
            self._round(groups)
            last_s = time.monotonic() - began
            log.info(
                "round %d, %d groups: %s",
                self.state.rounds,
                len(groups),
                self.state.localization.reason,
            )

    def _round(self, groups: Sequence[Group]) -> None:
        """Test the groups beside each other, without those of nodes that died meanwhile."""
        number = self.state.rounds + 1
        labelled = [(f"{LOCALIZE}-{number}-{n}", group) for n, group in enumerate(groups, 1)]
        parallel = at_once(self.testbed, [len(group.nodes) for group in groups])
        outcomes = in_parallel(labelled, lambda each: self._test(*each), parallel)
        tests = self._tests_of(labelled, outcomes)
        gone = set()
        if len(tests) < len(groups) or any(test.failed for test in tests):
            gone = self._gone(outcomes)
        nodes = tuple(node for node in self.state.nodes if node not in gone)
        known = tuple(test for test in self.state.tests if gone.isdisjoint(test.nodes))
        new = [test for test in tests if gone.isdisjoint(test.nodes)]
        self.state = update(replace(self.state, nodes=nodes, tests=known), new)

    def _tests_of(
        self, labelled: Sequence[tuple[str, Group]], outcomes: Sequence[SweepOutcome]
    ) -> list[GroupTest]:
        """Return the outcomes as tests of their groups, without those that say nothing."""
        sizes = self.sweep.sizes.sizes()
        tests = []
        for (label, group), outcome in zip(labelled, outcomes, strict=True):
            busbw = _busbw(outcome, sizes)
            if busbw is not None:
                test = group.result(self.sweep.label, busbw)
                tests.append(replace(test, name=label))
        return tests

    def _test(self, label: str, group: Group) -> SweepOutcome:
        """Run the sweep in one group, for half of the time that is left at most."""
        left_s = max(0.0, self._until - time.monotonic())
        half_s = max(_LEAST_TIMEOUT_S, left_s / 2)
        timeout_s = min(self._section.timeout_s, half_s)
        settings = self._section.model_copy(update={"timeout_s": timeout_s})
        part = self.testbed.part(group.nodes, label)
        part = _with_gpus(part, group.gpus, self.state.gpus)
        return sweep_once(self._run, part, settings, self.sweep, label=label, is_repeat=True)

    def _gone(self, outcomes: Iterable[SweepOutcome]) -> set[str]:
        """Take out nodes that died or flood their output, and blame them; blame those whose ranks
        broke a test, too.
        """
        present = roll_call(self._run, self.testbed)
        flooding = {suspect.name: suspect for outcome in outcomes for suspect in outcome.suspects}
        lost = {suspect.name: suspect for outcome in outcomes for suspect in outcome.lost}
        broken = (flooding | lost).values()
        self._suspects += [*present.suspects, *broken]
        self._problems += present.problems
        self._problems += [placed(suspect.name, suspect.evidence) for suspect in broken]
        before = set(self.testbed.names)
        self.testbed = present.testbed.without(flooding)
        return before - set(self.testbed.names)

    def check(self, fault: Verdict) -> Check:
        """Return the check: as bad as the collectives where a part is named, else inconclusive."""
        localization = self.state.localization
        rounds = self.state.rounds
        suspects = [*localization.suspects, *self._suspects]
        suspects.sort(key=lambda suspect: suspect.confidence)
        surest = {(suspect.kind, suspect.name): suspect for suspect in suspects}
        named = bool(self._suspects) or any(finding.named for finding in localization.findings)
        reasons = [*self._problems]
        if self.state.tests:
            reasons.append(localization.reason)
        if self._spent:
            reasons.append(_budget_spent(self._run, rounds))
        return Check(
            name=LOCALIZE,
            verdict=fault if named else Verdict.INCONCLUSIVE,
            reason=join(reasons) or Reason.of("localize-nothing-measured", rounds=rounds),
            suspects=tuple(surest.values()),
        )


def _gpus(testbed: Testbed) -> tuple[str, ...]:
    """Return the GPUs that every node has, to be tested by themselves too; none where they cannot
    be chosen.
    """
    numbers = {node.gpus for node in testbed.nodes} | {node.slots for node in testbed.nodes}
    if testbed.launcher:
        return ()
    if len(numbers) > 1 or 0 in numbers:
        return ()
    return tuple(f"gpu-{number}" for number in range(numbers.pop()))


def _with_gpus(part: Testbed, gpus: Sequence[str], every: Sequence[str]) -> Testbed:
    """Return the part of a testbed with a rank for each of those GPUs alone, by a variable that
    ROCm obeys as well.
    """
    if len(gpus) == len(every):
        return part
    visible = ",".join(gpu.removeprefix("gpu-") for gpu in gpus)
    nodes = tuple(replace(node, slots=len(gpus), gpus=len(gpus)) for node in part.nodes)
    return replace(part, nodes=nodes, env=(*part.env, ("CUDA_VISIBLE_DEVICES", visible)))


def _busbw(outcome: SweepOutcome, sizes: Sequence[int]) -> Mapping[int, float] | None:
    """Return GB/s by message bytes; empty where the test failed, None where it says nothing."""
    if outcome.verdict is Verdict.CORRUPT:
        return {}
    rates = {
        int(m.conditions["message_bytes"]): m.value
        for m in outcome.measurements
        if m.metric == "busbw" and m.conditions["placement"] == "out_of_place"
    }
    if len(rates) == len(sizes):
        return rates
    return {} if outcome.verdict is Verdict.FAIL else None


def _document(
    check: Check, localization: Localization, rounds: int = 0, collective: str | None = None
) -> Document:
    """Return the `localization` of run.json."""
    return localization.to_dict() | {
        "verdict": check.verdict.value,
        "code": check.to_dict()["code"],
        "reason": check.reason.sentence,
        "suspects": [suspect.to_dict() for suspect in check.suspects],
        "rounds": rounds,
        "collective": collective,
        "tests": tests_of(localization),
    }
