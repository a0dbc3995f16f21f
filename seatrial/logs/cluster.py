"""The cluster that a log is of: what was claimed, and what the log itself names where nothing was.

Pure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from seatrial.catalog import usual_gpus, with_links
from seatrial.catalog.hardware_names import gpu_model
from seatrial.catalog.log_facts import fabric_named
from seatrial.checks.collectives.logs import group_of
from seatrial.model.reason import Reason
from seatrial.model.setup import Setup
from seatrial.nccl import Sweep

_LEAST_PARTS = 3


@dataclass(frozen=True, slots=True)
class LogsConfig:
    """What the logs are said to be of; None where they say it themselves.

    Without `gpus_per_node`, nodes that are claimed have as many GPUs as that hardware usually has.
    """

    hardware: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    fabric: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The cluster that a sweep is compared with; `hardware` is empty where its GPU model is
    unknown.

    `is_whole`: all GPUs of that many nodes should have taken part, because the nodes were claimed.
    `is_placed`: the number of nodes is known. `gpus_per_node` None: the usual number of the
    hardware.
    """

    hardware: str
    nodes: int
    gpus_per_node: int | None = None
    fabric: str | None = None
    is_whole: bool = True
    is_placed: bool = True


def telling(sweeps: Sequence[Sweep]) -> list[Sweep]:
    """Return the few sweeps that fill the gaps of the others, in their order: the first that names
    its hardware, and the first of each number of ranks that shows where these ran.
    """
    first: dict[object, Sweep] = {}
    for sweep in sweeps:
        if _hardware(sweep):
            first.setdefault("hardware", sweep)
        if _layout(sweep):
            first.setdefault(sweep.ranks, sweep)
    return list(first.values())


def claim_of(sweep: Sweep, others: Sequence[Sweep], config: LogsConfig) -> Claim:
    """Return what was claimed, its gaps filled by the sweep's log, else by the `telling` ones of
    the same run.
    """
    sweeps = (sweep, *others)
    hardware = config.hardware or next(filter(None, map(_hardware, sweeps)), None) or ""
    claim = Claim(hardware, config.nodes or 1, config.gpus_per_node, config.fabric)
    if config.nodes is not None:
        return claim
    same_ranks = (other for other in others if other.ranks == sweep.ranks)
    layout = _layout(sweep) or next(filter(None, map(_layout, same_ranks)), None)
    if layout is None:  # of a log without rows the causes count, wherever its ranks were
        ranks = sweep.ranks or usual_gpus(hardware) or 1
        gpus = config.gpus_per_node or ranks
        return replace(claim, gpus_per_node=gpus, is_whole=False, is_placed=not sweep.rows)
    nodes, most, is_even = layout
    usual = usual_gpus(hardware)
    is_part = is_even and (not usual or usual % most == 0)
    each = config.gpus_per_node or (most if is_part else None)
    return replace(claim, nodes=nodes, gpus_per_node=each, is_whole=False)


def with_named_fabric(claim: Claim, sweep: Sweep) -> Claim:
    """Return the claim with the fabric that NCCL's log names, if none was claimed."""
    if claim.fabric or claim.nodes < 2:
        return claim
    return replace(claim, fabric=fabric_named(claim.hardware, sweep.transport))


def are_of_parts(sweeps: Sequence[Sweep]) -> bool:
    """Return whether the tests are of parts of a cluster, such as pairs or single nodes: several
    different sets of hosts.
    """
    parts = {sweep.hosts - {""} for sweep in sweeps}
    everywhere = frozenset().union(*parts)
    return sum(frozenset() < part < everywhere for part in parts) >= _LEAST_PARTS


def _hardware(sweep: Sweep) -> str | None:
    """Return the GPU model of most ranks, `cpu` for processors; None where no name is known."""
    names = ("cpu" if device.name == "CPU" else gpu_model(device.name) for device in sweep.devices)
    models = Counter(filter(None, names))
    return models.most_common(1)[0][0] if models else None


def _layout(sweep: Sweep) -> tuple[int, int, bool] | None:
    """Return the number of nodes, the most ranks on one of them, and whether all have as many; None
    if unknown.

    Two ranks with one host name and one device are on two nodes of that name, as containers may
    have.
    """
    ranks = sweep.ranks
    if ranks == 1:
        return 1, 1, True
    by_host: dict[str, Counter[int]] = {}
    for device in sweep.devices:
        by_host.setdefault(device.host, Counter())[device.device] += 1
    if by_host and len(sweep.devices) == ranks:
        shares = [count for devices in by_host.values() for count in _shares(devices)]
        return len(shares), max(shares), len(set(shares)) == 1
    nodes = sweep.transport.nodes if sweep.transport else None
    if nodes and ranks:
        return nodes, ceil(ranks / nodes), ranks % nodes == 0
    most = max((len(devices) for devices in by_host.values()), default=0)
    if ranks and most > 1:  # some lines of the header are lost
        return max(len(by_host), ceil(ranks / most)), most, ranks % most == 0
    return None


def _shares(devices: Counter[int]) -> list[int]:
    """Return the ranks of each node that has this host name."""
    nodes = max(devices.values())
    return [sum(count > node for count in devices.values()) for node in range(nodes)]


def setup_of(config: Claim, sweep: Sweep) -> Setup:
    """Return the claimed cluster; with as many GPUs per node as took part if that was not
    claimed.
    """
    usual = (
        config.gpus_per_node
        or usual_gpus(config.hardware)
        or max(1, ceil((sweep.ranks or 0) / config.nodes))
    )
    return with_links(
        Setup(
            hardware=config.hardware,
            nodes=config.nodes,
            gpus_per_node=usual,
            slots_per_node=usual,
            fabric=config.fabric,
        )
    )


def other_gpus(config: Claim, sweep: Sweep) -> Reason | None:
    """Return the reason why a GPU may be missing: each node has as many, but not the usual
    number.
    """
    usual = usual_gpus(config.hardware)
    each, rest = divmod(sweep.ranks or 0, config.nodes)
    if config.gpus_per_node or not usual or not sweep.rows or not each or each == usual:
        return None
    if rest and config.is_whole:
        return None
    nodes = config.nodes * usual
    hardware = config.hardware
    return Reason.of(
        "log-ranks-unusual", ranks=sweep.ranks, nodes=nodes, usual=usual, hardware=hardware
    )


def within_a_group(config: Claim, sweep: Sweep) -> Claim:
    """Return the claim for a group of ranks, inside a node or across nodes, if the sweep has
    groups.

    Under NCCL_TESTS_SPLIT each is a communicator of its own.
    """
    group = group_of(sweep)
    if group is None:
        return config
    fabric = config.fabric if group.nodes > 1 else None
    return replace(config, nodes=group.nodes, gpus_per_node=group.gpus_per_node, fabric=fabric)
