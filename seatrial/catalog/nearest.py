"""The nearest reference to a configuration without one."""

import math
from collections.abc import Sequence
from operator import attrgetter

from seatrial.catalog import Reference, known_hardware, references
from seatrial.catalog.trained import differences
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.setup import INTRA, Setup, arm_of, is_busbw, part_of
from seatrial.model.sizes import size_span

# What a reference must have in common with a number to be near it
_key = attrgetter("hardware", "collective", "arm")
_NO_REFERENCE = ("sanity", "physics")  # sources of judgements without a published number


def missing_reference(check: Check, setup: Setup) -> Reason | None:
    """Return why the first plateau without a reference has none; None if all have one."""
    unjudged = [j.measurement for j in check.judgements if j.source in _NO_REFERENCE]
    for measurement in unjudged:
        if measurement.metric == "busbw_plateau":
            return _none_for(measurement, setup)
    if len(unjudged) < len(check.judgements):
        return None
    for measurement in unjudged:
        if is_busbw(measurement):
            return _none_for(measurement, setup)
    return None


def _none_for(busbw: Measurement, setup: Setup) -> Reason:
    """Return why there is no reference for the part of the testbed that was measured."""
    operation = str(busbw.conditions["operation"])
    arm = arm_of(busbw)
    if arm == INTRA:
        arm = ""
    part = part_of(busbw, setup)
    return no_reference(part, operation, arm)


def no_reference(setup: Setup, operation: str, arm: str = "") -> Reason:
    """Return what keeps the nearest reference of the catalog from being comparable."""
    hardware = setup.hardware
    if not hardware:
        return Reason.of("reference-gpu-unknown")
    if hardware not in known_hardware():
        return Reason.of("reference-hardware-missing", hardware=hardware)
    key = (hardware, operation, arm)
    rows = [row for row in references() if _key(row) == key]
    if not rows:
        if arm:
            arm = f" in the arm {arm}"
        return Reason.of("reference-missing", operation=operation, hardware=hardware, arm=arm)
    same = [row for row in rows if not _differs(row, setup)]
    if same:
        sizes = [row.message_bytes for row in same]
        smallest = min(sizes)
        largest = max(sizes)
        span = size_span(smallest, largest)
        return Reason.of("reference-other-sizes", place=same[0].place, span=span)
    nearest = min(rows, key=lambda row: _distance(row, setup))
    different = " and ".join(_differs(nearest, setup))
    hint = _fabric_hint(rows, setup)
    return Reason.of("reference-differs", nearest=nearest.place, different=different, hint=hint)


def _fabric_hint(rows: Sequence[Reference], setup: Setup) -> str:
    """Return the fabrics that would make a reference comparable, if none is named."""
    if setup.fabric is not None:
        return ""
    fabrics = {row.fabric for row in rows if _differs(row, setup) == ["fabric"]}
    if not fabrics:
        return ""
    names = ", ".join(sorted(fabrics))
    return f" (name the fabric: {names})"


def _differs(row: Reference, setup: Setup) -> list[str]:
    """Return what of the configuration differs; the fabric of one node matters only if named."""
    fabric = setup.fabric
    if fabric is None and setup.nodes == 1:
        fabric = row.fabric
    return differences(
        ("fabric", row.fabric, fabric),
        ("node count", row.nodes, setup.nodes),
        ("GPUs per node", row.gpus_per_node, setup.gpus_per_node),
    )


def _distance(row: Reference, setup: Setup) -> tuple[int, float, int]:
    """Return a sort key: number of differences, then distance in nodes and in GPUs."""
    different = len(_differs(row, setup))
    ratio_of_nodes = row.nodes / setup.nodes
    nodes = abs(math.log(ratio_of_nodes))
    gpus = abs(row.gpus_per_node - setup.gpus_per_node)
    return different, nodes, gpus
