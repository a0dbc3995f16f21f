"""Baselines of a measurement that need no earlier run: links, catalog, model and published
trainings. Pure.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from seatrial.catalog import Reference, devices, one_nic, references
from seatrial.catalog.physics import from_links, from_physics, from_port, wire
from seatrial.catalog.reach import from_reach
from seatrial.catalog.trained import from_training, nearest_training
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.setup import INTRA, NO_MNNVL, Setup, arm_of, is_busbw, part_of, ranks_of
from seatrial.model.sizes import format_size
from seatrial.nccl.transport import NO_NVLS
from seatrial.text.words import number

# How far below a measured reference is still as expected. Two tools on one machine agree within 1
# %; two clouds with the same parts differ by 10 %. Between nodes it is less where the loss of one
# NIC would be: see `_tolerance`.
TOLERANCE = 0.15
# Latency still shows below this size, and with it the host's processor and NCCL's choice of
# protocol.
LARGE_BYTES = 128 << 20
SMALL_TOLERANCE = 0.4
# Trees reach far more than rings on two nodes (487 against about 350 GB/s on 8 H100 or H200 and
# EFA, 28 %), and a log does not say which it was: https://github.com/NVIDIA/nccl-tests/issues/196
TREE_TOLERANCE = 0.3
_FAIL_BELOW = 0.5
# Conditions that differ between the rows of a sweep
_OF_ONE_SIZE = frozenset({"message_bytes", "placement"})
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8"}


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure that a source expects without a measurement, and its lower bound for the size, in
    GB/s.
    """

    row: Reference
    low_gb_s: float

    @property
    def words(self) -> str:
        return f"{self.row.source} expects at least {number(self.low_gb_s)} GB/s"


@dataclass(frozen=True, slots=True)
class Figure:
    """The catalog's busbw for one message size in GB/s, with its source in words."""

    busbw_gb_s: float
    samples: int
    words: str


def from_catalog(
    setup: Setup,
    operation: str,
    message_bytes: int,
    plateau: bool = False,
    algorithm: object = None,
    arm: str = "",
    ring_gb_s: float | None = None,
) -> Baseline | None:
    """Return the catalog's baseline for busbw of `operation` at `message_bytes`; None without a
    comparable reference.

    Hardware, GPUs per node, nodes, fabric and arm must match exactly; the fabric may be unnamed on
    one node, where the hardware implies it. A `plateau`, whose sweep went up to `message_bytes`,
    may lie beyond the largest published size, because busbw no longer grows there. With a known
    `algorithm` its rows count, else those without one, unless it is a ring and they exceed
    `ring_gb_s`, the links' limit for rings: they are of NVLS or of a tree. Where sources disagree,
    a value that one of them calls healthy does not fail.
    """
    fitting = _of_algorithm(_fitting(setup, operation, arm), algorithm, ring_gb_s)
    exceeds_ring = ring_gb_s is None or any(row.busbw_gb_s > ring_gb_s for row in fitting)
    tolerance = _tolerance(setup, operation, message_bytes, exceeds_ring)
    measured = [row for row in fitting if row.kind == "measured"]
    floors = [row for row in fitting if row.kind == "floor"]
    claims = [row for row in fitting if row.kind == "expected" and row.low_gb_s]
    tied = [
        row
        for row in floors
        if _is_tied(row, measured) or any(_disputes(claim, row) for claim in claims)
    ]
    untied = [row for row in floors if row not in tied]
    floor = _highest_floor(untied, message_bytes, plateau)
    figure = _figure([*measured, *tied], message_bytes, plateau)
    typical = message_bytes // 2 if plateau else message_bytes
    lenient = [
        Claim(row, low) for row in claims if (low := _least(row, measured, message_bytes, typical))
    ]
    claim = min(lenient, key=lambda claim: claim.low_gb_s, default=None)  # the most lenient one
    if figure is not None:
        return _baseline(figure, floor, claim, tolerance)
    if floor:
        return _of_floor(floor)
    return _of_claim(claim) if claim else None


def _highest_floor(
    floors: Sequence[Reference], message_bytes: int, plateau: bool
) -> Reference | None:
    """Return the highest floor of the message size; for a plateau, of smaller sizes as well."""
    holding = [
        row
        for row in floors
        if row.message_bytes == message_bytes or (plateau and row.message_bytes < message_bytes)
    ]
    return max(holding, key=lambda row: row.busbw_gb_s, default=None)


def _of_floor(floor: Reference) -> Baseline:
    """Return the baseline of a floor where nothing was measured."""
    least = floor.busbw_gb_s
    words = (
        f"the floor of {number(least)} GB/s for {floor.place} at {_size(floor)} ({floor.source})"
    )
    return Baseline(
        source="catalog",
        centre=least,
        low=least,
        floor=least,
        samples=1,
        detail=words,
    )


def _of_claim(claim: Claim) -> Baseline:
    """Return the baseline of a claim that has no floor."""
    row = claim.row
    claimed = row.busbw_gb_s
    words = f"the {number(claimed)} GB/s of {row.place} at {_size(row)}; {claim.words}"
    return Baseline(
        source="catalog",
        centre=claimed,
        low=claim.low_gb_s,
        floor=claimed * _FAIL_BELOW,
        detail=words,
    )


def _fitting(setup: Setup, operation: str, arm: str) -> list[Reference]:
    """Return rows of the same configuration; on one node without a named fabric, only if all rows
    agree on it.
    """
    candidates = [
        row
        for row in references()
        if (row.hardware, row.gpus_per_node, row.nodes)
        == (setup.hardware, setup.gpus_per_node, setup.nodes)
        and (row.collective, row.arm) == (operation, arm)
        and (row.fabric == setup.fabric or (setup.fabric is None and setup.nodes == 1 and not arm))
    ]
    if len({row.fabric for row in candidates}) == 1:
        return candidates
    return []


def _of_algorithm(
    rows: list[Reference], algorithm: object, ring_gb_s: float | None
) -> list[Reference]:
    """Return the rows of the algorithm; all rows if it is unknown: NCCL chooses the best of a
    size.
    """
    if algorithm is None:
        return rows
    is_ring = algorithm in ("Ring", NO_NVLS)
    unnamed = [row for row in rows if not row.algorithm]
    of_others = (
        is_ring and ring_gb_s is not None and any(row.busbw_gb_s > ring_gb_s for row in unnamed)
    )
    named = [row for row in rows if row.algorithm == ("Ring" if is_ring else algorithm)]
    return named or ([] if of_others else unnamed)


def _figure(rows: Sequence[Reference], message_bytes: int, plateau: bool) -> Figure | None:
    """Return the best row of that size, or interpolate between its neighbours on log-log axes."""
    best = _best_by_size(rows)
    if not best:
        return None
    size = min(message_bytes, max(best)) if plateau else message_bytes
    if size in best:
        row = best[size]
        how = "measured on" if row.kind == "measured" else "set as floor for"
        words = f"{number(row.busbw_gb_s)} GB/s {how} {row.place} at {_size(row)} ({row.source})"
        return Figure(row.busbw_gb_s, 1, words)
    below = [published for published in best if published < size]
    above = [published for published in best if published > size]
    if below and above:
        return _between(best[max(below)], best[min(above)], size)
    return None


def _best_by_size(rows: Iterable[Reference]) -> dict[int, Reference]:
    return {row.message_bytes: row for row in sorted(rows, key=lambda row: row.busbw_gb_s)}


def _between(a: Reference, b: Reference, message_bytes: int) -> Figure:
    """Return a figure between two sizes of the same system, on log scales."""
    part = math.log(message_bytes / a.message_bytes) / math.log(b.message_bytes / a.message_bytes)
    value = math.exp((1 - part) * math.log(a.busbw_gb_s) + part * math.log(b.busbw_gb_s))
    ends = f"{number(a.busbw_gb_s)} at {_size(a)} and {number(b.busbw_gb_s)} at {_size(b)}"
    return Figure(
        value,
        2,
        (
            f"{number(value)} GB/s interpolated on log scales between {ends}, measured on "
            f"{a.place} ({a.source})"
        ),
    )


def _baseline(
    figure: Figure, floor: Reference | None, claim: Claim | None, tolerance: float
) -> Baseline:
    """Combine sources: degraded by the strictest unless a claim allows it, fail only if all
    agree.
    """
    low = figure.busbw_gb_s * (1 - tolerance)
    fail = figure.busbw_gb_s * _FAIL_BELOW
    words = f"the {figure.words}"
    if floor:
        fail = min(low, floor.busbw_gb_s)
        low = max(low, floor.busbw_gb_s)
        words += (
            f", whose floor is {number(floor.busbw_gb_s)} GB/s at {_size(floor)} ({floor.source})"
        )
    if claim and claim.low_gb_s < low:
        low = claim.low_gb_s
        fail = min(fail, low)
        words += f"; {claim.words}"
    return Baseline(
        source="catalog",
        centre=figure.busbw_gb_s,
        low=low,
        floor=fail,
        samples=figure.samples,
        detail=words,
    )


def _is_tied(floor: Reference, measured: list[Reference]) -> bool:
    """Return whether another source measured less than the floor, which then counts as measured."""
    return any(
        row.source != floor.source
        and row.busbw_gb_s < floor.busbw_gb_s
        and row.message_bytes * 4 >= floor.message_bytes
        for row in _best_by_size(measured).values()
    )


def _least(
    claim: Reference, measured: Sequence[Reference], largest: int, typical: int
) -> float | None:
    """Return the lower bound of a claim; below its size, scaled by measured rows.

    None below LARGE_BYTES.
    """
    there, here = (
        _figure(measured, size, plateau=False) for size in (claim.message_bytes, typical)
    )
    if claim.low_gb_s and there and here and LARGE_BYTES <= typical < claim.message_bytes:
        return claim.low_gb_s * here.busbw_gb_s / there.busbw_gb_s
    return claim.low_gb_s if largest >= claim.message_bytes else None


def _disputes(claim: Reference, floor: Reference) -> bool:
    """Return whether another source expects less than the floor at a size where bandwidth
    decides.
    """
    low = claim.low_gb_s or floor.busbw_gb_s
    return (
        claim.source != floor.source
        and low < floor.busbw_gb_s
        and claim.message_bytes * 4 >= floor.message_bytes
    )


def _tolerance(setup: Setup, operation: str, message_bytes: int, exceeds_ring: bool) -> float:
    """Return the tolerance: wide for two nodes against a tree, less than one missing NIC of a node
    otherwise.
    """
    if message_bytes < LARGE_BYTES:
        return SMALL_TOLERANCE
    if setup.nodes == 2 and operation == "all_reduce" and exceeds_ring:
        return TREE_TOLERANCE
    if operation == "all_reduce" and setup.nodes > 1:
        return min(TOLERANCE, one_nic(setup))
    return TOLERANCE


def _size(row: Reference) -> str:
    return format_size(row.message_bytes)


def published(measurement: Measurement, setup: Setup, sizes: Sequence[int]) -> list[Baseline]:
    """Return the baselines that need no earlier run: physics, and a figure of the catalog or of its
    model.

    `sizes` are the message sizes in bytes of the sweep that the measurement belongs to
    (`swept_sizes`).
    """
    setup = part_of(measurement, setup)
    figure = from_training(measurement, setup)
    # Inside a node a forced tree reaches half of what is published of rings and NVLS
    is_tree = setup.nodes == 1 and measurement.conditions.get("algorithm") == "Tree"
    if not figure and not is_tree:
        figure = _from_catalog(measurement, setup, sizes) or from_reach(measurement, setup, sizes)
    candidates = (
        from_physics(measurement, setup),
        from_port(measurement, setup),
        figure,
        from_links(measurement, setup, max(sizes, default=None)),
    )
    return [baseline for baseline in candidates if baseline]


def swept_sizes(measurements: Iterable[Measurement]) -> Callable[[Measurement], list[int]]:
    """Return a function that gives the message sizes in bytes of a measurement's sweep, sorted.

    In the arm `intra` the rates of single sizes are not kept, so the largest size stands for all.
    """
    by_sweep = defaultdict(set)
    for m in measurements:
        size = m.conditions.get("message_bytes")
        if isinstance(size, int):
            by_sweep[_sweep(m)].add(size)

    def sizes_of(measurement: Measurement) -> list[int]:
        largest = measurement.conditions.get("max_bytes")
        alone = [largest] if isinstance(largest, int) and arm_of(measurement) == INTRA else []
        return sorted(by_sweep.get(_sweep(measurement), ())) or alone

    return sizes_of


def _sweep(m: Measurement) -> object:
    return frozenset(
        (key, value)
        for key, value in m.conditions.items()
        if key not in (*_OF_ONE_SIZE, "max_bytes")
    )


def _from_catalog(measurement: Measurement, setup: Setup, sizes: Sequence[int]) -> Baseline | None:
    """Return the catalog's baseline for a run over every GPU; with 7 of 8 it is another
    configuration.
    """
    if (
        not is_busbw(measurement)
        or ranks_of(measurement, setup) != setup.nodes * setup.gpus_per_node
    ):
        return None
    plateau = measurement.metric == "busbw_plateau"
    size = max(sizes, default=None) if plateau else measurement.conditions.get("message_bytes")
    if not isinstance(size, int):
        return None
    algorithm = measurement.conditions.get("algorithm")
    arm = arm_of(measurement)
    # `part_of` has already removed the fabric of these arms
    published_arm = "" if arm in (INTRA, NO_MNNVL) else arm
    operation = str(measurement.conditions["operation"])
    ring = wire(measurement, setup)
    ring_gb_s = ring.gb_s if ring else None
    return from_catalog(setup, operation, size, plateau, algorithm, published_arm, ring_gb_s)


def nearest_figures(check: Check, setup: Setup) -> list[Reason]:
    """Return published figures that come near a check's numbers but do not judge them, in words."""
    notes = []
    for m in check.measurements:
        note = nearest_training(m, setup)
        if note:
            notes.append(note)
        if m.subject.kind == "gpu":
            notes += _of_devices(m, setup)
    return notes


def _of_devices(m: Measurement, setup: Setup) -> Iterator[Reason]:
    """Yield figures of single GPUs; they are the best of many shapes or tools, so they do not
    judge.
    """
    metric = (
        f"{m.metric}_{_DTYPES.get(str(m.conditions['dtype']))}"
        if "dtype" in m.conditions
        else m.metric
    )
    for row in devices():
        if (row.hardware, row.metric) == (setup.hardware, metric):
            figure = (
                f"{number(row.value)} {row.unit} of {row.metric.replace('_', ' ')} on "
                f"{row.hardware}"
            )
            yield Reason.of("figure-best", figure=figure, kind=row.kind, source=row.source)
