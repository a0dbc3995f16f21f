"""Sweeps in groups (NCCL_TESTS_SPLIT): every group ran the collective by itself, at the same time as the others. Pure.

nccl-tests prints the time that all groups took on average and the wrong elements of all of them, so one group stands
for each. It is judged as a cluster of its own: of its nodes, with as many GPUs on each, and their part of the NICs.
Source: BenchTime and Allreduce in nccl-tests src/common.cu.
"""

from collections import Counter
from dataclasses import dataclass, replace

from seatrial.checks.collectives.rows import Problem
from seatrial.model.reason import Reason
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.nccl import Sweep


@dataclass(frozen=True, slots=True)
class Group:
    """The group of rank 0, which stands for all: its sweep as if it had run alone, and the nodes it is spread over."""

    sweep: Sweep
    nodes: int
    gpus_per_node: int


def group_of(sweep: Sweep) -> Group | None:
    """None where the ranks are in one group, or where the groups, or a group's nodes, are not alike."""
    first = min(sweep.devices, key=lambda device: device.rank, default=None)
    sizes = set(Counter(device.group for device in sweep.devices).values())
    if first is None or sweep.groups < 2 or len(sizes) > 1:
        return None
    members = tuple(device for device in sweep.devices if device.group == first.group)
    by_host = Counter(device.host for device in members)
    if len(set(by_host.values())) > 1:
        return None
    return Group(replace(sweep, devices=members), len(by_host), by_host[first.host])


def with_own_nics(setup: Setup) -> Setup:
    """The setup of one group: its GPUs' part of the NICs, because the others of a node use theirs at the same time."""
    part = setup.part_of_node or 1.0
    return replace(setup, node_link_gb_s=setup.node_link_gb_s and setup.node_link_gb_s * part, part_of_node=1.0)


def not_all_ranks(nodes: int, ranks: int | None, sweep: Sweep) -> Problem | None:
    """Why groups together are not the `ranks` asked for (None: nobody said) on that many `nodes`, or are not alike."""
    if sweep.groups < 2:
        return None
    listed, hosts = len(sweep.devices), {device.host for device in sweep.devices}
    if ranks and listed != ranks:
        return Verdict.FAIL, Reason.of("ranks-missing", took_part=f"{listed} of {ranks}", cause="")
    if len(hosts) < nodes:
        reason = Reason.of("ranks-on-fewer-nodes", ranks=listed, hosts=len(hosts), nodes=nodes, min=min(hosts))
        return Verdict.FAIL, reason
    if group_of(sweep) is None:
        return Verdict.INCONCLUSIVE, Reason.of("ranks-in-groups", groups=sweep.groups)
    return None
