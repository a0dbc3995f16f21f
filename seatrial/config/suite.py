"""A suite: which checks run and how hard. `quick`, `nightly` and `acceptance` ship with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from seatrial.config.yamlfile import Strict, load_yaml
from seatrial.model.errors import InputError
from seatrial.model.sizes import ByteSize, format_size
from seatrial.nccl.collectives import SWEPT

SHIPPED = ("quick", "nightly", "acceptance")

if TYPE_CHECKING:
    Operation = str
else:
    Operation = Literal[SWEPT]
Dtype = Literal["float32", "bfloat16", "float16", "float64", "int32"]


class Sweep(Strict):
    """The message sizes of one sweep and how often each is tried, in the words of nccl-tests' flags."""

    min_bytes: ByteSize = Field(description="smallest message in bytes (-b): 8, 64K, 16M, 8G; at most 1024G")
    max_bytes: ByteSize = Field(description="largest message in bytes (-e), written likewise; less where memory ends")
    step_factor: int = Field(2, ge=2, le=1024, description="factor from one size to the next (-f)")
    warmup_iterations: int = Field(2, ge=0, le=1000, description="iterations that are not timed (-w)")
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
        """Every message size in bytes, smallest first."""
        sizes = [self.min_bytes]
        while sizes[-1] * self.step_factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.step_factor)
        return sizes


class Connectivity(Strict):
    """How long nodes have to answer, and how far their clocks may be apart."""

    timeout_s: float = Field(30, gt=0, le=600, description="seconds for one node, or one pair, to answer")
    max_clock_skew_s: float = Field(1.0, gt=0, description="seconds between a node's clock and the median node's")


class Collectives(Strict):
    """One sweep per operation; `gpu` holds where nodes have GPUs (nccl-tests), `cpu` elsewhere (gloo)."""

    operations: tuple[Operation, ...] = Field(("all_reduce",), min_length=1, description="each is one sweep, in order")
    gpu: Sweep = Field(description="sizes where nodes have GPUs (nccl-tests)")
    cpu: Sweep = Field(description="sizes where they have none (gloo)")
    dtype: Dtype = Field("float32", description="what the elements are (-d)")
    timeout_s: float = Field(300, gt=0, description="seconds for one whole sweep")

    @model_validator(mode="after")
    def _operations_once(self) -> Self:
        if len(set(self.operations)) < len(self.operations):
            raise ValueError("operations must not name the same operation twice")
        return self


class Training(Strict):
    """A small transformer on synthetic data, data parallel over every rank."""

    steps: int = Field(30, ge=4, le=100_000, description="optimizer steps")
    batch_per_rank: int = Field(8, ge=1, le=4096, description="sequences per rank and step")
    min_loss_drop: float = Field(0.2, gt=0, lt=1, description="fraction of the first loss that training must take off")
    timeout_s: float = Field(300, gt=0, description="seconds for the whole training")


class Suite(Strict):
    """What is run on a testbed."""

    name: str = Field(min_length=1, max_length=63, description="what reports and history call it")
    connectivity: Connectivity = Field(Connectivity(), description="always part of a run")
    collectives: Collectives | None = Field(None, description="no sweep when unset")
    training: Training | None = Field(None, description="no training when unset")


def load_suite(name_or_path: str) -> Suite:
    """The shipped suite of that name, or the YAML file at that path. Raises InputError."""
    if name_or_path in SHIPPED:
        return load_yaml(Path(__file__).parent / "suites" / f"{name_or_path}.yaml", Suite)
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise InputError(f"suite {name_or_path!r}: unknown; legal: {', '.join(SHIPPED)}, or the path of a YAML file")
    return load_yaml(path, Suite, {"name": path.stem})
