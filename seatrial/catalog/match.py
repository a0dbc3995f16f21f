"""Which shipped reference speaks of a measurement; where none does, that is the answer."""

import math
from dataclasses import dataclass

from seatrial.catalog import Reference, references
from seatrial.model.baseline import Baseline
from seatrial.model.setup import Setup
from seatrial.model.sizes import format_size
from seatrial.text.numbers import short

# How far below a measured reference is still as expected. Two tools on one machine agree within 1 %; two clouds with
# the same parts differ by 10 %.
TOLERANCE = 0.15
# Latency still shows below this size, and with it the host's processor and NCCL's choice of protocol.
_LARGE_BYTES = 128 << 20
SMALL_TOLERANCE = 0.4
# Trees reach far more than rings on two nodes (487 against about 350 GB/s on 8 H100 or H200 and EFA), and a log does
# not say which it was: https://github.com/NVIDIA/nccl-tests/issues/196
TWO_NODE_TOLERANCE = 0.4
_FAIL_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class Figure:
    """What the catalog has for one message size, in GB/s, and the words that say where it is from."""

    busbw_gb_s: float
    samples: int
    words: str


def from_catalog(
    setup: Setup,
    operation: str,
    message_bytes: int,
    plateau: bool = False,
    algorithm: object = None,
) -> Baseline | None:
    """The catalog's baseline for busbw of `operation` at `message_bytes`; None is "no comparable reference".

    Hardware, GPUs per node, nodes and fabric must match exactly; the fabric may be unnamed on one node, where the
    hardware implies it. A `plateau`, whose sweep went up to `message_bytes`, may lie beyond the largest published
    size, because busbw no longer grows there. Where the `algorithm` that ran is known, rows of that one count, else
    those that do not say.
    """
    fitting = _of_algorithm(_fitting(setup, operation), algorithm)
    measured = [row for row in fitting if row.kind == "measured"]
    floors = [row for row in fitting if row.kind == "floor"]
    tied = [row for row in floors if _is_tied(row, measured)]
    floor = _floor([row for row in floors if row not in tied], message_bytes, plateau)
    figure = _figure([*measured, *tied], message_bytes, plateau)
    if figure is None:
        return _floor_only(floor) if floor else None
    return _baseline(setup, operation, message_bytes, figure, floor)


def _fitting(setup: Setup, operation: str) -> list[Reference]:
    """Rows of the same configuration; on one node without a named fabric, only if all rows agree on it."""
    candidates = [
        row
        for row in references()
        if (row.hardware, row.gpus_per_node, row.nodes) == (setup.hardware, setup.gpus_per_node, setup.nodes)
        and row.collective == operation
        and (row.fabric == setup.fabric or (setup.fabric is None and setup.nodes == 1))
    ]
    return candidates if len({row.fabric for row in candidates}) == 1 else []


def _of_algorithm(rows: list[Reference], algorithm: object) -> list[Reference]:
    """All rows where nobody knows which algorithm ran: the best of a size is what NCCL chooses by itself."""
    if algorithm is None:
        return rows
    return [row for row in rows if row.algorithm == algorithm] or [row for row in rows if not row.algorithm]


def _figure(rows: list[Reference], message_bytes: int, plateau: bool) -> Figure | None:
    """The best published row of that size, or a line between its neighbours on log-log axes."""
    best: dict[int, Reference] = {}
    for row in sorted(rows, key=lambda row: row.busbw_gb_s):
        best[row.message_bytes] = row
    if not best:
        return None
    size = min(message_bytes, max(best)) if plateau else message_bytes
    if size in best:
        return _published(best[size])
    below = [known for known in best if known < size]
    above = [known for known in best if known > size]
    return _between(best[max(below)], best[min(above)], size) if below and above else None


def _published(row: Reference) -> Figure:
    how = "measured on" if row.kind == "measured" else "set as floor for"
    return Figure(row.busbw_gb_s, 1, f"{short(row.busbw_gb_s)} GB/s {how} {row.place} at {_size(row)} ({row.source})")


def _between(a: Reference, b: Reference, message_bytes: int) -> Figure:
    part = math.log(message_bytes / a.message_bytes) / math.log(b.message_bytes / a.message_bytes)
    value = math.exp((1 - part) * math.log(a.busbw_gb_s) + part * math.log(b.busbw_gb_s))
    ends = f"{short(a.busbw_gb_s)} at {_size(a)} and {short(b.busbw_gb_s)} at {_size(b)}"
    return Figure(
        value, 2, f"{short(value)} GB/s interpolated on log scales between {ends}, measured on {a.place} ({a.source})"
    )


def _floor(rows: list[Reference], message_bytes: int, plateau: bool) -> Reference | None:
    """The highest floor that was published for this size, or for a smaller one if this is a plateau."""
    holding = [r for r in rows if r.message_bytes == message_bytes or (plateau and r.message_bytes < message_bytes)]
    return max(holding, key=lambda row: row.busbw_gb_s, default=None)


def _baseline(setup: Setup, operation: str, message_bytes: int, figure: Figure, floor: Reference | None) -> Baseline:
    low = figure.busbw_gb_s * (1 - _tolerance(setup, operation, message_bytes))
    fail = figure.busbw_gb_s * _FAIL_BELOW
    words = f"the {figure.words}"
    if floor:
        low, fail = max(low, floor.busbw_gb_s), max(fail, floor.busbw_gb_s)
        words += f", whose floor is {short(floor.busbw_gb_s)} GB/s at {_size(floor)} ({floor.source})"
    return Baseline("catalog", figure.busbw_gb_s, low, None, fail, figure.samples, words)


def _is_tied(floor: Reference, measured: list[Reference]) -> bool:
    """Whether another source measured less than the floor where size no longer matters: then it counts as measured."""
    best: dict[int, Reference] = {row.message_bytes: row for row in sorted(measured, key=lambda row: row.busbw_gb_s)}
    others = (row for row in best.values() if row.source != floor.source)
    return any(row.busbw_gb_s < floor.busbw_gb_s and row.message_bytes * 4 >= floor.message_bytes for row in others)


def _floor_only(floor: Reference) -> Baseline:
    words = f"the floor of {short(floor.busbw_gb_s)} GB/s for {floor.place} at {_size(floor)} ({floor.source})"
    return Baseline("catalog", floor.busbw_gb_s, floor.busbw_gb_s, None, floor.busbw_gb_s, 1, words)


def _tolerance(setup: Setup, operation: str, message_bytes: int) -> float:
    if setup.nodes == 2 and operation == "all_reduce":
        return TWO_NODE_TOLERANCE
    return TOLERANCE if message_bytes >= _LARGE_BYTES else SMALL_TOLERANCE


def _size(row: Reference) -> str:
    return format_size(row.message_bytes)
