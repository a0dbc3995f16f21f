"""Step `collectives`: sweep each operation over every rank; are the results right, and how fast do
they come?

With GPUs the sweeps are nccl-tests, one rank per GPU; without, the gloo probe, which prints the
same table. Each operation is an mpirun of its own. After one that fails every node is asked whether
it is still there: nodes that died are named and taken out, and the others go on. Where all are
there and yet the fabric is gone (the head cannot be reached, mpirun cannot start its daemons, or
nothing ends in time), the rest is not tried: each would cost its whole time limit and say nothing
new. What is measured: seatrial/checks/collectives/outcome.py. The arms come last:
seatrial/model/setup.py.

Where the cluster has a fabric between its nodes, NCCL must say which network it took, because it
falls back to sockets in silence. So the first operation runs with NCCL_DEBUG=INFO and
NCCL_DEBUG_SUBSYS=INIT,NET, some hundred lines per rank before the first row, and the others with
NCCL_DEBUG=WARN; what the cluster file says of either variable stands.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from seatrial.checks.collectives.outcome import SweepOutcome
from seatrial.checks.collectives.section import ARM_OPERATION, Collectives, plan_sweeps, sweep_of
from seatrial.checks.collectives.sweep import planned_sweeps, sweep
from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.connectivity.stages import RollCall, conclude_repeat, roll_call
from seatrial.checks.contract import (
    TORCH,
    CheckContext,
    CheckType,
    Need,
    Repeated,
    StepResult,
    TimeLeft,
    log_repeat,
    too_small,
    unused_label,
    was_cut,
)
from seatrial.checks.metrics import COLLECTIVE_METRICS, Doubt
from seatrial.config.run import Run
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, caused, join
from seatrial.model.result import Check
from seatrial.model.setup import INTRA, NETWORK
from seatrial.model.sizes import size_span
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict, worst
from seatrial.nccl.busbw import plateau_sizes

log = logging.getLogger("seatrial.collectives")

_NAME = "collectives"
NCCL_TESTS = Need(
    "nccl-tests", "put all_reduce_perf on PATH, or set nccl_tests (images/common/build-nccl-tests)"
)


def repeat_sweeps(
    context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft
) -> None:
    """Repeat each sweep over the range of its doubtful sizes; the arm `intra` on doubtful nodes
    only.
    """
    run = context.run
    testbed = context.testbed
    section = context.section(Collectives)
    for planned in planned_sweeps(testbed, section):
        own = [d for d in doubts if sweep_of(d.measurement) == (planned.operation, planned.arm)]
        doubtful = sorted(
            {size for d in own for size in _sizes_behind(d.measurement, planned.sizes.sizes())}
        )
        if not doubtful or left.over:
            continue
        log_repeat(f"{planned.label} at {size_span(doubtful[0], doubtful[-1])}", own)
        limit_s = left.limit(section.timeout_s)
        began = time.monotonic()
        sizes = planned.sizes.model_copy(
            update={"min_bytes": doubtful[0], "max_bytes": doubtful[-1]}
        )
        doubtful_nodes = {d.measurement.subject.name for d in own}
        outcome = sweep(
            run,
            testbed.without(
                name
                for name in testbed.names
                if planned.arm == INTRA and name not in doubtful_nodes
            ),
            section.model_copy(update={"timeout_s": limit_s}),
            replace(planned, sizes=sizes),
            name_log=partial(unused_label, run.logs),
            is_repeat=True,
        )
        repeated.measurements += outcome.measurements
        repeated.over = outcome.fabric_gone
        cut = outcome.fabric_gone and was_cut(began, limit_s, section.timeout_s)
        repeated.suspects += () if cut else outcome.lost
        conclude_repeat(
            run, testbed, repeated, Verdict.INCONCLUSIVE if cut else outcome.verdict, outcome.reason
        )
        if repeated.over:
            return


def _sizes_behind(measurement: Measurement, sizes: Sequence[int]) -> Sequence[int]:
    """Return the requested sizes that a measurement is from; `sizes` are ascending.

    The bytes that were moved may be fewer than the requested size.
    """
    moved = measurement.conditions.get("message_bytes")
    if not isinstance(moved, int):
        return plateau_sizes(sizes)
    return [size for size in sizes if size >= moved][:1]


def collectives(context: CheckContext) -> StepResult:
    """Sweep every operation that the suite asks for."""
    started = time.monotonic()
    outcomes, present = _sweep_all(context.run, context.testbed, context.section(Collectives))
    verdict = worst(outcome.verdict for outcome in outcomes)
    bad = [outcome for outcome in outcomes if outcome.verdict is not Verdict.PASS]
    bad.sort(key=lambda outcome: outcome.verdict is not verdict)  # the worst first
    operations = ", ".join(outcome.operation for outcome in outcomes)
    way = next((f", {outcome.way}" for outcome in outcomes if outcome.way), "")
    right = Reason.of(
        "collectives-right", operations=operations, ranks=context.testbed.world_size, way=way
    )
    check = Check(
        name=_NAME,
        verdict=verdict,
        reason=join(outcome.reason for outcome in bad) or right,
        seconds=time.monotonic() - started,
        measurements=tuple(m for outcome in outcomes for m in outcome.measurements),
        suspects=present.suspects,
    )
    return StepResult(check, present.testbed)


def _sweep_all(
    run: Run, testbed: Testbed, settings: Collectives
) -> tuple[list[SweepOutcome], RollCall]:
    """Return the outcome of every operation, and the roll call of the remaining nodes."""
    outcomes: list[SweepOutcome] = []
    present = RollCall(testbed)
    for planned in planned_sweeps(testbed, settings):
        not_tried = _reason_to_skip(run, present.testbed, outcomes, planned.label)
        if not_tried:
            outcomes.append(SweepOutcome(planned.label, Verdict.NOT_RUN, not_tried))
            continue
        outcome = sweep(run, present.testbed, settings, planned, verbose=not outcomes)
        outcome, present = _without_lost_nodes(run, present, outcome)
        # Lost nodes of this arm show nothing about the fabric between the others
        if planned.arm == INTRA:
            outcome = replace(outcome, fabric_gone=False)
        if planned.arm == NETWORK and not present.suspects:
            outcome = _without_blame(outcome, outcomes)
        outcomes.append(outcome)
        level = logging.INFO if outcome.verdict is Verdict.PASS else logging.WARNING
        log.log(level, "%s", outcome.reason)
    # Nodes whose ranks broke a sweep are suspects too; they answer, and stay in the testbed.
    suspects = {suspect.name: suspect for suspect in present.suspects}
    for suspect in (
        lost for outcome in outcomes if outcome.verdict is Verdict.FAIL for lost in outcome.lost
    ):
        suspects.setdefault(suspect.name, suspect)
    return outcomes, replace(present, suspects=tuple(suspects.values()))


def _without_blame(network: SweepOutcome, before: Sequence[SweepOutcome]) -> SweepOutcome:
    """Make a failed arm `network` inconclusive if the same collective works without it.

    Not every fabric joins GPUs of one node.
    """
    works = any(
        outcome.operation == ARM_OPERATION and outcome.verdict is Verdict.PASS for outcome in before
    )
    if not works or network.verdict is not Verdict.FAIL or network.measurements:
        return network
    return replace(
        network,
        verdict=Verdict.INCONCLUSIVE,
        reason=Reason.of("network-arm-broke", reason=network.reason),
        fabric_gone=False,
    )


def _without_lost_nodes(
    run: Run, present: RollCall, outcome: SweepOutcome
) -> tuple[SweepOutcome, RollCall]:
    """Ask which nodes are left after a sweep.

    Return the outcome, which blames nodes that are gone, and the nodes left.
    """
    if outcome.suspects:  # nodes that answer but spoil the sweep
        left = present.testbed.without(suspect.name for suspect in outcome.suspects)
        present = replace(present, testbed=left, suspects=(*present.suspects, *outcome.suspects))
    ended_early = outcome.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE) and not outcome.suspects
    if not (outcome.fabric_gone or ended_early):
        return outcome, present
    now = roll_call(run, present.testbed)
    if not now.problems:
        return outcome, present
    lost = partial(Reason.of, "node-lost", operation=outcome.operation)
    gone = [
        replace(s, evidence=lost(problem=s.evidence)) if s.kind == "node" else s
        for s in now.suspects
    ]
    outcome = replace(
        outcome, verdict=now.verdict, reason=now.reason(outcome.reason), fabric_gone=False
    )
    if gone:  # the lost nodes are the cause
        outcome = replace(outcome, lost=())
    return outcome, replace(now, suspects=(*present.suspects, *gone))


def _reason_to_skip(
    run: Run, testbed: Testbed, outcomes: Sequence[SweepOutcome], operation: str
) -> Reason | None:
    """Return the reason to skip an operation that would show nothing; None if it may run."""
    not_tried = partial(Reason.of, "operation-not-tried", operation=operation)
    gone = next((outcome for outcome in outcomes if outcome.fabric_gone), None)
    if gone:
        return not_tried(
            reason="the fabric is gone"
            if gone.verdict is Verdict.FAIL
            else f"{gone.operation} could not be measured"
        )
    reason = too_small(run, testbed)
    return caused(not_tried(reason=reason), reason) if reason else None


COLLECTIVES = CheckType(
    name=_NAME,
    section=Collectives,
    description="sweeps of nccl-tests or gloo",
    run=collectives,
    after=CONNECTIVITY.name,
    metrics=COLLECTIVE_METRICS,
    needs=lambda gpus: (NCCL_TESTS if gpus else TORCH,),
    least_ranks=2,
    repeat=repeat_sweeps,
    plan=plan_sweeps,
)
