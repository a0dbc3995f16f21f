"""The section `training` of a suite file, and how long its workload takes. Pure."""

from typing import Literal, Self

from pydantic import Field, model_validator

from seatrial.checks.contract import START_S, PlannedNodes, PlannedPart
from seatrial.checks.training.decoder import DecoderOptions, DecoderShape, Parallel
from seatrial.config.yamlfile import Strict
from seatrial.model.measurement import Conditions, ConditionValue

_SMALL_IMAGES = 32  # side of Fashion-MNIST's and CIFAR's images in pixels, as they are trained
_LARGE_IMAGES = 224
# Fields that are options of the probe, most with the same name; the probe has other defaults for
# those in _ALWAYS.
_OPTIONS = (
    "steps",
    "batch_per_rank",
    "warmup_steps",
    "model",
    "image_size",
    "data",
    "data_dir",
    "download",
    "precision",
    "compile",
    "workers",
    "learning_rate",
    "inference_steps",
)
_LLAMA_OPTIONS = (
    "steps",
    "batch_per_rank",
    "warmup_steps",
    "model",
    "precision",
    "compile",
    "learning_rate",
    "sequence",
    "size",
    "parallel",
    "hang_s",
    "activation_checkpointing",
    "tokens",
    "replays",
    "digest_every",
    "checkpoint_dir",
    "checkpoint_every",
    "checkpoint_async",
)
_OF_IMAGES = frozenset({"data_dir", "download", "image_size", "workers"})
_OF_COMMANDS = frozenset({"command", "log", "steps", "gpu", "all_reduce_rounds", "timeout_s"})
_RENAMED = {"batch_per_rank": "batch", "warmup_steps": "warmup", "learning_rate": "lr"}
_ALWAYS = ("steps", "batch_per_rank", "warmup_steps", "model", "sequence", "size", "hang_s")
_LLAMA_PARAMETERS = {
    "debug": 2e5,
    "150m": 1.5e8,
    "1b": 1.5e9,
    "3b": 3.6e9,
    "8b": 8e9,
    "70b": 7e10,
    "405b": 4.1e11,
}
# Operations of one sample, as in flops(); for images of 224 pixels
_FLOPS = {"tiny": 2e7, "resnet18": 1.1e10, "resnet50": 2.5e10}
_GPU_FLOPS_S = {"fp32": 3e13, "bf16": 6e13, "fp16": 6e13, "fp8": 6e13}
_LLAMA_GPU_FLOPS_S = 2e14  # large matrices keep a GPU busy
_CPU_FLOPS_S = 2e10
_STEP_S = {True: 5e-3, False: 0.05}  # overhead of a step, by whether there are GPUs
_COMPILING_S = 60.0
_FORWARD = 1 / 3  # share of the work of a step
# To make, sum and check 2,000,000 elements, by whether there are GPUs
_SUM_S = {True: 2e-3, False: 0.2}


class TransformerSize(Strict):
    """The size of the model `transformer`."""

    layers: int = Field(6, ge=1, le=256, description="blocks")
    width: int = Field(
        512, ge=16, le=32_768, description="numbers for each token; a multiple of heads"
    )
    heads: int = Field(8, ge=1, le=256, description="parts of the width that attend by themselves")
    sequence_length: int = Field(128, ge=2, le=16_384, description="tokens of a sample")
    vocabulary: int = Field(1024, ge=16, le=1_000_000, description="different tokens")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}, which is no multiple of {self.heads} heads")
        return self

    def __str__(self) -> str:
        """Format the size as layers by width."""
        return f"{self.layers}x{self.width}"

    def others(self) -> Conditions:
        """Return the sizes other than layers and width that are not the default."""
        return self.model_dump(
            include={"heads", "sequence_length", "vocabulary"}, exclude_defaults=True
        )

    def flops(self) -> float:
        """Return the operations of a sample, forward and backward: three times twice weights and
        attention per token.
        """
        weights = 12 * self.layers * self.width**2 + self.width * self.vocabulary
        attention = 2 * self.layers * self.width * self.sequence_length
        return 3.0 * 2 * (weights + attention) * self.sequence_length


class Workload(DecoderOptions):
    """What nodes with GPUs train instead: the model, the data and the number of steps."""

    model: Literal["tiny", "transformer", "resnet18", "resnet50", "llama"] = Field(
        "tiny", description="`tiny` is for processors; `llama` is a decoder that ranks share"
    )
    command: tuple[str, ...] = Field(
        (),
        max_length=1000,
        description="your own training in place of a model, started as by torchrun",
    )
    log: Literal["megatron", "torchtitan", "nemo", "json"] | None = Field(
        None, description="format of the command's log, which must have `steps` steps"
    )
    transformer: TransformerSize = Field(
        TransformerSize(), description="the size of the model `transformer`"
    )
    data: Literal["synthetic", "fashion_mnist", "cifar10", "cifar100", "imagenet"] = Field(
        "synthetic", description="all but `synthetic` are images for a ResNet"
    )
    data_dir: str = Field("./data", description="where the data is, on every node")
    download: bool = Field(
        False, description="fetch `fashion_mnist` or CIFAR where it is not there"
    )
    image_size: int | None = Field(
        None,
        ge=32,
        le=512,
        description="pixels of an image's side, for a ResNet; unset: 224, or 32 for small images",
    )
    precision: Literal["fp32", "bf16", "fp16", "fp8"] = Field(
        "fp32", description="of multiplications; `fp16` needs GPUs; `fp8` is for llama, by torchao"
    )
    compile: bool = Field(False, description="by torch.compile; the image needs a C compiler")
    workers: int = Field(0, ge=0, le=64, description="processes of each rank that read images")
    learning_rate: float | None = Field(
        None, gt=0, description="unset: the model's own, 0.01 for a ResNet"
    )
    steps: int = Field(30, ge=4, le=100_000, description="optimizer steps")
    warmup_steps: int = Field(2, ge=0, le=10_000, description="first steps, which are not timed")
    batch_per_rank: int = Field(
        8, ge=1, le=4096, description="sequences or images per rank and step"
    )
    inference_steps: int = Field(
        0, ge=0, le=10_000, description="batches to infer after training, timed"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        model = self.model
        if self.data != "synthetic" and not model.startswith("resnet"):
            raise ValueError(
                f"data {self.data} is for resnet18 and resnet50; {model} learns "
                "synthetic data alone"
            )
        if model != "transformer" and self.transformer != TransformerSize():
            raise ValueError(f"transformer is the size of the model transformer; model is {model}")
        if bool(self.command) != bool(self.log):
            raise ValueError("command and log belong together: the log is what is judged")
        if self.command and model != "tiny":
            raise ValueError(f"command takes the place of a model; model is {model}")
        if model == "llama" and self.precision == "fp16":
            raise ValueError("precision fp16 is not for llama; legal: fp32, bf16, fp8")
        if model != "llama" and self.precision == "fp8":
            raise ValueError(f"precision fp8 is for llama; model is {model}")
        only_llamas = self.model_dump(
            include=set(DecoderOptions.model_fields), exclude_defaults=True
        )
        if model != "llama" and only_llamas:
            raise ValueError(f"{next(iter(only_llamas))} is for model: llama; model is {model}")
        problem = self._ignored() or self.decoder_problem()
        if problem:
            raise ValueError(problem)
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps is {self.warmup_steps}, which leaves none of {self.steps} "
                "steps to time"
            )
        return self

    def _ignored(self) -> str | None:
        """Return which of the fields that are set this training does not read; None if it reads
        all.
        """
        unused = set(_OF_IMAGES)
        if self.model.startswith("resnet"):
            unused = set()
        if self.model == "llama":
            unused |= {"inference_steps", "min_loss_drop"}
        if self.command:
            unused = set(type(self).model_fields) - _OF_COMMANDS
        ignored = self.model_dump(include=unused, exclude_defaults=True)
        return f"{next(iter(ignored))} is not for {self.name}" if ignored else None

    @property
    def name(self) -> str:
        """The model, with its size if the suite can choose it: "transformer 6x512"."""
        if self.command:
            return f"your own {self.log} training"
        if self.model == "llama":
            return f"llama {self.size}"
        if self.model == "transformer":
            return f"{self.model} {self.transformer}"
        return self.model

    @property
    def pixels(self) -> int:
        """Pixels of an image's side; 0 for models without images."""
        if not self.model.startswith("resnet"):
            return 0
        small = self.data in ("fashion_mnist", "cifar10", "cifar100")
        return self.image_size or (_SMALL_IMAGES if small else _LARGE_IMAGES)

    def parameters(self) -> float:
        """Return the approximate number of the decoder's parameters that one token uses."""
        shape = self.size
        if isinstance(shape, str):
            return _LLAMA_PARAMETERS[shape]
        networks = shape.active_experts if shape.experts else 1
        block = 4 * shape.width**2 + networks * 3 * shape.width * shape.hidden
        return float(shape.layers * block + 2 * shape.vocabulary * shape.width)

    def conditions(self) -> Conditions:
        """Return the conditions that affect speed and are not the default, except the batch."""
        values: dict[str, tuple[ConditionValue, ConditionValue]] = {
            "model": (self.name, "tiny"),
            "image_size": (self.pixels, 0),
            "data": (self.data, "synthetic"),
            "precision": (self.precision, "fp32"),
            "compile": (self.compile, False),
        }
        others = self.transformer.others() if self.model == "transformer" else {}
        others |= self.decoder_conditions() if self.model == "llama" else {}
        return {name: value for name, (value, usual) in values.items() if value != usual} | others

    def learning_conditions(self) -> Conditions:
        """Return further conditions that affect the loss: the number of steps, and the learning
        rate if it is set.
        """
        own = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        return {"steps": self.steps, **own}

    def arguments(self) -> list[str]:
        """Return the probe's arguments for the model, the data and the number of steps."""
        options: dict[str, object] = {}
        for name in _LLAMA_OPTIONS if self.model == "llama" else _OPTIONS:
            value = getattr(self, name)
            if isinstance(value, DecoderShape | Parallel):
                options |= value.model_dump(exclude_defaults=True)
            elif name in _ALWAYS or value != type(self).model_fields[name].default:
                options[_RENAMED.get(name, name)] = value
        if self.model == "transformer":
            options |= self.transformer.model_dump()
        words = []
        for name, value in options.items():
            option = f"--{name.replace('_', '-')}"
            words += [option] if value is True else [option, str(value)]
        return words


class Training(Workload):
    """A model on synthetic data or on images, data parallel over every rank."""

    gpu: Workload | None = Field(None, description="what nodes with GPUs train instead")
    all_reduce_rounds: int = Field(
        0,
        ge=0,
        le=10_000,
        description="sums of 2,000,000 elements before training, each element checked",
    )
    min_loss_drop: float = Field(
        0.2, gt=0, lt=1, description="fraction of the first loss that training must take off"
    )
    timeout_s: float = Field(300, gt=0, description="seconds for the whole training")

    def workload(self, *, gpus: bool) -> Workload:
        """Return the workload for nodes with GPUs, or without."""
        return self.gpu if gpus and self.gpu else self


def plan_training(section: Training, nodes: PlannedNodes) -> list[PlannedPart]:
    """Return the sums, if the suite has them, and the training."""
    gpus = nodes.gpus
    workload = section.workload(gpus=gpus)
    rounds = section.all_reduce_rounds
    sums = f"{rounds} sums of 2,000,000 elements by torch, each element checked"
    parts = (
        [PlannedPart(sums, START_S[gpus] + rounds * _SUM_S[gpus], section.timeout_s)]
        if rounds
        else []
    )
    batch = f"batch {workload.batch_per_rank} for each rank"
    inference = (
        f", then {workload.inference_steps} of inference" if workload.inference_steps else ""
    )
    summary = f"{workload.name} in {workload.precision}, {batch}, {workload.steps} steps{inference}"
    rate = _GPU_FLOPS_S[workload.precision] if gpus else _CPU_FLOPS_S
    rate = _LLAMA_GPU_FLOPS_S if gpus and workload.model == "llama" else rate
    step_s = workload.batch_per_rank * _flops(workload) / rate + _STEP_S[gpus]
    steps = workload.steps + _FORWARD * workload.inference_steps
    about_s = START_S[gpus] + steps * step_s + (_COMPILING_S if workload.compile else 0.0)
    return [*parts, PlannedPart(summary, about_s, section.timeout_s)]


def _flops(workload: Workload) -> float:
    """Return the operations of one sample, forward and backward."""
    if workload.model == "transformer":
        return workload.transformer.flops()
    if workload.model == "llama":
        return 6.0 * workload.parameters() * workload.sequence
    return _FLOPS[workload.model] * (
        (workload.pixels / _LARGE_IMAGES) ** 2 if workload.pixels else 1.0
    )
