"""Tests of groups of nodes, read from nccl-tests logs of any launcher."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from seatrial.checks.collectives.logs import by_kind, switched_off
from seatrial.localize.group_tests import GroupTest
from seatrial.nccl import Sweep
from seatrial.nccl.busbw import busbw_factor, expected_algbw
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.model import Timing

_COARSE = 0.1  # GB/s; below this, the rounding of a printed rate is an error of 5 % or more


def tests_of(name: str, sweeps: Sequence[Sweep]) -> list[GroupTest]:
    """Return a test for each data type and operation of each sweep in the log that lists its
    devices.
    """
    tests = []
    for number, sweep in enumerate(sweeps, start=1):
        placed = _placed(sweep)
        if not placed or sweep.launch_times:
            continue
        source = name if len(sweeps) == 1 else f"{name}#{number}"
        nodes, gpus = zip(*placed.items(), strict=True)
        for suffix, part in by_kind(sweep):
            tests.append(
                GroupTest(
                    name=source + suffix,
                    collective=part.collective or "",
                    nodes=nodes,
                    busbw_gb_s=_busbw(part),
                    gpus=gpus,
                    conditions=" ".join(_conditions(part)),
                )
            )
    return tests


def _placed(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """Return the GPU addresses of each host, with hosts in rank order."""
    gpus = defaultdict(list)
    for device in sorted(sweep.devices, key=lambda device: device.rank):
        if device.host:
            gpus[device.host].append(device.pci.lower() or f"gpu{device.device}")
    return {host: tuple(sorted(addresses)) for host, addresses in gpus.items()}


def _conditions(sweep: Sweep) -> Iterable[str]:
    """Yield the other factors that affect speed: GPU model, dtype, reduction, root, groups,
    disabled links.
    """
    yield from sorted({device.name for device in sweep.devices})
    if sweep.rows:
        first = sweep.rows[0]
        yield str(first.type)
        yield str(first.redop)
        yield str(first.root)
    if sweep.groups > 1:
        yield f"{sweep.groups} groups"
    for name, value in sorted(switched_off(sweep).items()):
        yield f"{name}={value}"


def _busbw(sweep: Sweep) -> dict[int, float]:
    """Return GB/s by message bytes, out of place; empty where the test failed or results were
    wrong.
    """
    if sweep.outcome in ("failed", "error"):
        return {}
    rates = {}
    for row in sweep.rows:
        side = row.out_of_place or row.in_place
        if side:
            rates[row.size] = _rate(sweep, row.size, side)
    return {size: rate for size, rate in rates.items() if rate > 0}


def _rate(sweep: Sweep, size: int, side: Timing) -> float:
    """Return GB/s, computed from the time if the printed rate is too small for its two decimals."""
    printed = side.busbw_gb_s or 0.0
    if printed >= _COARSE or not side.time_us:
        return printed
    if sweep.collective not in COLLECTIVES or not sweep.ranks:
        return printed
    return expected_algbw(size, side.time_us) * busbw_factor(sweep.collective, sweep.ranks)
