"""The section `rdma` of a suite file, the tests of a pair of nodes, and perftest's command lines
for them. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from seatrial.checks.contract import PlannedNodes, PlannedPart
from seatrial.config.yamlfile import ByteSize, Strict
from seatrial.remote.node_probe import Inventory

Device = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
ProgramName = Literal["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat"]
# From the first node of a pair, to the first node, or both at once
Way = Literal["out", "in", "both"]
NETWORK = "network"  # kind of a port without RDMA

_LATENCY_BYTES = 2
_LATENCY_ROUNDS = 1000
_VALIDATED = ("ib_write_bw", "ib_read_bw")  # the only programs with --data_validation
_OPTION = re.compile(r"--(use_cuda_dmabuf|use_cuda|use_rocm|data_validation|report_gbits)\b")
_MOST_MARGIN_S = 2  # perftest's default for -f, which must fit twice into the duration
_START_S = 3.0  # seconds until a test transfers data


class Rdma(Strict):
    """perftest between pairs of nodes: each rail alone, then all rails at once, to both sides and
    both ways.
    """

    devices: tuple[Device, ...] = Field(
        (),
        max_length=64,
        description="RDMA devices, one for each rail; unset: the fastest that are up on most nodes",
    )
    programs: tuple[ProgramName, ...] = Field(
        ("ib_write_bw", "ib_write_lat"), min_length=1, description="which of perftest's to run"
    )
    rounds: int = Field(1, ge=1, le=4096, description="partners of each node; others the next day")
    seconds: int = Field(5, ge=1, le=3600, description="seconds of each test of bandwidth")
    message_bytes: ByteSize = Field(8 << 20, description="of a message (-s)")
    queue_pairs: int = Field(4, ge=1, le=1024, description="of each test of bandwidth (-q)")
    gid_index: int | None = Field(None, ge=0, le=255, description="of RoCE (-x)")
    port: int = Field(
        18_515, ge=1024, le=65_000, description="TCP port of the first rail; the next ones follow"
    )
    folder: str = Field(
        "", pattern=r"^(/[^\x00-\x1f\x7f]{0,255})?$", description="of perftest; empty: on PATH"
    )
    timeout_s: float = Field(60, gt=0, le=3600, description="seconds of each test, besides its own")


@dataclass(frozen=True, slots=True)
class Rail:
    """An RDMA device that all nodes have, and the GPU beside it on each node that has GPUs."""

    device: str
    port: int
    gpu_by_node: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PairTest:
    """One program that runs over some rails at once."""

    program: ProgramName
    rails: tuple[Rail, ...]
    way: Way

    @property
    def is_bandwidth(self) -> bool:
        return self.program.endswith("_bw")


def tests_of_pair(section: Rdma, rails: Sequence[Rail]) -> Iterator[PairTest]:
    """Yield the tests of a pair: each rail alone, then all rails at once, which shows shared
    bottlenecks in a node.
    """
    groups = [(rail,) for rail in rails] + ([tuple(rails)] if len(rails) > 1 else [])
    for program in section.programs:
        if program.endswith("_bw"):
            ways: tuple[Way, ...] = ("out", "in", "both")
            yield from (
                PairTest(program=program, rails=group, way=way) for group in groups for way in ways
            )
        else:
            yield from (PairTest(program, (rail,), "out") for rail in rails)


def options_in(help_text: str) -> frozenset[str]:
    """Return the options in the help text that not all builds of perftest have."""
    return frozenset(_OPTION.findall(help_text))


def memory_of(known: Set[str], rail: Rail) -> str:
    """Return where message buffers are: `cuda`, `rocm` or `host`."""
    if not rail.gpu_by_node:
        return "host"
    return next((kind for kind in ("cuda", "rocm") if f"use_{kind}" in known), "host")


def command_line(
    section: Rdma, test: PairTest, rail: Rail, node: str, known: Set[str], server: str
) -> list[str]:
    """Return the command of one end of a test on one rail; `server` is the server's address for the
    client, else "".

    `known` are the options that perftest has on all nodes, since both ends must use the same ones.
    """
    words = [
        f"{section.folder}/{test.program}" if section.folder else test.program,
        "-F",
        "-d",
        rail.device,
        "-p",
        str(rail.port),
        *(["-x", str(section.gid_index)] if section.gid_index is not None else []),
    ]
    if test.is_bandwidth:
        margin_s = min(_MOST_MARGIN_S, (section.seconds - 1) // 2)
        words += [
            "-s",
            str(section.message_bytes),
            "-q",
            str(section.queue_pairs),
            "--report_gbits",
            "-D",
            str(section.seconds),
            "-f",
            str(margin_s),
            *(["-b"] if test.way == "both" else []),
        ]
        words += (
            ["--data_validation"]
            if "data_validation" in known and test.program in _VALIDATED
            else []
        )
    else:
        words += ["-s", str(_LATENCY_BYTES), "-n", str(_LATENCY_ROUNDS)]
    memory = memory_of(known, rail)
    if memory != "host":
        words.append(f"--use_{memory}={rail.gpu_by_node.get(node, 0)}")
        words += ["--use_cuda_dmabuf"] if "use_cuda_dmabuf" in known else []
    return [*words, *([server] if server else [])]


def rdma_devices(inventory: Inventory) -> dict[str, float]:
    """Return the fastest RDMA devices of a node that are up, with their rates in Gb/s."""
    up = {
        port.port.partition("/")[0]: port.gbit_s
        for port in inventory.ports
        if port.kind != NETWORK and port.up
    }
    most = max(up.values(), default=0.0)
    return {device: rate for device, rate in up.items() if rate == most}


def gpu_beside(inventory: Inventory | None, device: str, place: int) -> int | None:
    """Return the number of a GPU on the device's CPU socket, different for each device if possible;
    None without GPUs.

    `place` is the index of the device.
    """
    if inventory is None or not inventory.gpus:
        return None
    numa = {
        port.port.partition("/")[0]: port.numa for port in inventory.ports if port.kind != NETWORK
    }
    beside = [i for i, gpu in enumerate(inventory.gpus) if gpu.numa == numa.get(device)]
    if not beside:
        return place % len(inventory.gpus)
    there = sorted(name for name, socket in numa.items() if socket == numa.get(device))
    if device in there:
        return beside[there.index(device) % len(beside)]
    return beside[0]


def most_rounds(nodes: int) -> int:
    """Return the number of rounds in which each node meets all others; with an odd number one node
    pauses in each.
    """
    return max(nodes - 1 + nodes % 2, 1)


def plan_rdma(section: Rdma, nodes: PlannedNodes) -> list[PlannedPart]:
    """Plan the rounds, one after another.

    If the suite does not name the devices, one rail for each rank is assumed.
    """
    rails = len(section.devices) or nodes.slots
    assumed = [Rail(str(number), section.port + number, {}) for number in range(rails)]
    tests = list(tests_of_pair(section, assumed))
    rounds = min(section.rounds, most_rounds(nodes.count))
    about_s = (
        sum(_START_S + (section.seconds if test.is_bandwidth else 0) for test in tests) * rounds
    )
    summary = (
        f"{', '.join(section.programs)} over each rail and all at once, {rounds} partners of "
        "each node"
    )
    return [PlannedPart(summary, about_s, about_s + rounds * len(tests) * section.timeout_s)]
