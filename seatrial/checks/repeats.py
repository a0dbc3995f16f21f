"""Measure again what the judge doubts, while the nodes are still up: each check in its own way.

What comes back are further measurements of the same series. What cannot be repeated is left out, so that the judge
goes by what there is.
"""

import logging
import math
from collections.abc import Mapping, Sequence

from seatrial.checks.contract import CheckContext
from seatrial.checks.repeated import Doubt, Repeated, TimeLeft
from seatrial.checks.requirements import too_small
from seatrial.checks.table import CHECKS
from seatrial.model.arms import INTRA, arm_of
from seatrial.model.errors import SeatrialError
from seatrial.model.testbed import Testbed

log = logging.getLogger("seatrial.repeat")


def measure_again(
    context: CheckContext, doubts: Mapping[str, Sequence[Doubt]], until: float = math.inf
) -> dict[str, Repeated]:
    """By check, one more measurement of each of its doubtful series, as far as it can be had before `until`."""
    by_check: dict[str, Repeated] = {}
    kinds, left = {kind.name: kind for kind in CHECKS}, TimeLeft(until)
    for name, doubted in doubts.items():
        kind, repeated = kinds[name], by_check.setdefault(name, Repeated())
        comparable = [doubt for doubt in doubted if _compares(doubt, context.testbed)]
        if kind.repeat is None or not comparable or left.over:
            continue
        if too_small(context.run, context.testbed, kind.least_ranks):
            continue
        try:
            kind.repeat(context, comparable, repeated, left)
        except SeatrialError as error:
            log.warning("%s cannot be repeated: %s", name, error)
        series = {doubt.measurement.series() for doubt in comparable}
        repeated.measurements = [m for m in repeated.measurements if m.series() in series]
        if repeated.over:
            break
    return by_check


def _compares(doubt: Doubt, testbed: Testbed) -> bool:
    """Whether these nodes can measure it: over fewer ranks, since nodes were taken out, it is another number."""
    m = doubt.measurement
    if arm_of(m) == INTRA:  # over the ranks of one node
        return any(node.name == m.subject.name for node in testbed.nodes)
    return m.conditions.get("ranks", testbed.world_size) == testbed.world_size
