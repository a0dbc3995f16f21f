"""Run a probe on one node, without MPI, and read a node's inventory."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, FiniteFloat

from seatrial.model.errors import RemoteError
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import Answer, NodeAnswer, ProbeError, Text, read_answer, shown
from seatrial.remote.command import run_command
from seatrial.remote.node_setup import asked
from seatrial.remote.ssh import connected

if TYPE_CHECKING:
    import paramiko

Number = Annotated[FiniteFloat, Field(ge=0, le=1e9)]
MaybeNumber = Number | None
Counters = Annotated[dict[Text, Annotated[int, Field(ge=0, lt=1 << 63)]], Field(max_length=512)]
Slowdown = Literal[
    "hardware slowdown", "thermal slowdown", "power brake", "software thermal slowdown"
]


def run_probe(
    testbed: Testbed,
    node: Node,
    probe: str,
    options: Sequence[str],
    model: type[Answer],
    timeout_s: float,
) -> list[Answer]:
    """Return the answers that the probe prints, one JSON object a line; other lines are ignored.

    Raises RemoteError if the probe prints {"error": text} or no answer, does not end in time, or
    floods its output.
    """
    argv = [testbed.python, f"{testbed.workdir}/{probe}.py", *options]
    with connected(testbed, node, 30) as transport:
        done = run_command(transport, shlex.join(argv), timeout_s=timeout_s, max_bytes=1 << 20)
    lines = done.output.splitlines()
    if problem := next(iter(_answers(ProbeError, lines)), None):
        raise RemoteError.of("probe-failed", probe=probe, problem=problem.error)
    if done.timed_out:
        raise RemoteError.of("probe-timeout", probe=probe, seconds=timeout_s)
    if answers := _answers(model, lines):
        return answers
    if done.exit_status == 128 + 9:  # the exit status of a shell for a killed program
        raise RemoteError.of("probe-killed", probe=probe)
    last = next((line for line in reversed(lines) if line.strip()), "")
    unusable = f"it gave no usable answer; its last line: {shown(last)}"
    raise RemoteError.of("probe-failed", probe=probe, problem=unusable)


def _answers(model: type[Answer], lines: Sequence[str]) -> list[Answer]:
    answers = []
    for line in lines:
        with suppress(ValueError):
            answers.append(read_answer(model, line))
    return answers


class GpuState(NodeAnswer):
    """One GPU, with None or "" for what the driver does not report.

    `ecc_uncorrected` counts since the driver was loaded. `rows_pending` and `rows_failed`: memory
    rows that are replaced at the next reset, or could not be replaced. `recovery` is the action
    that the driver requests, `fabric_state` and `fabric_status` the GPU's state with fabric
    manager. `nvlinks` has GB/s of each NVLink, 0 if it is down; for AMD GPUs, 1 or 0 of each XGMI
    link. `errors` are the NVLink counters above 0.
    """

    name: str = Field(pattern=r"^gpu-[0-9]{1,4}$")
    pci: Text = ""
    model: Text = ""
    vbios: Text = ""
    ecc: Text = ""
    persistence: Text = ""
    ecc_uncorrected: MaybeNumber = None
    slowdown: list[Slowdown] | None = Field(None, max_length=8)
    clock_mhz: MaybeNumber = None
    clock_max_mhz: MaybeNumber = None
    power_w: MaybeNumber = None
    power_limit_w: MaybeNumber = None
    memory_mib: MaybeNumber = None
    temperature_c: MaybeNumber = None
    pcie_width: MaybeNumber = None
    pcie_width_max: MaybeNumber = None
    pcie_gen_max: MaybeNumber = None
    processes: int = Field(0, ge=0, le=1_000_000)
    nvlinks: list[Number] = Field(default_factory=list, max_length=64)
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    requires_reset: bool = False
    recovery: Text = ""
    fabric_state: Text = ""
    fabric_status: Text = ""
    errors: Counters | None = None
    numa: int | None = None


class PortState(NodeAnswer):
    """One port of a network or RDMA device; `gbit_s` is its rate in Gb/s, 0 if it is down or
    unknown.

    `errors` are counters of a bad link, `losses` those of packets lost anywhere on the path.
    `iommu` is how the kernel maps the device's memory: `DMA`, `DMA-FQ` or `identity`. `pcie_gt_s`
    is the speed of its PCIe lanes in GT/s.
    """

    port: Text
    kind: Text
    up: bool
    gbit_s: Number
    numa: int | None = None
    errors: Counters = Field(default_factory=dict)
    losses: Counters = Field(default_factory=dict)
    iommu: Text = ""
    relaxed_ordering: bool | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_gt_s: MaybeNumber = None
    pcie_gt_s_max: MaybeNumber = None


class KernelEvent(NodeAnswer):
    """A hardware failure in the kernel's log since boot; `text` is the latest line of its kind."""

    kind: Text
    number: int = Field(0, ge=0, le=99_999)
    pci: Text
    count: int = Field(ge=1)
    age_s: Number
    text: Text = ""


class DriverError(KernelEvent):
    """An Xid of a GPU, or an SXid of an NVSwitch."""

    kind: Literal["Xid", "SXid"]


class Inventory(NodeAnswer):
    """The inventory of a node; sizes in GB (1e9 bytes).

    `xids` is None if the kernel's log may not be read, `memlock_kib` -1 without a limit.
    `redirecting_switches` are PCIe switch ports whose ACS sends traffic between peers to the root
    complex.
    """

    gpus: list[GpuState] = Field(default_factory=list, max_length=1024)
    ports: list[PortState] = Field(default_factory=list, max_length=1024)
    xids: list[DriverError] | None = Field(None, max_length=1024)
    events: list[KernelEvent] = Field(default_factory=list, max_length=1024)
    gpudirect: Literal["", "nvidia-peermem", "dma-buf", "none"] = ""
    redirecting_switches: int | None = Field(None, ge=0)
    hugepages: int | None = None
    memlock_kib: int | None = None
    shm_gb: MaybeNumber = None
    disk_free_gb: MaybeNumber = None


def ask_inventory(testbed: Testbed, transport: "paramiko.Transport") -> Inventory:
    """Return the node's inventory.

    Raises RemoteError if it gives none.
    """
    # The probe waits up to 30 s for nvidia-smi
    return asked(testbed, transport, "inventory.py", Inventory, 45)
