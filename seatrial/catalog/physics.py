"""Limits of busbw by the links, and the share of the limits that was reached.

The limit follows from the least data that must cross the links, which depends on the algorithm: see
the table of collectives.
"""

from dataclasses import dataclass, replace

from seatrial.catalog import nic_of, nics_of
from seatrial.model.baseline import Baseline
from seatrial.model.curves import SHARE
from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.setup import NETWORK, Setup, arm_of, is_busbw, part_of, ranks_of
from seatrial.nccl.collectives import COLLECTIVES, Collective
from seatrial.nccl.transport import NO_NVLS
from seatrial.text.words import fraction, number

# Rates are exact, protocols take their part of them, and no published row reaches its limit; times
# are rounded.
_ALLOWANCE = 1.05
# What TCP is given where nodes have no fabric: 100 Gb/s Ethernet. Two nodes of A3 reach 23.7 GB/s
# of busbw that way.
_ETHERNET_GB_S = 12.5
MANY_GPUS = 8  # per node; such nodes are joined by sockets only if the fabric says so
_SOCKETS_SHARE = 0.02  # of the GPUs' own links, for nodes of fewer GPUs, of which some have one NIC
# What networks that add up themselves (SHARP) reach of a ring's busbw at most, over three and more
# nodes.
_IN_NETWORK_GAIN = 1.5
# sendrecv: a rank sends over the NICs of its own GPU, and PXN may add those of a neighbour.
_NICS_OF_A_RANK = 2.0
# Of each GPU, where the rate of a node is unknown: 800 Gb/s.
_FASTEST_NIC_GB_S = 100.0
# Of a port's rate. Azure's NDv5 owes 380 of 400 Gb/s, CVS 280 with GPU memory on MI300X.
PORT_SLOW = 0.8  # below it RDMA is degraded
PORT_BROKEN = 0.5  # below it RDMA fails
PORT_MOST = 1.05  # a larger share is that of another port
FILLS_A_PORT = 1 << 16  # bytes: smaller messages do not
# No fabric that works falls so far below its links: what TCP sockets, or one link of many, reach.
_SLOW_SHARE = 0.25
_BROKEN_SHARE = 0.1
# From here on bandwidth decides, not latency, however many ranks there are.
_LARGE_BYTES = 128 << 20
_LARGE_PART_BYTES = 2 << 20
_SMALLEST_BYTES = 4 << 20  # below it no bandwidth is judged by the links
_SLOW_MESSAGE_S = 2e-3  # the largest healthy latency of a message, with a margin
_MANY_RANKS = 128  # the most ranks for which that latency is healthy
_SLOWEST_NETWORK_GB_S = 1.25  # among nodes of GPUs with links of their own
_WITHIN_NVLINK = frozenset({"MNNVL"})  # a fabric whose nodes are joined by the GPUs' own links
# NVLink joins some nodes, a network all; for a GPU's NIC there is the allowance
_PARTLY_NVLINK = "MNNVL+"


@dataclass(frozen=True, slots=True)
class Limit:
    """The busbw in GB/s that links of `kind` (GPU, node) and of `rate` GB/s allow."""

    gb_s: float
    kind: str
    rate: float

    @property
    def links(self) -> str:
        return f"{self.kind} links of {number(self.rate)} GB/s"

    @property
    def words(self) -> str:
        """The limit in words: "the 400 GB/s of node links", "the 93.75 GB/s that node links of 400
        GB/s allow".
        """
        if self.gb_s == self.rate:
            return f"the {number(self.rate)} GB/s of {self.kind} links"
        return f"the {number(self.gb_s)} GB/s that {self.links} allow"


def from_physics(measurement: Measurement, setup: Setup) -> Baseline | None:
    """Return the highest busbw that the links allow; None if no rate is known or it is no busbw.

    Without a known algorithm the bound is loose: it holds for in-network reduction (NVLS, SHARP)
    and trees as well.
    """
    limit = _ceiling(measurement, setup)
    if limit is None:
        return None
    operation = measurement.conditions["operation"]
    ranks = ranks_of(measurement, setup)
    by = f" by {measurement.conditions['algorithm']}" if _is_ring(measurement) else ""
    detail = (
        f"the {number(limit.gb_s)} GB/s that {operation} over {ranks} ranks can reach{by} on "
        f"{limit.links}"
    )
    may_be_nvlink = not _one_domain(setup.ranks, setup) and not _is_partly_nvlink(setup)
    if setup.hardware.endswith("-NVL72") and setup.nodes > 1 and may_be_nvlink:
        by_nvlink = _ceiling(measurement, replace(setup, fabric="MNNVL"))
        if by_nvlink and measurement.value <= by_nvlink.gb_s:
            detail += " (MNNVL carries as much: is that the fabric?)"
    return Baseline(
        source="physics",
        centre=limit.gb_s,
        high=limit.gb_s * _ALLOWANCE,
        detail=detail,
    )


def from_links(
    measurement: Measurement, setup: Setup, largest_bytes: int | None
) -> Baseline | None:
    """Return the least busbw of a plateau without a comparable reference: a fraction of its links.

    None unless hardware and rates are known. A sweep that latency bounds owes what is left of the
    rate. Of a node that is used in part the same share of its NICs counts. Nodes without a known
    fabric are held to 10 Gb/s Ethernet.
    """
    if (
        measurement.metric != "busbw_plateau"
        or setup.part_of_node is None
        or setup.gpu_link_gb_s is None
    ):
        return None
    if largest_bytes is None or largest_bytes < _SMALLEST_BYTES:
        return None
    node_link = setup.node_link_gb_s and setup.node_link_gb_s * setup.part_of_node
    limit = wire(measurement, replace(setup, node_link_gb_s=node_link))
    if limit is None and setup.fabric is None and setup.nodes > 1:
        limit = Limit(
            gb_s=_SLOWEST_NETWORK_GB_S, kind="10 Gb/s Ethernet", rate=_SLOWEST_NETWORK_GB_S
        )
    if limit is None:
        return None
    part = 1.0
    # However slow messages are, so much is left of the rate
    if not _is_large(largest_bytes, setup):
        slow_s = _SLOW_MESSAGE_S * max(1.0, setup.ranks / _MANY_RANKS)
        part = largest_bytes / (largest_bytes + limit.gb_s * 1e9 * slow_s)
    owed = part * limit.gb_s
    return Baseline(
        source="physics",
        centre=limit.gb_s,
        low=owed * _SLOW_SHARE,
        floor=owed * _BROKEN_SHARE,
        detail=limit.words,
    )


def from_port(measurement: Measurement, setup: Setup) -> Baseline | None:
    """Return what RDMA over one rail reaches of a NIC's rate; None unless the fabric's name has
    it.
    """
    rate = nic_of(setup.fabric).gbit_s / 8
    size = measurement.conditions.get("message_bytes")
    if (
        measurement.metric != "rdma_bandwidth"
        or not rate
        or not isinstance(size, int)
        or size < FILLS_A_PORT
    ):
        return None
    rate *= 2 if measurement.conditions.get("way") == "both" else 1
    words = f"the {number(rate)} GB/s of a port of {setup.fabric}"
    return Baseline(
        source="physics",
        centre=rate,
        low=PORT_SLOW * rate,
        high=PORT_MOST * rate,
        floor=PORT_BROKEN * rate,
        detail=words,
    )


def _is_large(largest_bytes: int | None, setup: Setup) -> bool:
    return largest_bytes is not None and largest_bytes >= max(
        _LARGE_BYTES, _LARGE_PART_BYTES * setup.ranks
    )


def refuse_beyond_physics(measurement: Measurement, threshold: float, setup: Setup) -> None:
    """Raise InputError if no run can reach `threshold`, a lower bound for the series of
    `measurement`.
    """
    limit = from_physics(measurement, setup)
    if limit is not None and limit.high is not None and threshold > limit.high:
        operation = measurement.conditions["operation"]
        raise InputError(
            f"{measurement.metric} of {operation}: a threshold of {number(threshold)} GB/s is "
            f"beyond {limit.detail};"
            f" no run reaches more than {number(limit.centre)}"
        )


def wire(measurement: Measurement, setup: Setup) -> Limit | None:
    """Return the busbw of a ring, or of the known algorithm, that saturates the links; None if
    unknown.

    Other algorithms may exceed a ring: NVLS on one node, a tree on two. Collectives without a ring
    reach a share of their own. With NVLink off every GPU sends over its own part of the node's
    NICs.
    """
    operation = str(measurement.conditions.get("operation"))
    ranks = ranks_of(measurement, setup)
    collective = COLLECTIVES.get(operation)
    if (
        not is_busbw(measurement)
        or ranks < 2
        or collective is None
        or not (collective.ring or collective.reaches)
    ):
        return None
    if arm_of(measurement) == NETWORK:
        return _of_own_nics(replace(setup, gpu_link_gb_s=None))
    if _one_domain(ranks, setup):
        in_network = operation == "all_reduce" and measurement.conditions.get("algorithm") == "NVLS"
        # (1 + 1/n) of the data
        return _of_gpu_links(2 * (ranks - 1) / (ranks + 1) if in_network else 1.0, setup)
    share = collective.reaches(ranks, setup.slots_per_node) if collective.reaches else 1.0
    across = _limit(share, setup.node_link_gb_s, "node")
    inside = _of_gpu_links(1.0, setup)
    if across:
        return min(across, inside or across, key=lambda limit: limit.gb_s)
    return None


def as_slow_as_ethernet(plateau: Measurement, setup: Setup, largest_bytes: int | None) -> bool:
    """Return whether TCP over 100 Gb/s Ethernet would reach this plateau though the GPUs' links
    carry far more.
    """
    if setup.gpu_link_gb_s is None or not _is_large(largest_bytes, setup):
        return False
    ethernet = replace(setup, node_link_gb_s=_ETHERNET_GB_S)
    limit = _ceiling(plateau, ethernet) if setup.nodes == 2 else wire(plateau, ethernet)
    share = _BROKEN_SHARE if setup.slots_per_node >= MANY_GPUS else _SOCKETS_SHARE
    return limit is not None and plateau.value <= min(
        _ALLOWANCE * limit.gb_s, share * setup.gpu_link_gb_s
    )


def is_far_below_links(plateau: Measurement, setup: Setup, largest_bytes: int | None) -> bool:
    """Return whether nodes whose NICs have no known rate reach less than 2 % of the links of their
    GPUs.
    """
    if setup.nodes < 2 or setup.gpu_link_gb_s is None or not _is_large(largest_bytes, setup):
        return False
    return wire(plateau, setup) is None and plateau.value < _SOCKETS_SHARE * setup.gpu_link_gb_s


def _of_gpu_links(factor: float, setup: Setup) -> Limit | None:
    return _limit(factor, setup.gpu_link_gb_s, "GPU")


def _limit(factor: float, rate: float | None, kind: str) -> Limit | None:
    return None if rate is None else Limit(factor * rate, kind, rate)


def _of_own_nics(setup: Setup) -> Limit | None:
    """Return the limit with NVLink and shared memory off: every GPU sends over its own part of the
    node's NICs.
    """
    fastest = (
        Limit(_FASTEST_NIC_GB_S, "the fastest NIC", _FASTEST_NIC_GB_S)
        if setup.gpu_link_gb_s
        else None
    )
    return _limit(1 / setup.slots_per_node, setup.node_link_gb_s, "node") or fastest


def _one_domain(ranks: int, setup: Setup) -> bool:
    return ranks <= setup.slots_per_node or setup.fabric in _WITHIN_NVLINK


def _is_partly_nvlink(setup: Setup) -> bool:
    return (setup.fabric or "").startswith(_PARTLY_NVLINK)


def _is_ring(measurement: Measurement) -> bool:
    """Return whether a ring's limit holds; with NVLink off the number of NICs per GPU is
    unknown.
    """
    return measurement.conditions.get("algorithm") == "Ring" and arm_of(measurement) != NETWORK


def is_without_nvls(measurement: Measurement) -> bool:
    """Return whether NVLS was off: nothing is faster than a ring inside a node then."""
    return (
        measurement.conditions.get("algorithm") in ("Ring", NO_NVLS)
        and arm_of(measurement) != NETWORK
    )


def _ceiling(measurement: Measurement, setup: Setup) -> Limit | None:
    """Return the limit of the links that carry most of a number; None if none is known."""
    ranks = ranks_of(measurement, setup)
    if not is_busbw(measurement) or ranks < 2:
        return None
    if arm_of(measurement) == NETWORK:
        return _of_own_nics(setup)
    collective = COLLECTIVES.get(str(measurement.conditions["operation"]))
    one_domain = _one_domain(ranks, setup)
    if (
        (_is_ring(measurement) or (one_domain and is_without_nvls(measurement)))
        and collective
        and collective.ring
    ):
        if _is_partly_nvlink(setup):
            return _of_gpu_links(1.0, setup)
        return wire(measurement, setup)
    if one_domain or _is_partly_nvlink(setup):
        return _of_gpu_links(_most_in_a_domain(collective, ranks), setup)
    most = _most_across_nodes(collective, ranks, setup)
    across = _limit(most, setup.node_link_gb_s, "node")
    if across is None and setup.fabric and setup.part_of_node:
        fastest = _FASTEST_NIC_GB_S * setup.slots_per_node / setup.part_of_node
        across = Limit(most * fastest, "the fastest node", fastest)
    limits = (across, _within_each_node(collective, ranks, setup))
    return min((limit for limit in limits if limit), key=lambda limit: limit.gb_s, default=None)


def _within_each_node(collective: Collective | None, ranks: int, setup: Setup) -> Limit | None:
    """Return the GPU links' limit of an all_reduce between nodes, which sums up within each node.

    A GPU of g sends (1 + 1/g) of the data through NVLS, or 2(g-1)/g of it around a ring.
    """
    each = setup.slots_per_node
    if collective is not COLLECTIVES["all_reduce"] or each < 2:
        return None
    return _of_gpu_links(collective.factor(ranks) / min(1 + 1 / each, 2 * (each - 1) / each), setup)


def _most_in_a_domain(collective: Collective | None, ranks: int) -> float:
    """Return the largest busbw over the rate of a GPU's links; NVLS takes 1 + 1/n of the data."""
    if collective is None:
        return 1.0
    most = collective.most_busbw(ranks, 1)
    if collective.sums and most > 1:
        return most * ranks / (ranks + 1)
    return most


def _most_across_nodes(collective: Collective | None, ranks: int, setup: Setup) -> float:
    """Return the largest busbw over the rate of a node's links."""
    if collective is None:
        return 1.0
    most = collective.most_busbw(ranks, setup.slots_per_node)
    if collective.sums and setup.nodes > 2:
        return min(most, _IN_NETWORK_GAIN)
    if collective.reaches and not collective.layout.in_parts:
        nics = nics_of(setup.fabric) or setup.slots_per_node
        part = max(collective.reaches(ranks, setup.slots_per_node), 1 / nics)
        return min(most, _NICS_OF_A_RANK * part)
    return most


def with_shares(check: Check, setup: Setup) -> Check:
    """Add to each plateau a measurement of its share of the links if known, which is not judged."""
    measured = tuple(m for m in check.measurements if m.metric != SHARE)
    shares = tuple(
        Measurement(
            metric=SHARE,
            value=share,
            unit="",
            subject=m.subject,
            conditions=m.conditions,
            better=None,
        )
        for m in measured
        if (share := _share(m, setup)) is not None
    )
    judged = tuple(replace(j, share=_share(j.measurement, setup)) for j in check.judgements)
    return replace(check, measurements=(*measured, *shares), judgements=judged)


def plateau_words(check: Check, setup: Setup) -> list[Reason]:
    """Return each plateau in words, with its share of the links if known."""
    words = []
    for m in check.measurements:
        if m.metric == "busbw_plateau":
            limit = wire(m, part_of(m, setup)) if m.finite else None
            share = f", {fraction(m.value / limit.gb_s)} of {limit.words}" if limit else ""
            words.append(Reason.of("plateau-reached", rate=number(m.value), share=share))
    return words


def _share(m: Measurement, setup: Setup) -> float | None:
    """Return a plateau as a fraction of what its links carry; None if that is unknown."""
    limit = wire(m, part_of(m, setup)) if m.metric == "busbw_plateau" and m.finite else None
    return m.value / limit.gb_s if limit else None
