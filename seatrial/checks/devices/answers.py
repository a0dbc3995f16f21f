"""Answers of the probes `devices` and `disk`: their measurements, problems, and digests that
disagree.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from seatrial.checks.contract import Problem
from seatrial.checks.devices.section import Disk, NumberFormat
from seatrial.checks.metrics import DEVICE_METRICS
from seatrial.model.errors import RemoteError
from seatrial.model.measurement import Conditions, Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text
from seatrial.remote.node_probe import run_probe
from seatrial.remote.ssh import answered
from seatrial.text.words import number, some_of

PROBE = "devices"
Rate = Annotated[float, Field(gt=0, lt=1e9)]
Samples = Annotated[tuple[Rate, ...], Field(max_length=1000)]
ThoroughMetric = Literal[
    "matmul_best",
    "matmul_stress",
    "host_to_device",
    "device_to_host",
    "peer_copy",
    "memory_tested",
    "gpu_clock",
    "gpu_power",
    "gpu_temperature",
]
Dtype = Literal["float32", "bfloat16", "float16"]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
# Key of devices that must get equal results: model, library, software and dtype
_Work = tuple[str, str, str, str]
# Devices do not agree on a wrong result by chance, but the odd one may be configured differently
_CONFIDENCE = 0.95


class RateConditions(NodeAnswer):
    """Conditions of a rate, besides the device's model."""

    dtype: NumberFormat | None = None
    at_once: int | None = Field(None, ge=1, le=1024)
    peer: Annotated[str, Field(pattern=r"^gpu-[0-9]{1,4}$")] | None = None
    during: NumberFormat | Literal["stress"] | None = None


class DeviceRate(NodeAnswer):
    """One more measurement of a device, as seatrial/remote/probes/thorough.py asked for it."""

    metric: ThoroughMetric
    conditions: RateConditions
    samples: Annotated[tuple[Rate, ...], Field(min_length=1, max_length=1000)]

    def measurement(self, subject: Subject, model: str) -> Measurement:
        """Return the median as a measurement; metrics that are only recorded have no better
        direction.
        """
        conditions = {"device": model, **self.conditions.model_dump(exclude_none=True)}
        metric = DEVICE_METRICS[self.metric]
        return Measurement(
            metric=self.metric,
            value=median(self.samples),
            unit=metric.unit,
            subject=subject,
            conditions=conditions,
            samples=self.samples,
            better="higher" if metric.tolerance else None,
        )


class DeviceMeasurement(NodeAnswer):
    """One device, as seatrial/remote/probes/devices.py measured it.

    `digests` are of results that are bit for bit alike on all devices of one `model`, `library` and
    `software`.
    """

    device: Annotated[str, Field(pattern=r"^(cpu|cuda:[0-9]{1,4})$")]
    model: Text
    library: Literal["numpy", "torch"]
    software: Text = ""
    dtype: Text
    size: int = Field(gt=0)
    matmul_tflops: Samples
    copy_gb_s: Samples
    digests: dict[Dtype, Digest] = Field(default_factory=dict)
    rates: Annotated[tuple[DeviceRate, ...], Field(max_length=4096)] = ()
    wrong: Text
    error: Text

    @property
    def kind(self) -> Literal["gpu", "node"]:
        return "node" if self.device == "cpu" else "gpu"

    def name(self, node: str) -> str:
        """Return the GPU's name as NODE/gpu-N; the node's name for processors."""
        if self.kind == "gpu":
            return f"{node}/gpu-{self.device.removeprefix('cuda:')}"
        return node

    def problem(self) -> tuple[Verdict, Reason] | None:
        """Return verdict and reason if the device is faulty."""
        if self.wrong:
            return Verdict.CORRUPT, Reason.of("wrong-result", problem=self.wrong)
        if self.error or not (self.matmul_tflops and self.copy_gb_s):
            return Verdict.FAIL, Reason.of(
                "probe-failed", probe=PROBE, problem=self.error or "no samples"
            )
        return None

    def measurements(self, node: str) -> Iterator[Measurement]:
        """Yield matmul in TFLOP/s and memory_copy in GB/s (1e9 bytes), then the requested rates."""
        subject = Subject(self.kind, self.name(node))
        model = {"device": self.model}
        # Another library makes another series; torch's series keep their name and history
        if self.library != "torch":
            model["library"] = self.library
        product: Conditions = {**model, "dtype": self.dtype, "size": self.size}
        for metric, unit, samples, conditions in (
            ("matmul", "TFLOP/s", self.matmul_tflops, product),
            ("memory_copy", "GB/s", self.copy_gb_s, model),
        ):
            if samples:
                yield Measurement(
                    metric=metric,
                    value=median(samples),
                    unit=unit,
                    subject=subject,
                    conditions=conditions,
                    samples=samples,
                )
        yield from (rate.measurement(subject, self.model) for rate in self.rates)


DeviceMeasurements = Mapping[str, Sequence[DeviceMeasurement]]  # by node


class DevicesAnswer(NodeAnswer):
    """All devices of a node; empty if other nodes of the same machine used it for all of
    the time.
    """

    devices: Annotated[tuple[DeviceMeasurement, ...], Field(max_length=1024)]


def summary(measured: Sequence[DeviceMeasurement]) -> str:
    """Format the rates of the slowest device."""
    rates = [(median(d.matmul_tflops), median(d.copy_gb_s)) for d in measured if not d.problem()]
    if not rates:
        return f"no healthy device of {len(measured)}"
    matmul, copy = min(rates)
    which = "" if len(rates) == 1 else f"{len(rates)} devices, the slowest "
    return f"{which}matmul {number(matmul)} TFLOP/s, memory copy {number(copy)} GB/s"


@dataclass(frozen=True, slots=True)
class _Digested:
    """A device with its digest of the work that all devices of its group do."""

    name: str
    device: DeviceMeasurement
    digest: str


def disagreements(measured: DeviceMeasurements) -> Iterator[Problem]:
    """Yield devices whose digests differ from the majority of their group, and groups without a
    majority.

    A group has the same model, library, software and dtype. Devices that are known to be wrong are
    left out.
    """
    outvoted = defaultdict(list)
    for (_, _, _, dtype), group in _groups(measured).items():
        common, count = Counter(member.digest for member in group).most_common(1)[0]
        if count == len(group):
            continue
        if count * 2 <= len(group):
            names = some_of([member.name for member in group])
            yield Problem(
                Verdict.INCONCLUSIVE, Reason.of("digests-divided", dtype=dtype, names=names)
            )
            continue
        for member in group:
            if member.digest != common:
                outvoted[member.name].append((member, dtype, count))
    for name, votes in outvoted.items():
        dtypes = some_of([dtype for _, dtype, _ in votes])
        evidence = Reason.of(
            "digest-differs", dtypes=dtypes, count=min(count for _, _, count in votes)
        )
        yield Problem.of(
            Verdict.CORRUPT,
            Suspect(votes[0][0].device.kind, name, _CONFIDENCE, evidence),
        )


def _groups(measured: DeviceMeasurements) -> dict[_Work, list[_Digested]]:
    """Return the devices that must get equal results, by group."""
    groups = defaultdict[_Work, list[_Digested]](list)
    for node, devices in measured.items():
        for device in devices:
            for dtype, digest in (
                device.digests.items() if device.software and not device.problem() else ()
            ):
                key = (device.model, device.library, device.software, dtype)
                groups[key].append(_Digested(device.name(node), device, digest))
    return groups


class DiskAnswer(NodeAnswer):
    """Output of the disk probe; `tool` is None if other nodes of the machine took all of
    the time.
    """

    tool: Literal["fio", "python"] | None = None
    filesystem: Text = ""
    write_mb_s: Rate | None = None
    read_mb_s: Rate | None = None
    wrong: Text = ""

    def measurements(self, node: str) -> Iterator[Measurement]:
        """Return disk_write and disk_read in MB/s (1e6 bytes)."""
        if self.tool is None:
            return
        conditions = {"tool": self.tool, "filesystem": self.filesystem}
        for metric, value in (("disk_write", self.write_mb_s), ("disk_read", self.read_mb_s)):
            if value:
                yield Measurement(
                    metric=metric,
                    value=value,
                    unit="MB/s",
                    subject=Subject("node", node),
                    conditions=conditions,
                    samples=(value,),
                )


DiskAnswers = Mapping[str, DiskAnswer | RemoteError]  # by node


def measure_disk(testbed: Testbed, node: Node, section: Disk, timeout_s: float) -> DiskAnswer:
    """Measure the node's disk. Raises RemoteError."""
    options = [
        "--bytes",
        str(section.bytes),
        "--seconds",
        f"{section.seconds:g}",
        "--timeout-s",
        f"{timeout_s:g}",
    ]
    options += ["--folder", section.folder] if section.folder else []
    return run_probe(testbed, node, "disk", options, DiskAnswer, timeout_s)[-1]


def disk_problems(answers: DiskAnswers) -> Iterator[Problem]:
    """Yield nodes whose disk probe failed or read wrong data, and a problem for nodes that were not
    measured.
    """
    for name, answer in answers.items():
        if isinstance(answer, RemoteError):
            yield Problem.of(
                Verdict.FAIL,
                Suspect("node", name, 1.0, answer.reason),
            )
        elif answer.wrong:
            evidence = Reason.of("disk-wrong", problem=answer.wrong)
            yield Problem.of(Verdict.CORRUPT, Suspect("node", name, 1.0, evidence))
    busy = [name for name, answer in answered(answers).items() if not answer.tool]
    if busy:
        yield Problem(Verdict.INCONCLUSIVE, Reason.of("probe-busy", nodes=some_of(busy)))


def disk_measurements(answers: DiskAnswers) -> Iterator[Measurement]:
    for name, answer in answered(answers).items():
        yield from answer.measurements(name)
