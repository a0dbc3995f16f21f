"""What cannot be exceeded: busbw that the links have no room for."""

from seatrial.baselines.baseline import Baseline
from seatrial.baselines.numbers import short
from seatrial.baselines.setup import Setup, is_busbw, ranks_of
from seatrial.measurement import Measurement

# Data sheets mix 1e9 and 2^30 bytes (7 %) and round; only what is clearly beyond them is impossible.
_ALLOWANCE = 1.1


def from_physics(measurement: Measurement, setup: Setup) -> Baseline | None:
    """The highest busbw that the cluster's links allow; None where no rate is known or it is no busbw.

    The bound holds for every algorithm, in-network reduction (NVLS, SHARP) included, so it is a loose one.
    """
    ranks = ranks_of(measurement, setup)
    if not is_busbw(measurement) or ranks < 2:
        return None
    operation = str(measurement.conditions["operation"])
    ceilings = [*_gpu_ceiling(operation, ranks, setup), *_node_ceiling(operation, ranks, setup)]
    if not ceilings:
        return None
    ceiling, link = min(ceilings)
    detail = f"the {short(ceiling)} GB/s that {operation} over {ranks} ranks can reach on {link}"
    return Baseline("physics", ceiling, None, ceiling * _ALLOWANCE, None, 0, detail)


def _gpu_ceiling(operation: str, ranks: int, setup: Setup) -> list[tuple[float, str]]:
    """Inside one node. busbw / algbw is 2(n-1)/n for all_reduce and (n-1)/n for parts (nccl-tests PERFORMANCE.md).

    all_reduce: every rank must take in the whole result once, so algbw <= link. Parts: (n-1)/n of the data must pass
    each link, so busbw <= link. Across nodes a GPU has its NIC besides, so this bounds one node only.
    """
    if setup.gpu_link_gb_s is None or ranks > setup.slots_per_node:
        return []
    factor = 2 * (ranks - 1) / ranks if operation == "all_reduce" else 1.0
    return [(factor * setup.gpu_link_gb_s, f"GPU links of {short(setup.gpu_link_gb_s)} GB/s")]


def _node_ceiling(operation: str, ranks: int, setup: Setup) -> list[tuple[float, str]]:
    """Between k nodes of g ranks each (n = k*g), by what must enter a node at the least.

    all_reduce: the result once (SHARP), or 2(k-1)/k of it (ring), which for k >= 2 is no less: algbw <= link.
    all_gather, reduce_scatter: (k-1)/k of the data. alltoall: g*(n-g)/n of one rank's data. Others: the data once.
    """
    g = setup.slots_per_node
    if setup.node_link_gb_s is None or ranks <= g:
        return []
    factor = {
        "all_reduce": 2 * (ranks - 1) / ranks,
        "all_gather": (ranks - 1) / (ranks - g),
        "reduce_scatter": (ranks - 1) / (ranks - g),
        "alltoall": (ranks - 1) / (g * (ranks - g)),
    }.get(operation, 1.0)
    return [(factor * setup.node_link_gb_s, f"node links of {short(setup.node_link_gb_s)} GB/s")]
