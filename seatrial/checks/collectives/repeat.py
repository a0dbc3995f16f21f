"""Each operation with a doubtful number once more, over the sizes that are in doubt."""

import time
from collections.abc import Sequence
from dataclasses import replace

from seatrial.checks.collectives.intra import sweep_each_node
from seatrial.checks.collectives.outcome import SweepOutcome
from seatrial.checks.collectives.section import Collectives, PlannedSweep
from seatrial.checks.collectives.sweep import can_write_json, planned_sweeps, sweep_once
from seatrial.checks.connectivity.roll_call import conclude_repeat
from seatrial.checks.contract import CheckContext
from seatrial.checks.repeated import Doubt, Repeated, TimeLeft, log_repeat, unused_label, was_cut
from seatrial.config.run import Run
from seatrial.model.arms import INTRA, arm_of
from seatrial.model.measurement import Measurement
from seatrial.model.sizes import format_size
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.nccl.busbw import plateau_sizes


def repeat_sweeps(context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft) -> None:
    """Each sweep from the smallest to the largest of its doubtful sizes; in the arm `intra` on the doubtful nodes."""
    run, testbed, section = context.run, context.testbed, context.section(Collectives)
    writes_json = can_write_json(testbed, section.operations[0])
    for planned in planned_sweeps(testbed, section):
        own = [d for d in doubts if d.measurement.conditions.get("operation") == planned.operation]
        own = [d for d in own if arm_of(d.measurement) == planned.arm]
        doubtful = sorted({size for d in own for size in _sizes_behind(d.measurement, planned.sizes.sizes())})
        if not doubtful or left.over:
            continue
        log_repeat(f"{planned.label} at {_span(doubtful)}", own)
        limit_s, began = left.limit(section.timeout_s), time.monotonic()
        sizes = planned.sizes.model_copy(update={"min_bytes": doubtful[0], "max_bytes": doubtful[-1]})
        hurried = section.model_copy(update={"timeout_s": limit_s})
        outcome = _once_more(run, testbed, hurried, replace(planned, sizes=sizes), own, writes_json=writes_json)
        repeated.measurements += outcome.measurements
        repeated.over = outcome.fabric_gone
        cut = outcome.fabric_gone and was_cut(began, limit_s, section.timeout_s)
        repeated.suspects += () if cut else outcome.lost
        conclude_repeat(run, testbed, repeated, Verdict.INCONCLUSIVE if cut else outcome.verdict, outcome.reason)
        if repeated.over:
            return


def _sizes_behind(measurement: Measurement, sizes: Sequence[int]) -> Sequence[int]:
    """Return which of the sizes asked for, smallest first, the number comes from; what was moved may be less."""
    moved = measurement.conditions.get("message_bytes")
    if not isinstance(moved, int):
        return plateau_sizes(sizes)
    return [size for size in sizes if size >= moved][:1]


def _once_more(
    run: Run, testbed: Testbed, section: Collectives, planned: PlannedSweep, own: Sequence[Doubt], *, writes_json: bool
) -> SweepOutcome:
    if planned.arm != INTRA:
        label = unused_label(run.logs, planned.label)
        return sweep_once(run, testbed, section, planned, label=label, is_repeat=True, writes_json=writes_json)
    doubtful = {d.measurement.subject.name for d in own}
    return sweep_each_node(
        run,
        testbed.without(node.name for node in testbed.nodes if node.name not in doubtful),
        section,
        planned,
        label_of=lambda node: unused_label(run.logs, f"{planned.label}-{node}"),
        is_repeat=True,
        writes_json=writes_json,
    )


def _span(sizes: Sequence[int]) -> str:
    first, last = format_size(sizes[0]), format_size(sizes[-1])
    return first if first == last else f"{first} to {last}"
