"""The section `collectives` of a suite file, and how long its sweeps take. Pure."""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from seatrial.checks.contract import START_S, PlannedNodes, PlannedPart
from seatrial.config.yamlfile import ByteSize, Strict
from seatrial.model.measurement import Measurement
from seatrial.model.setup import ARMS, INTRA, LATENCY, NETWORK, NO_MNNVL, arm_of
from seatrial.model.sizes import format_size
from seatrial.nccl.collectives import COLLECTIVES, SWEPT

if TYPE_CHECKING:
    Operation = str
    ArmName = str
else:
    Operation = Literal[SWEPT]
    ArmName = Literal[ARMS]

ARM_OPERATION = "all_reduce"  # operation of the arms, as training uses it
Dtype = Literal["float32", "bfloat16", "float16", "float64", "int32"]
# Flags that fields of the suite or seatrial set; -t and -p would change what a rank is
_OWN_FLAGS = frozenset(
    {
        "-b",
        "-e",
        "-f",
        "-i",
        "-g",
        "-n",
        "-w",
        "-d",
        "-J",
        "-t",
        "-p",
        "-h",
        "--minbytes",
        "--maxbytes",
        "--stepfactor",
        "--stepbytes",
        "--ngpus",
        "--iters",
        "--warmup_iters",
        "--datatype",
        "--output_file",
        "--nthreads",
        "--parallel_init",
        "--help",
    }
)
# Assumed busbw in GB/s (1e9 bytes).
_NVLINK = 300.0
_FABRIC = 100.0
_NIC = 20.0
_GLOO = 0.2
# Assumed latency of one operation, by whether there are GPUs
_LATENCY_S = {True: 50e-6, False: 1e-3}
_CHECKING_GB_S = {True: 20.0, False: 1.0}  # rate of making and checking data
_SIDES = 2  # out of place and in place


class SweepSizes(Strict):
    """The sizes of one sweep of gloo."""

    min_bytes: ByteSize = Field(
        description="smallest message in bytes (-b): 8, 64K, 16M, 8G; at most 1024G"
    )
    max_bytes: ByteSize = Field(description="largest message in bytes (-e); less where memory ends")
    step_factor: int = Field(2, ge=2, le=1024, description="factor from one size to the next (-f)")
    warmup_iterations: int = Field(
        2, ge=0, le=1000, description="iterations that are not timed (-w)"
    )
    iterations: int = Field(20, ge=1, le=10_000, description="iterations that are timed (-n)")

    @model_validator(mode="after")
    def _sizes_grow(self) -> Self:
        if self.min_bytes > self.max_bytes:
            raise ValueError(
                f"sizes run backwards: min_bytes {format_size(self.min_bytes)} must not be above"
                f" max_bytes {format_size(self.max_bytes)}"
            )
        return self

    def sizes(self) -> list[int]:
        """Return every message size in bytes, smallest first."""
        sizes = [self.min_bytes]
        while sizes[-1] * self.step_factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.step_factor)
        return sizes

    def probe_options(self) -> list[str]:
        """Return the options of the gloo probe, which are named after these fields."""
        flags = ((name.replace("_", "-"), getattr(self, name)) for name in SweepSizes.model_fields)
        return [word for flag, value in flags for word in (f"--{flag}", str(value))]


def _words(value: object) -> object:
    """Split a line of arguments as a shell does."""
    return shlex.split(value) if isinstance(value, str) else value


class GpuSweepSizes(SweepSizes):
    """The sizes of one sweep, as in nccl-tests' flags."""

    gpus_per_process: int = Field(
        1, ge=1, le=64, description="GPUs of each process (-g); 1 in measure.sbatch of Slurm"
    )
    args: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:=+-]{1,40}$")], ...],
        BeforeValidator(_words),
    ] = Field((), max_length=40, description="further arguments of nccl-tests, such as -R 1 -G 1")

    @model_validator(mode="after")
    def _args_are_not_fields(self) -> Self:
        for word in self.args:
            if word.partition("=")[0] in _OWN_FLAGS:
                raise ValueError(
                    f"args: {word} is set by a field of the suite, or by seatrial; leave it out"
                )
        return self


LATENCY_SIZES = {  # sizes of the arm `latency`, by whether nodes have GPUs
    True: SweepSizes(
        min_bytes=8, max_bytes=64 << 10, step_factor=2, warmup_iterations=20, iterations=200
    ),
    False: SweepSizes(
        min_bytes=8, max_bytes=32 << 10, step_factor=4, warmup_iterations=5, iterations=20
    ),
}


@dataclass(frozen=True, slots=True)
class PlannedSweep:
    """One sweep of a suite: a collective, its message sizes, and its arm, empty for none."""

    operation: str
    sizes: SweepSizes
    arm: str = ""

    @property
    def gpus_each(self) -> int:
        """GPUs of each nccl-tests process; 1 on nodes without GPUs."""
        return self.sizes.gpus_per_process if isinstance(self.sizes, GpuSweepSizes) else 1

    @property
    def args(self) -> tuple[str, ...]:
        """Further arguments of nccl-tests; none on nodes without GPUs."""
        return self.sizes.args if isinstance(self.sizes, GpuSweepSizes) else ()

    @property
    def label(self) -> str:
        """The name of its log: all_reduce, all_reduce-network."""
        if self.arm:
            return f"{self.operation}-{self.arm}"
        return self.operation


def sweep_of(measurement: Measurement) -> tuple[object, str]:
    """Return the operation and the arm of a measurement."""
    return measurement.conditions.get("operation"), arm_of(measurement)


class Collectives(Strict):
    """One sweep per operation; `gpu` holds where nodes have GPUs (nccl-tests), `cpu` elsewhere
    (gloo).
    """

    operations: tuple[Operation, ...] = Field(
        ("all_reduce",), description="one sweep each, in order; none only beside `arms`"
    )
    gpu: GpuSweepSizes = Field(description="sizes where nodes have GPUs (nccl-tests)")
    cpu: SweepSizes = Field(description="sizes where they have none (gloo)")
    arms: tuple[ArmName, ...] = Field(
        (),
        description="further all_reduce sweeps: in each node, over the network, small messages, "
        "without MNNVL",
    )
    dtype: Dtype = Field("float32", description="what the elements are (-d)")
    timeout_s: float = Field(300, gt=0, description="seconds for one whole sweep")

    @model_validator(mode="after")
    def _operations_once(self) -> Self:
        if len(set(self.operations)) < len(self.operations):
            raise ValueError("operations must not name the same operation twice")
        if len(set(self.arms)) < len(self.arms):
            raise ValueError("arms must not name the same arm twice")
        if not self.operations and not self.arms:
            raise ValueError(
                "operations must not be empty without arms: there would be nothing to sweep"
            )
        return self

    @property
    def first_operation(self) -> str:
        """The operation of the first sweep."""
        return self.operations[0] if self.operations else ARM_OPERATION

    @property
    def gpu_latency(self) -> GpuSweepSizes:
        """The sizes of the arm `latency` on GPUs, with the suite's own arguments of nccl-tests."""
        return self.gpu.model_copy(update=dict(LATENCY_SIZES[True]))

    def with_a_gpu_per_process(self) -> Self:
        """Return the section for a launcher that starts one rank for each GPU."""
        return self.model_copy(update={"gpu": self.gpu.model_copy(update={"gpus_per_process": 1})})

    def sweeps(self, *, nodes: int, slots: int, gpus: bool) -> list[PlannedSweep]:
        """Return the sweeps for `nodes` nodes with `slots` ranks each, in order; arms that can run
        there come last.
        """
        possible = {INTRA: slots > 1, NETWORK: gpus and nodes > 1, LATENCY: nodes * slots > 1}
        possible[NO_MNNVL] = possible[NETWORK]
        usual = self.gpu if gpus else self.cpu
        small = self.gpu_latency if gpus else LATENCY_SIZES[False]
        sweeps = [PlannedSweep(operation, usual) for operation in self.operations]
        for arm in self.arms:
            if possible[arm]:
                sizes = small if arm == LATENCY else usual
                sweeps.append(PlannedSweep(ARM_OPERATION, sizes, arm))
        return sweeps


def plan_sweeps(section: Collectives, nodes: PlannedNodes) -> list[PlannedPart]:
    """Plan each sweep, in order."""
    parts = []
    for sweep in section.sweeps(nodes=nodes.count, slots=nodes.slots, gpus=nodes.gpus):
        sizes = sweep.sizes
        arm = f" ({sweep.arm})" if sweep.arm else ""
        more = f", {' '.join(sweep.args)}" if sweep.args else ""
        span = f"{format_size(sizes.min_bytes)} to {format_size(sizes.max_bytes)}"
        iterations = f"{sizes.iterations} iteration{'' if sizes.iterations == 1 else 's'}"
        summary = f"{sweep.operation}{arm}: {span}, factor {sizes.step_factor}, {iterations}{more}"
        parts.append(PlannedPart(summary, _seconds(sweep, nodes), section.timeout_s))
    return parts


def _seconds(sweep: PlannedSweep, nodes: PlannedNodes) -> float:
    """Return the estimated seconds of a sweep at usual rates."""
    ranks = nodes.slots if sweep.arm == INTRA else nodes.ranks
    factor = COLLECTIVES[sweep.operation].factor(ranks) or 1.0
    if not nodes.gpus:
        rate_gb_s = _GLOO
    elif sweep.arm == NETWORK:
        rate_gb_s = _NIC
    else:
        rate_gb_s = _NVLINK if nodes.count == 1 or sweep.arm == INTRA else _FABRIC
    sizes = sweep.sizes.sizes()
    each = [_LATENCY_S[nodes.gpus] + size * factor / (rate_gb_s * 1e9) for size in sizes]
    rounds = sweep.sizes.warmup_iterations + _SIDES * (sweep.sizes.iterations + 1)
    checked = _SIDES * sum(sizes) / (_CHECKING_GB_S[nodes.gpus] * 1e9)
    return START_S[nodes.gpus] + rounds * sum(each) + checked
