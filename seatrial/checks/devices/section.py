"""The section `devices` of a suite file, and how long its measurements take. Pure."""

from collections.abc import Collection, Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from seatrial.checks.contract import START_S, PlannedNodes, PlannedPart
from seatrial.config.yamlfile import ByteSize, Strict

NumberFormat = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
# Metrics that take long, the field that enables them, and its value to leave them out
_LONG = (
    ({"matmul_best"}, "dtypes", ()),
    ({"host_to_device", "device_to_host"}, "host_link", False),
    ({"peer_copy"}, "peers", False),
    ({"matmul_stress"}, "stress_s", 0.0),
)
_MEMORY_S = 5.0  # seconds for the memory of one GPU
_PEER_S = 0.1  # most seconds for a pair of GPUs
_ROUND_S = 0.05  # seconds of a round of the search for wrong results on one device


class Disk(Strict):
    """A file that every node writes and reads, with fio where it is installed."""

    folder: str = Field("", description="where, on every node; empty: that of temporary files")
    bytes: ByteSize = Field(
        1 << 28, ge=8 << 20, description="of the file; at most a quarter of what is free"
    )
    seconds: float = Field(
        5.0, ge=1, le=600, description="seconds for each of writing and reading, at most"
    )


class Devices(Strict):
    """Matrix multiplication, memory copy and a search for wrong results on every GPU or a node's
    processors.

    What only GPUs have is left out on nodes without.
    """

    seconds: float = Field(
        0.3, gt=0, le=600, description="seconds for each measurement of a device"
    )
    rounds: int = Field(
        1,
        ge=1,
        le=100_000,
        description="rounds of the search for silent corruption, each with other data",
    )
    dtypes: tuple[NumberFormat, ...] = Field(
        (), description="number formats whose fastest matrix multiplication is sought"
    )
    memory_share: float = Field(
        0.0,
        ge=0,
        le=0.95,
        description="share of a GPU's free memory that is tested; 64 MiB of processors",
    )
    host_link: bool = Field(False, description="copy between the host and every GPU")
    peers: bool = Field(False, description="copy between the GPUs of a node")
    stress_s: float = Field(
        0.0, ge=0, le=86_400, description="seconds that all GPUs of a node multiply at once"
    )
    stagger_s: float = Field(
        0.0, ge=0, le=3600, description="seconds over which nodes begin, one after the other"
    )
    disk: Disk | None = Field(None, description="writes and reads a file on every node")
    timeout_s: float = Field(
        120, gt=0, description="seconds for all devices of one node, and for its disk"
    )

    @model_validator(mode="after")
    def _fits_in_its_time(self) -> Self:
        if self.stress_s >= self.timeout_s / 2:
            raise ValueError(
                f"stress_s is {self.stress_s:g}, which needs a timeout_s above "
                f"{2 * self.stress_s:g},"
                f" is {self.timeout_s:g}"
            )
        return self

    def arguments(self, gpus: int) -> list[str]:
        """Return the probe's arguments for a node with so many GPUs."""
        return [
            "--seconds",
            f"{self.seconds:g}",
            "--timeout-s",
            f"{self.timeout_s:g}",
            "--gpus",
            str(gpus),
            "--rounds",
            str(self.rounds),
            "--memory-share",
            f"{self.memory_share:g}",
            "--stress-s",
            f"{self.stress_s:g}",
            *(["--dtypes", *self.dtypes] if self.dtypes else []),
            *(["--host-link"] if self.host_link else []),
            *(["--peers"] if self.peers else []),
        ]

    def only(self, metrics: Collection[str]) -> Self:
        """Return the arguments for measuring these metrics again, without long measurements of
        others.
        """
        left_out = {"rounds": 1, "memory_share": 0.0} | {
            field: none for of, field, none in _LONG if of.isdisjoint(metrics)
        }
        return self.model_copy(update=left_out)


def plan_devices(section: Devices, nodes: PlannedNodes) -> list[PlannedPart]:
    """Plan the devices of all nodes at once, those of a node one after another; then the disks."""
    names, seconds = zip(
        *_measurements(section, nodes.slots if nodes.gpus else 1, gpus=nodes.gpus), strict=True
    )
    parts = [PlannedPart(", ".join(names), START_S[nodes.gpus] + sum(seconds), section.timeout_s)]
    if section.disk:
        parts.append(
            PlannedPart(
                "write and read a file on every node", 2 * section.disk.seconds, section.timeout_s
            )
        )
    return parts


def _measurements(section: Devices, devices: int, *, gpus: bool) -> Iterator[tuple[str, float]]:
    """Yield each measurement with its seconds for all `devices` of a node."""
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
