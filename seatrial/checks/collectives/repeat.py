"""Each operation with a doubtful number once more, over the sizes that are in doubt."""

import time
from collections.abc import Sequence

from seatrial.checks.collectives.plateau import sizes_behind
from seatrial.checks.collectives.section import Collectives
from seatrial.checks.collectives.sweep import can_write_json, sizes_of, sweep_once
from seatrial.checks.connectivity.roll_call import conclude_repeat
from seatrial.checks.contract import CheckContext
from seatrial.checks.repeated import Doubt, Repeated, TimeLeft, log_repeat, unused_label, was_cut
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict


def repeat_sweeps(context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft) -> None:
    """Each operation from the smallest to the largest of its doubtful sizes."""
    run, testbed, section = context.run, context.testbed, context.section(Collectives)
    sizes = sizes_of(testbed, section)
    writes_json = can_write_json(testbed, section.operations[0])
    for operation in section.operations:
        own = [d for d in doubts if d.measurement.conditions.get("operation") == operation]
        doubtful = sorted({size for d in own for size in sizes_behind(d.measurement, sizes.sizes())})
        if not doubtful or left.over:
            continue
        log_repeat(f"{operation} at {_span(doubtful)}", own)
        part = sizes.model_copy(update={"min_bytes": doubtful[0], "max_bytes": doubtful[-1]})
        limit_s, began = left.limit(section.timeout_s), time.monotonic()
        outcome = sweep_once(
            run,
            testbed,
            section.model_copy(update={"gpu" if testbed.has_gpus else "cpu": part, "timeout_s": limit_s}),
            operation,
            label=unused_label(run.logs, operation),
            writes_json=writes_json,
        )
        repeated.measurements += outcome.measurements
        repeated.over = outcome.fabric_gone
        cut = outcome.fabric_gone and was_cut(began, limit_s, section.timeout_s)
        conclude_repeat(run, testbed, repeated, Verdict.INCONCLUSIVE if cut else outcome.verdict, outcome.reason)
        if repeated.over:
            return


def _span(sizes: Sequence[int]) -> str:
    first, last = format_size(sizes[0]), format_size(sizes[-1])
    return first if first == last else f"{first} to {last}"
