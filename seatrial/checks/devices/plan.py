"""What `devices` measures, and how long that takes: seconds from the suite, the rest assumed. Pure."""

from collections.abc import Iterator

from seatrial.checks.devices.section import Devices
from seatrial.checks.planned import START_S, PlannedNodes, PlannedPart

_MEMORY_S = 5.0  # for the memory of one GPU
_PEER_S = 0.1  # for a pair of GPUs, at most
_ROUND_S = 0.05  # of the search for wrong results, of one device


def plan_devices(section: Devices, nodes: PlannedNodes) -> list[PlannedPart]:
    """The devices of all nodes at once, those of a node one after another; then the disks."""
    what, seconds = zip(*_measurements(section, nodes.slots if nodes.gpus else 1, gpus=nodes.gpus), strict=True)
    parts = [PlannedPart(", ".join(what), START_S[nodes.gpus] + sum(seconds), section.timeout_s)]
    if section.disk:
        parts.append(PlannedPart("write and read a file on every node", 2 * section.disk.seconds, section.timeout_s))
    return parts


def _measurements(section: Devices, devices: int, *, gpus: bool) -> Iterator[tuple[str, float]]:
    """What is measured, and the seconds of all `devices` of a node."""
    each = section.seconds * devices
    yield "matrix multiplication and memory copy", 2 * each
    yield "search for wrong results", _ROUND_S * devices * section.rounds
    if section.memory_share:
        yield "memory", _MEMORY_S * devices
    if not gpus:
        return
    if section.dtypes:
        yield f"best of {', '.join(section.dtypes)}", len(section.dtypes) * each
    if section.host_link:
        yield "host link", 2 * (each + section.seconds)
    if section.peers and devices > 1:
        yield "copies between GPUs", devices * (devices - 1) * min(section.seconds, _PEER_S)
    if section.stress_s:
        yield f"{section.stress_s:g} s of stress", section.stress_s
