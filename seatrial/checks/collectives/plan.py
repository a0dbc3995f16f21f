"""How long the sweeps of a suite take: messages and iterations from the suite, assumed rates. Pure."""

from seatrial.checks.collectives.section import Collectives, PlannedSweep
from seatrial.checks.planned import START_S, PlannedNodes, PlannedPart
from seatrial.model.arms import INTRA, NETWORK
from seatrial.model.sizes import format_size
from seatrial.nccl.collectives import COLLECTIVES

# GB/s (1e9 bytes) of busbw.
_NVLINK, _FABRIC, _NIC, _GLOO = 300.0, 100.0, 20.0, 0.2
_LATENCY_S = {True: 50e-6, False: 1e-3}  # of one operation, by GPUs
_CHECKING_GB_S = {True: 20.0, False: 1.0}  # data is made and compared
_SIDES = 2  # out of place and in place


def plan_sweeps(section: Collectives, nodes: PlannedNodes) -> list[PlannedPart]:
    """Each sweep, in order."""
    planned = section.sweeps(nodes=nodes.count, slots=nodes.slots, gpus=nodes.gpus)
    return [PlannedPart(_words(sweep), _seconds(sweep, nodes), section.timeout_s) for sweep in planned]


def _words(sweep: PlannedSweep) -> str:
    sizes = sweep.sizes
    arm = f" ({sweep.arm})" if sweep.arm else ""
    span = f"{format_size(sizes.min_bytes)} to {format_size(sizes.max_bytes)}"
    iterations = f"{sizes.iterations} iteration{'' if sizes.iterations == 1 else 's'}"
    return f"{sweep.operation}{arm}: {span}, factor {sizes.step_factor}, {iterations}"


def _seconds(sweep: PlannedSweep, nodes: PlannedNodes) -> float:
    ranks = nodes.slots if sweep.arm == INTRA else nodes.ranks
    factor = COLLECTIVES[sweep.operation].factor(ranks) or 1.0
    rate = _rate_gb_s(sweep, nodes) * 1e9
    each = [_LATENCY_S[nodes.gpus] + size * factor / rate for size in sweep.sizes.sizes()]
    rounds = sweep.sizes.warmup_iterations + _SIDES * (sweep.sizes.iterations + 1)
    checked = _SIDES * sum(sweep.sizes.sizes()) / (_CHECKING_GB_S[nodes.gpus] * 1e9)
    return START_S[nodes.gpus] + rounds * sum(each) + checked


def _rate_gb_s(sweep: PlannedSweep, nodes: PlannedNodes) -> float:
    if not nodes.gpus:
        return _GLOO
    if sweep.arm == NETWORK:
        return _NIC
    return _NVLINK if nodes.count == 1 or sweep.arm == INTRA else _FABRIC
