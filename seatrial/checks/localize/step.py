"""Step `localize` of a run: find the part that has become slow, or makes a collective slow or fail.

First the measurements of single nodes are repeated, which takes seconds and names a node that has
become slow; if no collective is bad, only TCP streams are. Then a bad collective runs in rounds of
disjoint groups of nodes at once, an mpirun for each group.
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

_LEAST_NODES = 3  # with two nodes, a node cannot be distinguished from the link
# Checks of single nodes, the quickest first
_ALONE = (CONNECTIVITY.name, COLLECTIVES.name, DEVICES.name)
_ALONE_SHARE = 0.25  # share of the time for repeats of single nodes

# Repeats doubts until a time (time.monotonic)
RepeatDoubts = Callable[[Doubts, float], Mapping[str, Repeated]]
Judge = Callable[[Sequence[Check], RepeatDoubts | None, float], list[Check]]


@dataclass(frozen=True, slots=True)
class Localized:
    """The check `localize` with the remaining nodes, and the `localization` of run.json."""

    step: StepResult
    document: Mapping[str, Any]


def is_due(context: CheckContext, checks: Sequence[Check]) -> bool:
    """Return whether a node has become slow, or a collective may be slow and no part is a sure
    suspect.

    There must be at least `_LEAST_NODES` nodes.
    """
    # Nodes that were borrowed from a cluster at work are not kept for that long
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
    """Return whether a node has become slow since its first streams."""
    findings = context.recall(Findings)
    return findings is not None and bool(findings.slowed)


def _shows_half(check: Check) -> bool:
    """Return whether the expected range of a collective excludes half of its measured rate."""
    for judgement in check.judgements:
        if judgement.measurement.metric == "busbw_plateau":
            low = judgement.expected.low
            if low is not None and low > judgement.measurement.value / 2:
                return True
    return False


def localize_run(
    context: CheckContext, checks: Sequence[Check], judge: Judge, until: float
) -> Localized | None:
    """Find what has become slow, or the part that makes a collective of `checks` bad; None if
    neither is so.

    No round begins after `until` (time.monotonic).
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
    """Run rounds of the first bad sweep of the check."""
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
    """Return the first sweep over all nodes that was bad or not measured.

    It is limited to the sizes of its plateau.
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
    """Repeat the measurements of single nodes in the checks `names`, and judge the repeats
    alone.
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
    # Repeat slow ones once more, as a machine may be busy for a moment
    repeated |= repeat(slow, until)
    fresh_checks = []
    for name, again in repeated.items():
        doubted = {doubt.measurement.series() for doubt in doubts[name]}
        measured = {m.series() for m in again.measurements}
        if not doubted <= measured:
            # Time ran out: without its best neighbour, a healthy node would look slow
            again.check = None
        first = Check(name=name, verdict=Verdict.PASS, reason=Reason())
        fresh_checks.append(again.added_to(first))
    return judge(fresh_checks, repeat, until)


def _as_at_first(context: CheckContext) -> CheckContext:
    """Return the context with empty findings, as before any measurement."""
    earlier = context.recall(Findings)
    fresh = Findings(context.testbed)
    if earlier:
        fresh.model_by_node = earlier.model_by_node
    return replace(context, kept=(fresh, *context.kept))


def _doubts(check: Check) -> list[Doubt]:
    """Return a doubt for each series of a node or GPU that has a better direction."""
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
