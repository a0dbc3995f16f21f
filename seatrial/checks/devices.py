"""The check `devices`: how fast does every GPU, or every node without GPUs, multiply matrices and copy memory?

Measurements of each GPU (`node-3/gpu-1`), or of each node without GPUs, with the device's model as a condition, and
the library where it is not torch: matmul (TFLOP/s, by dtype and matrix size) and memory_copy (GB/s, read and written).
Each is the median of its samples.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import TORCH, CheckContext, CheckType, Metric, StepResult
from seatrial.checks.repeated import Doubt, Repeated, TimeLeft, log_repeat
from seatrial.config.yamlfile import Strict
from seatrial.model.errors import RemoteError
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.tolerance import Tolerance
from seatrial.model.verdict import Verdict, worst
from seatrial.remote.answers import NodeAnswer, Text
from seatrial.remote.node_probe import run_probe
from seatrial.remote.ssh import on_each
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.devices")

_NAME = "devices"  # of the check and of its probe


class Devices(Strict):
    """Matrix multiplication and memory copy on every GPU, or on the processors of nodes without GPUs."""

    seconds: float = Field(0.3, gt=0, le=600, description="seconds for each of the two measurements of a device")
    timeout_s: float = Field(120, gt=0, description="seconds for all devices of one node")


Rate = Annotated[float, Field(gt=0, lt=1e9)]
Samples = Annotated[tuple[Rate, ...], Field(max_length=1000)]


class DeviceMeasurement(NodeAnswer):
    """One device, as seatrial/remote/probes/devices.py measured it."""

    device: Annotated[str, Field(pattern=r"^(cpu|cuda:[0-9]{1,4})$")]
    model: Text
    library: Literal["numpy", "torch"]
    dtype: Text
    size: int = Field(gt=0)
    matmul_tflops: Samples
    copy_gb_s: Samples
    wrong: Text
    error: Text

    @property
    def kind(self) -> Literal["gpu", "node"]:
        return "node" if self.device == "cpu" else "gpu"

    def name(self, node: str) -> str:
        """The GPU's name; the node's, whose processors these are, where it has none."""
        return f"{node}/gpu-{self.device.removeprefix('cuda:')}" if self.kind == "gpu" else node

    def problem(self) -> tuple[Verdict, Reason] | None:
        """What is wrong with the device, if anything is."""
        if self.wrong:
            return Verdict.CORRUPT, Reason.of("wrong-result", problem=self.wrong)
        if self.error or not (self.matmul_tflops and self.copy_gb_s):
            return Verdict.FAIL, Reason.of("probe-failed", probe=_NAME, problem=self.error or "no samples")
        return None

    def measurements(self, node: str) -> Iterator[Measurement]:
        """matmul in TFLOP/s and memory_copy in GB/s (1e9 bytes)."""
        subject, model = Subject(self.kind, self.name(node)), {"device": self.model}
        if self.library != "torch":  # another library, another series; torch's keep their name and history
            model["library"] = self.library
        product: dict[str, ConditionValue] = {**model, "dtype": self.dtype, "size": self.size}
        for metric, unit, samples, conditions in (
            ("matmul", "TFLOP/s", self.matmul_tflops, product),
            ("memory_copy", "GB/s", self.copy_gb_s, model),
        ):
            if samples:
                yield Measurement(metric, median(samples), unit, subject, conditions, samples)


class DevicesAnswer(NodeAnswer):
    """All devices of a node; none where other nodes of the same machine were measured for all of the time."""

    devices: Annotated[tuple[DeviceMeasurement, ...], Field(max_length=1024)]


def devices(context: CheckContext) -> StepResult:
    """Measure all nodes at once; nodes with a bad device are named and taken out, unless all nodes have one."""
    started, section = time.monotonic(), context.section(Devices)
    answers = on_each(context.testbed.nodes, lambda node: measure(context.testbed, node, section))
    by_node = {name: answer for name, answer in answers.items() if not isinstance(answer, RemoteError)}
    problems = list(_problems(answers))
    for name, measured in by_node.items():
        log.info("%s: %s", name, _summary(measured))
    verdicts, suspects = [verdict for verdict, _ in problems], [suspect for _, suspect in problems]
    reasons = [placed(suspect.name, suspect.evidence) for suspect in suspects]
    bad = {suspect.name.partition("/")[0] for suspect in suspects}
    if len(bad) == len(context.testbed.nodes) > 1:  # what every node has, such as its image, is no node's fault
        suspects, bad = [], set()
    if busy := [name for name, measured in by_node.items() if not measured]:
        verdicts.append(Verdict.INCONCLUSIVE)
        reasons.append(Reason.of("probe-busy", nodes=some_of(busy)))
    check = Check(
        _NAME,
        worst(verdicts) if verdicts else Verdict.PASS,
        join(reasons) or f"{sum(map(len, by_node.values()))} devices of {len(by_node)} nodes were measured",
        time.monotonic() - started,
        tuple(m for name, measured in by_node.items() for device in measured for m in device.measurements(name)),
        suspects=tuple(suspects),
    )
    return StepResult(check, context.testbed.without(bad))


def _problems(answers: Mapping[str, Sequence[DeviceMeasurement] | RemoteError]) -> Iterator[tuple[Verdict, Suspect]]:
    """The nodes that gave no answer, and the devices that broke or compute wrongly."""
    for name, answer in answers.items():
        if isinstance(answer, RemoteError):
            yield Verdict.FAIL, Suspect("node", name, 1.0, answer.reason)
            continue
        for device in answer:
            if problem := device.problem():
                yield problem[0], Suspect(device.kind, device.name(name), 1.0, problem[1])


def measure(testbed: Testbed, node: Node, section: Devices) -> tuple[DeviceMeasurement, ...]:
    """Every device of the node; none where others had its machine for all of the time. Raises RemoteError."""
    times = ("--seconds", f"{section.seconds:g}", "--timeout-s", f"{section.timeout_s:g}")
    options = (*times, "--gpus", str(node.gpus))
    measured = run_probe(testbed, node, _NAME, options, DevicesAnswer, section.timeout_s)[-1].devices
    visible = sum(device.kind == "gpu" for device in measured)
    if measured and visible < node.gpus:
        problem = f"torch sees {visible} of {node.gpus} GPUs"
        raise RemoteError(Reason.of("probe-failed", probe=_NAME, problem=problem))
    return measured


def _summary(measured: Sequence[DeviceMeasurement]) -> str:
    """What the slowest device reaches."""
    rates = [(median(d.matmul_tflops), median(d.copy_gb_s)) for d in measured if not d.problem()]
    matmul, copy = min(rates, default=(0.0, 0.0))
    which = "" if len(rates) == 1 else f"{len(rates)} devices, the slowest "
    return f"{which}{matmul:.3g} TFLOP/s, {copy:.3g} GB/s"


def repeat_devices(context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft) -> None:
    """The devices of each doubtful node once more, one node after another: what shares its machine is idle."""
    doubtful = {doubt.measurement.subject.name.partition("/")[0] for doubt in doubts}
    nodes = [node for node in context.testbed.nodes if node.name in doubtful]
    if nodes:
        log_repeat(f"devices of {some_of([node.name for node in nodes], 3)}", doubts)
    for node in nodes:
        if left.over:
            return
        answers = on_each([node], lambda node: measure(context.testbed, node, context.section(Devices)))
        for verdict, suspect in _problems(answers):
            repeated.suspects.append(suspect)
            repeated.broke(verdict, placed(suspect.name, suspect.evidence))
        for answer in answers.values():
            if not isinstance(answer, RemoteError):
                repeated.measurements += [m for device in answer for m in device.measurements(node.name)]


_SHARED = Tolerance(sigma=0.5, cap=8.0)  # processors that other programs use as well lose half of their speed and more

DEVICES = CheckType(
    name=_NAME,
    section=Devices,
    description="matrix multiplication and memory copy; `null` leaves it out",
    run=devices,
    after=CONNECTIVITY.name,
    metrics={
        "matmul": Metric("TFLOP/s", "matrix multiplication, bfloat16 on a GPU, float32 on processors", _SHARED),
        "memory_copy": Metric("GB/s", "memory copy (1e9 bytes, read and written)", _SHARED),
    },
    default=Devices(),
    needs=lambda gpus: (TORCH,),
    repeat=repeat_devices,
)
