"""Read what a training's log says of itself: model, GPUs, number of ranks, batch, sequence,
precision. Pure.

Sources: torchtitan (train.py, parallel_dims.py, metrics.py), Megatron-LM (its list of arguments,
and theoretical_memory_usage.py), PyTorch Lightning as NeMo starts it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from seatrial.model.measurement import ConditionValue
from seatrial.text.lazy_pattern import lazy

_COUNT = r"(\d{1,3}(?:,\d{3}){0,5}|\d{1,15})"
_DEVICE = lazy(
    r"\b(?:CUDA|HIP|XPU) capacity: (?P<device>[A-Z][\w .-]{2,60}?) with [\d.]{1,10} ?GiB memory"
)
_MODEL = lazy(rf"\bModel (?P<model>\S{{1,60}}(?: \S{{1,40}})?) size: {_COUNT} total parameters")
_BILLIONS = lazy(
    r"\b[Nn]umber of parameters in billions: "
    r"{1,4}(\d{1,5}\.\d{1,12})|(?:^|\D)(\d{1,5}\.\d) B +Trainable params"
)
_MESH = lazy(
    r"\bBuilding (?:\d-D )?device mesh with (?:\[(?P<names>[^\]]{1,120})\], \[(?P<sizes>[\d, "
    r"]{1,60})\]"
    r"|parallelism: (?P<pairs>[\w=, ]{1,200}))"
)
_BEGINS = lazy(
    rf"\blocal batch size {_COUNT}, global batch size {_COUNT}(?: \([^)]{{1,80}}\))?, "
    rf"sequence length {_COUNT}\b"
)
_WORLD = lazy(
    r"\busing world size: (\d{1,7})\b|\bAll distributed processes registered\. Starting "
    r"with (\d{1,7}) processes"
)
_ARGUMENT = lazy(r"(?:^|\s)(\w{2,60}) \.{3,60} (\S{1,60})\s*$")
_COMPILES = lazy(r"\bCompiling each TransformerBlock with torch\.compile")
_RECOMPUTES = lazy(r"\bApplied (full|selective) activation checkpointing")
_FLOAT8 = lazy(r"\bFloat8 (?:tensorwise scaled )?training active|\bSwapped to Float8Linear")
_PATTERNS = (
    _DEVICE,
    _MODEL,
    _BILLIONS,
    _MESH,
    _BEGINS,
    _WORLD,
    _ARGUMENT,
    _COMPILES,
    _RECOMPUTES,
    _FLOAT8,
)
LINE = lazy(
    "|".join(
        rf"\A.{{0,200}}?(?:{re.sub('[(][?]P<[a-z]+>', '(', each.pattern)})" for each in _PATTERNS
    )
)
NEEDLES = (
    " capacity: ",
    " total parameters",
    "parameters in billions",
    "Trainable params",
    "device mesh with",
    "local batch size ",
    "using world size: ",
    "distributed processes registered",
    " ....",
    "TransformerBlock with",
    "activation checkpointing",
    "Float8",
)
# Parameters
_LLAMAS = {"1b": 1.2358e9, "3b": 3.2127e9, "8b": 8.0303e9, "70b": 70.554e9, "405b": 405.85e9}
_AS_LARGE = 0.01  # of the parameters, which Megatron-LM rounds
_ARGUMENTS = {
    "world_size": "ranks",
    "micro_batch_size": "batch_per_rank",
    "global_batch_size": "global_batch",
    "seq_length": "sequence",
}
_DEGREES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
}


@dataclass(slots=True)
class TrainingSetup:
    """What the log says; None for what it does not.

    `parallel` are the degrees besides that of data, such as `tp2`.
    """

    device: str | None = None
    model: str | None = None
    parameters: float | None = None
    ranks: int | None = None
    batch_per_rank: int | None = None
    global_batch: int | None = None
    sequence: int | None = None
    precision: str | None = None
    is_compiled: bool = False
    is_recomputed: bool = False
    degrees: dict[str, int] = field(default_factory=dict)

    def tokens_s_per_gpu(self, time_ms: float) -> float | None:
        """Return tokens/s of each GPU, from the time of a step."""
        if not (self.global_batch and self.sequence and self.ranks):
            return None
        return self.global_batch * self.sequence / self.ranks / time_ms * 1000

    def conditions(self) -> dict[str, ConditionValue]:
        """Return conditions under the names of `model: llama`; empty where model or ranks are
        unknown.
        """
        model = self._name()
        if model is None or self.ranks is None:
            return {}
        named = (
            ("model", model),
            ("ranks", self.ranks),
            ("device", self.device),
            ("precision", self.precision),
            ("sequence", self.sequence),
            ("batch_per_rank", self.batch_per_rank),
            ("compile", self.is_compiled or None),
            ("recompute", "full" if self.is_recomputed else None),
            ("parallel", "x".join(f"{name}{size}" for name, size in self.degrees.items()) or None),
        )
        return {name: value for name, value in named if value is not None}

    def _name(self) -> str | None:
        """Return the catalog's name of the model; without another name in the log, Llama 3 by its
        parameters.
        """
        if self.parameters is None or (self.model and "llama" not in self.model.lower()):
            return None
        alike = [
            size for size, count in _LLAMAS.items() if abs(self.parameters / count - 1) < _AS_LARGE
        ]
        return f"llama {alike[0]}" if alike else None


def read_setup(lines: Iterable[str]) -> TrainingSetup:
    """Return what the lines say; the first value of each counts."""
    setup = TrainingSetup()
    for line in lines:
        _take_titan(setup, line)
        _take_megatron(setup, line)
    return setup


def _take_titan(setup: TrainingSetup, line: str) -> None:
    """Take a line of TorchTitan's."""
    if match := _DEVICE.search(line):
        setup.device = setup.device or match["device"]
    elif match := _MODEL.search(line):
        setup.model = setup.model or match["model"]
        setup.parameters = setup.parameters or _number(match[2])
        setup.precision = setup.precision or "bf16"  # its default for parameters and gradients
    elif match := _MESH.search(line):
        _take_mesh(setup, match)
    elif match := _BEGINS.search(line):
        setup.batch_per_rank, setup.global_batch, setup.sequence = (
            int(_number(each)) for each in match.groups()
        )
    elif _COMPILES.search(line):
        setup.is_compiled = True
    elif match := _RECOMPUTES.search(line):
        setup.is_recomputed = match[1] == "full"
    elif _FLOAT8.search(line):
        setup.precision = "fp8"


def _take_mesh(setup: TrainingSetup, match: re.Match[str]) -> None:
    """Take the number of ranks, the product of the degrees; expert parallelism divides the
    data-parallel ones.
    """
    if match["pairs"]:
        pairs = re.findall(r"(\w{1,20})=(\d{1,7})", match["pairs"])
    else:
        names = re.findall(r"\w{1,20}", match["names"])
        pairs = list(zip(names, re.findall(r"\d{1,7}", match["sizes"]), strict=False))
    ranks = 1
    for name, size in pairs:
        ranks *= int(size) if name not in ("ep", "etp") else 1
        if not name.startswith("dp") and int(size) > 1:
            setup.degrees[name] = int(size)
    setup.ranks = setup.ranks or ranks


def _take_megatron(setup: TrainingSetup, line: str) -> None:
    """Take a line of Megatron-LM's."""
    if match := _WORLD.search(line):
        setup.ranks = setup.ranks or int(match[1] or match[2])
    elif match := _BILLIONS.search(line):
        setup.parameters = setup.parameters or float(match[1] or match[2]) * 1e9
    elif match := _ARGUMENT.search(line):
        _take_argument(setup, match[1], match[2])


def _take_argument(setup: TrainingSetup, name: str, value: str) -> None:
    """Take one of Megatron-LM's arguments, as it prints them at the start."""
    if name in _ARGUMENTS and value.isdigit():
        setattr(setup, _ARGUMENTS[name], int(value[:9]))
    elif name in _DEGREES and value.isdigit() and int(value[:9]) > 1:
        setup.degrees[_DEGREES[name]] = int(value[:9])
    elif name == "fp8" and value not in ("None", "False"):
        setup.precision = "fp8"
    elif name in ("bf16", "fp16") and value == "True":
        setup.precision = setup.precision or name
    elif name == "recompute_granularity":
        setup.is_recomputed = value == "full"


def _number(text: str) -> float:
    return float(text.replace(",", ""))
