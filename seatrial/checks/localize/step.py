"""Step `localize` of a run: which part of the testbed has slowed since, or makes a collective slow
or fail.

First the numbers of single nodes are measured again, which takes seconds and names a node that has
slowed; TCP streams only where no collective is bad but no history would show it. Then a bad
collective runs in rounds of disjoint groups of nodes, each by an mpirun of its own, beside each
other.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.collectives.section import Collectives, PlannedSweep, sweep_of
from seatrial.checks.collectives.sweep import planned_sweeps
from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.contract import CheckContext, Repeated, StepResult
from seatrial.checks.devices.check import DEVICES
from seatrial.checks.localize.rounds import LOCALIZE, Rounds, budget_spent
from seatrial.checks.metrics import Doubt, Doubts
from seatrial.checks.table import repeat_checks
from seatrial.localize.localization import Localization, localize, tests_of
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import SURE, Check, Document, merge_suspects
from seatrial.model.setup import NETWORK
from seatrial.model.verdict import Verdict, worst
from seatrial.nccl.busbw import plateau_sizes

_LEAST_NODES = 3  # of two, neither can be told from their link
_ALONE = (CONNECTIVITY.name, COLLECTIVES.name, DEVICES.name)  # the quickest first
_ALONE_SHARE = 0.25  # of the time

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
    for check in checks:
        if any(suspect.confidence >= SURE for suspect in check.suspects):
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
    bad = _bad_collectives(checks)
    fault = Verdict.DEGRADED
    alone: tuple[str, ...] = _ALONE[:1]
    if bad:
        fault = bad.verdict
        alone = _ALONE
    alone_until = started + _ALONE_SHARE * (until - started)
    again = _measured_again(context, checks, alone, judge, alone_until)
    suspects = tuple(suspect for suspect in merge_suspects(again) if suspect.confidence >= SURE)
    if bad and not suspects:
        return _in_rounds(context, bad, started, until)
    if suspects:
        verdicts = [check.verdict for check in again]
        fault = worst([fault, *verdicts])
        found = join([placed(suspect.name, suspect.evidence) for suspect in suspects[:2]])
        reason = Reason.of("localize-measured-again", found=found)
    elif _has_slowed(context) and not any(check.measurements for check in again):
        fault = Verdict.INCONCLUSIVE
        reason = budget_spent(context.run, rounds=0)
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


def _bad_collectives(checks: Sequence[Check]) -> Check | None:
    for check in checks:
        if check.name == COLLECTIVES.name and check.verdict.is_fault:
            return check
    return None


def _in_rounds(context: CheckContext, bad: Check, started: float, until: float) -> Localized:
    """Run rounds of groups by the sweep of the check that is bad."""
    section = context.section(Collectives)
    planned = planned_sweeps(context.testbed, section)
    sweep = _bad_sweep(bad, planned)
    rounds = Rounds(context, section, sweep, until)
    rounds.run()
    seconds = time.monotonic() - started
    check = replace(rounds.check(bad.verdict), seconds=seconds)
    state = rounds.state
    document = _document(check, state.localization, state.rounds, sweep.label)
    return Localized(StepResult(check, rounds.testbed), document)


def _bad_sweep(check: Check, planned: Sequence[PlannedSweep]) -> PlannedSweep:
    """Return the first sweep over all nodes that was bad or has no number, at the sizes of its
    plateau.
    """
    bad = {sweep_of(j.measurement) for j in check.judgements if j.verdict.is_fault}
    measured = {sweep_of(m) for m in check.measurements}
    over_all = [sweep for sweep in planned if sweep.arm in ("", NETWORK)]
    by_key = {(sweep.operation, sweep.arm): sweep for sweep in over_all}
    suspected = [sweep for key, sweep in by_key.items() if key in bad or key not in measured]
    sweep, *_ = (*suspected, *over_all)
    return _at_plateau(sweep)


def _at_plateau(sweep: PlannedSweep) -> PlannedSweep:
    plateau = plateau_sizes(sweep.sizes.sizes())
    ends = {"min_bytes": plateau[0], "max_bytes": plateau[-1]}
    sizes = sweep.sizes.model_copy(update=ends)
    return replace(sweep, sizes=sizes)


def _measured_again(
    context: CheckContext, checks: Sequence[Check], names: Sequence[str], judge: Judge, until: float
) -> list[Check]:
    """Repeat the numbers of single nodes in the checks `names`, and judge them without the first
    readings.
    """
    repeat = partial(repeat_checks, _as_at_first(context))
    by_name = {check.name: check for check in checks}
    doubts = {}
    for name in names:
        if name in by_name:
            doubts[name] = _doubts(by_name[name])
    in_doubt = {name: some for name, some in doubts.items() if some}
    repeated = repeat(in_doubt, until)
    slow = {}
    for name, again in repeated.items():
        if again.check and again.check.suspects and not again.over:
            slow[name] = doubts[name]
    # A machine that was busy for a moment is no fault
    repeated |= repeat(slow, until)
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


def _as_at_first(context: CheckContext) -> CheckContext:
    """Return the context as if nothing was measured yet."""
    earlier = context.recall(Findings)
    fresh = Findings(context.testbed)
    if earlier:
        fresh.model_by_node = earlier.model_by_node
    return replace(context, kept=(fresh, *context.kept))


def _doubts(check: Check) -> list[Doubt]:
    """Return one doubt for each series of a node or GPU in which more or less is better."""
    measured = {}
    for m in check.measurements:
        if m.better and m.subject.kind in ("node", "gpu"):
            measured[m.series()] = m
    return [Doubt(m, 1, 2) for m in measured.values()]


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
