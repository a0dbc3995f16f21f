"""What the probe `devices` answers, as models; and the measurements that they become."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from seatrial.checks.devices.metrics import METRICS
from seatrial.checks.devices.section import NumberFormat
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text
from seatrial.text.numbers import short

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


class RateConditions(NodeAnswer):
    """What a rate depends on, beside the device's model."""

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
        """Its median, by the device's model; what is only recorded is neither good nor bad."""
        conditions = {"device": model, **self.conditions.model_dump(exclude_none=True)}
        better: Literal["higher"] | None = None if METRICS[self.metric].tolerance is None else "higher"
        unit = METRICS[self.metric].unit
        return Measurement(self.metric, median(self.samples), unit, subject, conditions, self.samples, better)


class DeviceMeasurement(NodeAnswer):
    """One device, as seatrial/remote/probes/devices.py measured it.

    `digests` are of results that are bit for bit alike on all devices of one `model`, `library` and `software`.
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
        """The GPU's name; the node's, whose processors these are, where it has none."""
        return f"{node}/gpu-{self.device.removeprefix('cuda:')}" if self.kind == "gpu" else node

    def problem(self) -> tuple[Verdict, Reason] | None:
        """What is wrong with the device, if anything is."""
        if self.wrong:
            return Verdict.CORRUPT, Reason.of("wrong-result", problem=self.wrong)
        if self.error or not (self.matmul_tflops and self.copy_gb_s):
            return Verdict.FAIL, Reason.of("probe-failed", probe=PROBE, problem=self.error or "no samples")
        return None

    def measurements(self, node: str) -> Iterator[Measurement]:
        """matmul in TFLOP/s and memory_copy in GB/s (1e9 bytes), then the rates that were asked for."""
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
        yield from (rate.measurement(subject, self.model) for rate in self.rates)


class DevicesAnswer(NodeAnswer):
    """All devices of a node; none where other nodes of the same machine were measured for all of the time."""

    devices: Annotated[tuple[DeviceMeasurement, ...], Field(max_length=1024)]


def summary(measured: Sequence[DeviceMeasurement]) -> str:
    """What the slowest device reaches."""
    rates = [(median(d.matmul_tflops), median(d.copy_gb_s)) for d in measured if not d.problem()]
    if not rates:
        return f"no healthy device of {len(measured)}"
    matmul, copy = min(rates)
    which = "" if len(rates) == 1 else f"{len(rates)} devices, the slowest "
    return f"{which}{short(matmul)} TFLOP/s, {short(copy)} GB/s"
