"""The nearest reference to a configuration without one."""

import math

from seatrial.catalog import Reference, known_hardware, references
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check
from seatrial.model.setup import INTRA, Setup, arm_of, is_busbw, part_of
from seatrial.model.sizes import size_span


def missing_reference(check: Check, setup: Setup) -> Reason | None:
    """Return why the first plateau without a reference has none; None if all have one."""
    for judgement in check.judgements:
        if judgement.measurement.metric == "busbw_plateau" and judgement.source in (
            "sanity",
            "physics",
        ):
            return _none_for(judgement.measurement, setup)
    if any(j.source not in ("sanity", "physics") for j in check.judgements):
        return None
    swept = next((j.measurement for j in check.judgements if is_busbw(j.measurement)), None)
    return None if swept is None else _none_for(swept, setup)


def no_reference(setup: Setup, operation: str, arm: str = "") -> str:
    """Return "no comparable reference" with the nearest one of the catalog."""
    return f"no comparable reference: {_why(setup, operation, arm)}"


def _none_for(busbw: Measurement, setup: Setup) -> Reason:
    arm = arm_of(busbw)
    return uncoded(
        no_reference(
            part_of(busbw, setup), str(busbw.conditions["operation"]), "" if arm == INTRA else arm
        )
    )


def _why(setup: Setup, operation: str, arm: str) -> str:
    if not setup.hardware:
        return "the log names no GPU model that is known; give it with --hardware"
    if setup.hardware not in known_hardware():
        return f"hardware {setup.hardware} is not in the catalog"
    key = (setup.hardware, operation, arm)
    rows = [row for row in references() if (row.hardware, row.collective, row.arm) == key]
    if not rows:
        return f"nothing is published for {operation} on {setup.hardware}" + (
            f" in the arm {arm}" if arm else ""
        )
    if same := [row for row in rows if _differs(row, setup) == []]:
        sizes = sorted({row.message_bytes for row in same})
        return f"what is published for {same[0].place} is for {size_span(sizes[0], sizes[-1])}"
    nearest = min(rows, key=lambda row: _distance(row, setup))
    fabrics = sorted({row.fabric for row in rows if _differs(row, setup) == ["fabric"]})
    hint = f" (name the fabric: {', '.join(fabrics)})" if fabrics and setup.fabric is None else ""
    return (
        f"the nearest, {nearest.place}, differs in {' and '.join(_differs(nearest, setup))}{hint}"
    )


def _differs(row: Reference, setup: Setup) -> list[str]:
    fabric_is_open = setup.fabric is None and setup.nodes == 1
    differences = (
        ("fabric", row.fabric != setup.fabric and not fabric_is_open),
        ("node count", row.nodes != setup.nodes),
        ("GPUs per node", row.gpus_per_node != setup.gpus_per_node),
    )
    return [difference for difference, differs in differences if differs]


def _distance(row: Reference, setup: Setup) -> tuple[int, float, int]:
    """Return a sort key: number of differences, then distance in nodes and in GPUs."""
    nodes = abs(math.log(row.nodes / setup.nodes))
    return len(_differs(row, setup)), nodes, abs(row.gpus_per_node - setup.gpus_per_node)
