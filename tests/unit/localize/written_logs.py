"""Logs in the format of nccl-tests 2.17 for tests of pairs and groups, with a truth that is set
beforehand.

It shares nothing with seatrial: who is slow, and how the output looks, is written here by itself.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

ADDRESSES = (
    "0000:1b:00",
    "0000:43:00",
    "0000:52:00",
    "0000:61:00",
    "0000:9d:00",
    "0000:c3:00",
    "0000:d1:00",
    "0000:df:00",
)
SIZES = tuple(1 << power for power in range(25, 34))

Placed = tuple[tuple[str, tuple[str, ...]], ...]  # hosts, each with the addresses of its GPUs
Speed = Callable[[Placed], float | None]  # share of the usual speed; None: the test fails


def table_row(size: int, ranks: int, busbw: float) -> str:
    algbw = busbw * ranks / (ranks - 1)
    time = size / algbw / 1e3
    shown = f"{time:8.2f}" if time < 1e4 else f"{time:8.1f}" if time < 1e6 else f"{time:8.0f}"
    side = f"{shown}  {algbw:6.2f}  {busbw:6.2f}"
    return (
        f"{size:12d}  {size // 8 // ranks:13d}    double    none      -1  {side}       0  "
        f"{side}    N/A"
    )


def _devices(placed: Placed) -> list[str]:
    """The lines of nccl-tests that say which rank has which GPU."""
    devices = list[str]()
    for host, gpus in placed:
        for device, address in enumerate(gpus):
            rank = len(devices)
            devices.append(
                f"#  Rank {rank:2d} Group  0 Pid {4000 + rank} on {host:>10} device "
                f"{device:2d} [{address}] NVIDIA H100"
            )
    return devices


def log_text(
    placed: Placed, share: float | None, noise: Callable[[], float], plateau: float = 40.0
) -> str:
    ranks = sum(len(gpus) for _, gpus in placed)
    lines = [
        "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807",
        "# Collective test starting: alltoall_perf",
        "# nThread 1 nGpus 1 minBytes 33554432 maxBytes 8589934592 step: 2(factor) warmup iters: "
        "5 iters: 20"
        " agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *_devices(placed),
        "#",
        f"#{'out-of-place':>74}{'in-place':>31}          ",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong    "
        " time   algbw   busbw"
        "  #wrong ",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            "
        " (us)  (GB/s)  (GB/s)"
        "         ",
    ]
    if share is None:
        host = placed[0][0]
        lines += [
            (
                f"{host}: Test NCCL failure common.cu:401 'remote process exited or there was "
                "a network error / '"
            ),
            f" .. {host} pid 4000: Test failure common.cu:519",
        ]
        return "\n".join(lines) + "\n"
    whole = share * noise()
    rows = [
        table_row(size, ranks, plateau * whole * size / (size + 4e6) * (1 + 0.2 * (noise() - 1)))
        for size in SIZES
    ]
    footer = [
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {plateau * whole:.4f} ",
        "#",
    ]
    return "\n".join([*lines, *rows, *footer, "# Collective test concluded: alltoall_perf", ""])


@dataclass
class Fleet:
    """What is tested, and what is wrong with it."""

    seed: int
    speed: Speed
    nodes: int = 12
    gpus: Callable[[random.Random, str], tuple[str, ...]] = lambda _random, _host: ADDRESSES
    noise: float = 0.02
    strays: float = 0.0
    missing: float = 0.0
    failing: float = 0.0
    groups: Sequence[Sequence[int]] = field(default_factory=list)  # beside the pairs

    def write(self, folder: Path) -> list[str]:
        folder.mkdir(exist_ok=True)
        drawn = random.Random(self.seed)
        hosts = [f"cnode{i:03d}" for i in range(self.nodes)]
        groups = [*combinations(range(self.nodes), 2), *map(tuple, self.groups)]
        logs = []
        for group in groups:
            if drawn.random() < self.missing and len(group) == 2:
                continue
            placed = tuple((hosts[i], self.gpus(drawn, hosts[i])) for i in group)
            share = None if drawn.random() < self.failing else self.speed(placed)
            if share is not None and drawn.random() < self.strays:
                share *= drawn.uniform(0.4, 0.9)
            log = folder / f"{'-'.join(map(str, group))}.log"
            log.write_text(
                log_text(placed, share, lambda: max(0.5, 1 + drawn.gauss(0, self.noise)))
            )
            logs.append(str(log))
        return logs
