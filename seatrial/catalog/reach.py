"""A model of healthy busbw for setups without a row in the catalog: a share of what the links
allow.

    busbw(S) = share * wire / (1 + wire * delay / S)

S is the message size in bytes and `wire` the limit of the links (physics.py). `share`, where
bandwidth decides, and `delay`, at smaller sizes, are fitted to the measured rows of the catalog on
two and more nodes with links of a known rate; docs/judging-logs.md has the quality of the fit.
Rings without a row take the least share of those with one. A tree over two nodes exceeds a ring, so
all_reduce over two nodes is held to a ring. Inside a node the model covers all_reduce without NVLS,
by the rows of rings there, and rings on GPUs of which such a row has the links.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from statistics import median

from seatrial.catalog import Reference, gpu_link_gb_s, is_sockets, one_nic, references, with_links
from seatrial.catalog.physics import is_without_nvls, wire
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.setup import Setup, arm_of, is_busbw, ranks_of
from seatrial.model.sizes import format_size
from seatrial.nccl.busbw import plateau_sizes
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.transport import NO_NVLS
from seatrial.text.words import number

# Shares of the modelled busbw
LOW = 0.8  # below it is degraded
FLOOR = 0.5  # below it fails
# The floor where nothing similar is published: sendrecv, other hardware with the same links
_LOOSE_FLOOR = 0.25
# Below it latency decides, which differs more between fabrics than the model knows
SMALLEST_BYTES = 256 << 20
_LARGE_BYTES = 1 << 30
# The largest delay that was fitted over a fabric with RDMA, rounded up; TCPXO needs 0.8 ms
_DELAY_S = 0.3e-3
_RANKS = 128  # the delay was fitted up to so many ranks, and grows with their number at most


def from_reach(busbw: Measurement, setup: Setup, sizes: Sequence[int]) -> Baseline | None:
    """Return the modelled busbw at one size, or of the plateau of a sweep over `sizes` (bytes).

    None in an arm, over TCP, with unknown links, and for small sizes.
    """
    if (
        not is_busbw(busbw)
        or arm_of(busbw)
        or setup.part_of_node is None
        or is_sockets(setup.fabric)
    ):
        return None
    size = busbw.conditions.get("message_bytes")
    behind = [size] if isinstance(size, int) else plateau_sizes(sizes)
    modelled = [rate for each in behind if (rate := model(busbw, setup, each)) is not None]
    if not modelled or len(modelled) < len(behind) or median(behind) < SMALLEST_BYTES:
        return None
    centre = median(modelled)
    operation = busbw.conditions["operation"]
    ranks = ranks_of(busbw, setup)
    at = format_size(sorted(behind)[len(behind) // 2])
    words = f"the {number(centre)} GB/s that {operation} over {ranks} healthy ranks reaches at {at}"
    is_ring = COLLECTIVES[str(operation)].ring and (setup.nodes > 1 or is_without_nvls(busbw))
    floor = FLOOR if is_ring or operation in _shares() else _LOOSE_FLOOR
    return Baseline(
        source="model",
        centre=centre,
        low=LOW * centre,
        floor=floor * centre,
        detail=words,
    )


def one_nic_less(measurements: Iterable[Measurement], setup: Setup) -> Reason | None:
    """Return why an all_reduce over three or more nodes is no faster than with one NIC less in
    each; None otherwise.

    A faster smaller size proves that all NICs work: a real sweep over 80 H100 reads 364 GB/s at 2G
    and 320 at 16G.
    """
    rings = [m for m in measurements if _is_ring_between_nodes(m, setup)]
    rates = {int(m.conditions["message_bytes"]): m for m in sorted(rings, key=lambda m: m.value)}
    if not rates or max(rates) < _LARGE_BYTES:
        return None
    largest = rates[max(rates)]
    best = max(rates.values(), key=lambda m: m.value)
    part = 1 - one_nic(setup)
    at_largest = model(largest, setup, max(rates))
    at_any = model(largest, setup, sys.maxsize)
    if (
        at_largest is None
        or at_any is None
        or largest.value >= part * at_largest
        or best.value >= part * at_any
    ):
        return None
    nics = round(1 / one_nic(setup))
    return Reason.of(
        "one-nic-less",
        best=number(best.value),
        fewer=nics - 1,
        nics=nics,
        limit=number(part * at_any),
    )


def _is_ring_between_nodes(busbw: Measurement, setup: Setup) -> bool:
    """Return whether a number is that of a ring over the links between nodes."""
    conditions = busbw.conditions
    if busbw.metric != "busbw" or conditions["operation"] != "all_reduce" or arm_of(busbw):
        return False
    # Over two nodes a tree is usual, and a ring slower
    if setup.nodes < 3 or is_sockets(setup.fabric):
        return False
    limit = wire(busbw, setup) if conditions.get("algorithm") in (None, "Ring", NO_NVLS) else None
    return limit is not None and limit.kind == "node"


def model(busbw: Measurement, setup: Setup, message_bytes: int) -> float | None:
    """Return busbw in GB/s (1e9 bytes); None for unknown links or an unpublished collective."""
    if setup.gpu_link_gb_s is None and setup.slots_per_node > 1:
        return None  # PCIe between the GPUs of a node may carry less than its NICs
    node_link = setup.node_link_gb_s and setup.node_link_gb_s * (setup.part_of_node or 1.0)
    limit = wire(busbw, replace(setup, node_link_gb_s=node_link))
    share = _share(busbw, setup)
    if limit is None or share is None:
        return None
    return share * limit.gb_s * _bandwidth_part(limit.gb_s, ranks_of(busbw, setup), message_bytes)


def _share(busbw: Measurement, setup: Setup) -> float | None:
    """Return the usual share of the links that the operation reaches; None if none is published."""
    operation = str(busbw.conditions["operation"])
    collective = COLLECTIVES[operation]
    shares = _shares()
    if setup.nodes < 2:
        is_ring = operation == "all_reduce" and is_without_nvls(busbw)
        if is_ring or (collective.ring and _has_ring_of_such_links(setup)):
            return _ring_share()
        return None
    is_between_neighbours = collective.reaches is not None and not collective.rooted
    if operation in shares or not (collective.ring or is_between_neighbours):
        return shares.get(operation)
    return min(share for name, share in shares.items() if COLLECTIVES[name].ring)


def _has_ring_of_such_links(setup: Setup) -> bool:
    """Return whether a ring over no more GPUs of a node is published, of this hardware or another
    with equal links.
    """
    return any(
        row.gpus_per_node <= setup.gpus_per_node
        and gpu_link_gb_s(row.hardware) == setup.gpu_link_gb_s
        for row in _rings_inside()
    )


def _bandwidth_part(wire_gb_s: float, ranks: int, message_bytes: int) -> float:
    delay_s = _DELAY_S * max(1.0, ranks / _RANKS)
    return 1 / (1 + wire_gb_s * 1e9 * delay_s / message_bytes)


@cache
def _shares() -> dict[str, float]:
    """Return the median published share of the wire by collective, at most 1."""
    shares = defaultdict(list)
    for row in references():
        reached = reached_share(row)
        if reached is not None and row.message_bytes >= _LARGE_BYTES:
            shares[row.collective].append(min(reached, 1.0))
    return {collective: median(reached) for collective, reached in shares.items()}


@cache
def _rings_inside() -> tuple[Reference, ...]:
    """Return the large sizes that were measured with a ring inside one node."""
    inside = (
        row
        for row in references()
        if row.nodes == 1 and row.algorithm == "Ring" and row.kind == "measured"
    )
    return tuple(row for row in inside if row.message_bytes >= _LARGE_BYTES)


@cache
def _ring_share() -> float:
    """Return the median share of the GPUs' links of published rings inside a node."""
    limits = [(row, _wire_of(row)) for row in _rings_inside()]
    return median(row.busbw_gb_s / gb_s for row, gb_s in limits if gb_s)


def reached_share(row: Reference) -> float | None:
    """Return the row's busbw over the wire without its delay; None outside the model."""
    if (
        row.nodes < 2
        or row.kind != "measured"
        or row.arm
        or (row.nodes == 2 and row.collective == "all_reduce")
    ):
        return None
    gb_s = _wire_of(row)
    ranks = row.nodes * row.gpus_per_node
    if gb_s:
        return row.busbw_gb_s / (gb_s * _bandwidth_part(gb_s, ranks, row.message_bytes))
    return None


def _wire_of(row: Reference) -> float | None:
    """Return what the links of a published system carry, in GB/s."""
    setup = with_links(
        Setup(
            hardware=row.hardware,
            nodes=row.nodes,
            gpus_per_node=row.gpus_per_node,
            slots_per_node=row.gpus_per_node,
            fabric=row.fabric,
        )
    )
    conditions: dict[str, ConditionValue] = {"operation": row.collective, "ranks": setup.ranks}
    limit = wire(
        Measurement(
            metric="busbw",
            value=row.busbw_gb_s,
            unit="GB/s",
            subject=Subject("cluster", ""),
            conditions=conditions,
        ),
        setup,
    )
    return limit.gb_s if limit else None
