"""What healthy nodes reach of what their links allow: a model for setups that the catalog has no row for.

    busbw(S) = share * wire / (1 + wire * delay / S)

S is the message size in bytes. `wire` is what the links allow (physics.py). `share` is what published measurements of
the collective reach of it, where bandwidth decides; `delay` is what they lose at smaller sizes. Both are fitted
to the measured rows of the catalog on two and more nodes with links of a known rate; docs/verdicts.md says how well.
Collectives that run as a ring and have no row reach what the least of those that have one does. A tree over two nodes
exceeds a ring, so all_reduce over two nodes is held to what a ring reaches.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import median

from seatrial.catalog import Reference, references
from seatrial.catalog.links import with_links
from seatrial.catalog.physics import wire
from seatrial.model.arms import arm_of
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.setup import Setup, ranks_of
from seatrial.model.sizes import format_size
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.text.numbers import short

LOW, FLOOR = 0.8, 0.5  # of what the model says: below LOW is degraded, below FLOOR fails
SMALLEST_BYTES = 256 << 20  # below it latency decides, which differs more between fabrics than the model knows
_LARGE_BYTES = 1 << 30
_DELAY_S = 0.3e-3  # the largest that was fitted over a fabric with RDMA, rounded up; TCPXO needs 0.8 ms
_RANKS = 128  # the delay was fitted up to so many ranks, and grows with their number at most


def from_reach(plateau: Measurement, setup: Setup, sizes: Sequence[int]) -> Baseline | None:
    """What the plateau of a sweep over `sizes` (bytes) reaches on two and more nodes of known hardware and links.

    None in an arm, where the links are not known, and where the three largest sizes, whose median the plateau is, are
    too small.
    """
    if plateau.metric != "busbw_plateau" or arm_of(plateau):
        return None
    if setup.nodes < 2 or setup.part_of_node is None or len(sizes) < 3:
        return None
    size = sorted(sizes)[-2]
    modelled = model(plateau, setup, size)
    if modelled is None or size < SMALLEST_BYTES:
        return None
    operation, ranks = plateau.conditions["operation"], ranks_of(plateau, setup)
    words = f"the {short(modelled)} GB/s that {operation} over {ranks} healthy ranks reaches at {format_size(size)}"
    return Baseline("model", modelled, LOW * modelled, None, FLOOR * modelled, 0, words)


def model(busbw: Measurement, setup: Setup, message_bytes: int) -> float | None:
    """GB/s (1e9 bytes) of busbw; None where the links are not known, or nothing is published of the collective."""
    node_link = setup.node_link_gb_s and setup.node_link_gb_s * (setup.part_of_node or 1.0)
    limit = wire(busbw, replace(setup, node_link_gb_s=node_link))
    if limit is None:
        return None
    operation = str(busbw.conditions["operation"])
    share = _shares().get(operation) or (_least_ring_share() if COLLECTIVES[operation].ring else None)
    if share is None:
        return None
    return share * limit.gb_s * _bandwidth_part(limit.gb_s, ranks_of(busbw, setup), message_bytes)


def _bandwidth_part(wire_gb_s: float, ranks: int, message_bytes: int) -> float:
    delay_s = _DELAY_S * max(1.0, ranks / _RANKS)
    return 1 / (1 + wire_gb_s * 1e9 * delay_s / message_bytes)


@cache
def _shares() -> dict[str, float]:
    """By collective, the median share of the wire that its published measurements reach, 1 at most."""
    shares: dict[str, list[float]] = {}
    for row in references():
        reached = reached_share(row)
        if reached is not None and row.message_bytes >= _LARGE_BYTES:
            shares.setdefault(row.collective, []).append(min(reached, 1.0))
    return {collective: median(reached) for collective, reached in shares.items()}


def _least_ring_share() -> float:
    return min(share for operation, share in _shares().items() if COLLECTIVES[operation].ring)


def reached_share(row: Reference) -> float | None:
    """The row's busbw over the wire, without what is lost to its size; None where the model does not speak of it."""
    if row.nodes < 2 or row.kind != "measured" or row.arm or (row.nodes == 2 and row.collective == "all_reduce"):
        return None
    setup = with_links(Setup(row.hardware, row.nodes, row.gpus_per_node, row.gpus_per_node, row.fabric))
    conditions: dict[str, ConditionValue] = {"operation": row.collective, "ranks": setup.ranks}
    limit = wire(Measurement("busbw", row.busbw_gb_s, "GB/s", Subject("cluster", ""), conditions), setup)
    if limit is None:
        return None
    return row.busbw_gb_s / (limit.gb_s * _bandwidth_part(limit.gb_s, setup.ranks, row.message_bytes))
