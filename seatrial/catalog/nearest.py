"""Why no shipped reference speaks of a configuration, and which comes nearest."""

import math

from seatrial.catalog import Reference, known_hardware, references
from seatrial.model.result import Check, Judgement
from seatrial.model.setup import Setup, is_busbw
from seatrial.model.sizes import format_size


def missing_reference(check: Check, setup: Setup) -> str | None:
    """Why nothing comparable is known of the first plateau that was judged without; None where something is."""
    for judgement in check.judgements:
        if judgement.measurement.metric == "busbw_plateau" and judgement.source in ("sanity", "physics"):
            return no_reference(setup, str(judgement.measurement.conditions["operation"]))
    return None if any(_has_reference(j) for j in check.judgements) else _only_sizes(check, setup)


def no_reference(setup: Setup, operation: str) -> str:
    """ "no comparable reference", and what the catalog has instead: it never borrows."""
    return f"no comparable reference: {_why(setup, operation)}"


def _has_reference(judgement: Judgement) -> bool:
    return judgement.source not in ("sanity", "physics")


def _only_sizes(check: Check, setup: Setup) -> str | None:
    swept = next((j.measurement for j in check.judgements if is_busbw(j.measurement)), None)
    return None if swept is None else no_reference(setup, str(swept.conditions["operation"]))


def _why(setup: Setup, operation: str) -> str:
    if setup.hardware not in known_hardware():
        return f"hardware {setup.hardware} is not in the catalog"
    rows = [row for row in references() if (row.hardware, row.collective) == (setup.hardware, operation)]
    if not rows:
        return f"nothing is published for {operation} on {setup.hardware}"
    if same := [row for row in rows if _differs(row, setup) == []]:
        sizes = sorted({row.message_bytes for row in same})
        return f"what is published for {same[0].place} is for {_span(sizes)}"
    nearest = min(rows, key=lambda row: _distance(row, setup))
    return f"the nearest, {nearest.place}, differs in {' and '.join(_differs(nearest, setup))}{_hint(setup, rows)}"


def _hint(setup: Setup, rows: list[Reference]) -> str:
    fabrics = sorted({row.fabric for row in rows if _differs(row, setup) == ["fabric"]})
    return f" (name the fabric: {', '.join(fabrics)})" if fabrics and setup.fabric is None else ""


def _differs(row: Reference, setup: Setup) -> list[str]:
    fabric_is_open = setup.fabric is None and setup.nodes == 1
    differences = (
        ("fabric", row.fabric != setup.fabric and not fabric_is_open),
        ("node count", row.nodes != setup.nodes),
        ("GPUs per node", row.gpus_per_node != setup.gpus_per_node),
    )
    return [what for what, differs in differences if differs]


def _distance(row: Reference, setup: Setup) -> tuple[int, float, int]:
    """Fewest differences first, then by how far the node counts and the GPUs are apart."""
    nodes = abs(math.log(row.nodes / setup.nodes))
    return len(_differs(row, setup)), nodes, abs(row.gpus_per_node - setup.gpus_per_node)


def _span(sizes: list[int]) -> str:
    first, last = format_size(sizes[0]), format_size(sizes[-1])
    return first if first == last else f"{first} to {last}"
