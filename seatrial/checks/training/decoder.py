"""The options of `model: llama` in a suite: shape, parallel degrees, checkpoints, interruptions.

Pure.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from seatrial.config.yamlfile import Strict
from seatrial.model.measurement import Conditions


class DecoderShape(Strict):
    """A decoder of Llama's shape."""

    layers: int = Field(ge=1, le=1024, description="blocks")
    width: int = Field(
        ge=16, le=131_072, description="numbers for each token; 2 x heads divides it"
    )
    heads: int = Field(ge=1, le=1024, description="query heads")
    kv_heads: int = Field(ge=1, le=1024, description="key and value heads, which divide the heads")
    hidden: int = Field(ge=16, le=1_000_000, description="width of the feed-forward network")
    vocabulary: int = Field(ge=16, le=10_000_000, description="different tokens")
    experts: int = Field(
        0, ge=0, le=4096, description="feed-forward networks of each block; 0 is dense"
    )
    active_experts: int = Field(2, ge=1, le=64, description="experts that each token goes to")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width is {self.width}, which is no multiple of 2 x {self.heads} heads"
            )
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads is {self.heads}, which is no multiple of {self.kv_heads} kv_heads"
            )
        if self.experts and self.active_experts > self.experts:
            raise ValueError(
                f"active_experts is {self.active_experts}, more than {self.experts} experts"
            )
        return self

    def __str__(self) -> str:
        """Format the shape as layers by width."""
        return f"{self.layers}x{self.width}"


class Parallel(Strict):
    """How ranks share a model; the product of all is the number of ranks."""

    fsdp: int | None = Field(
        None, ge=1, description="ranks that share parameters and split the batch; unset: the rest"
    )
    tp: int = Field(1, ge=1, description="ranks that share each matrix, by DTensor")
    pp: int = Field(1, ge=1, description="stages of a pipeline")
    ep: int = Field(1, ge=1, description="ranks that share the experts, and split the batch")
    cp: int = Field(1, ge=1, description="ranks that share each sequence")

    def __str__(self) -> str:
        """Format the degrees that are set: "tp 2, pp 2"."""
        return ", ".join(
            f"{name} {degree}" for name, degree in self.model_dump(exclude_defaults=True).items()
        )


def _seconds(value: object) -> float:
    """Return the seconds of 120s, 5m or a plain number."""
    text = str(value)
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        seconds = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 7 * 86_400:
        raise ValueError(
            f"must be a time above 0 and up to 7 days, such as 120s or 5m, is {text!r}"
        )
    return seconds


class Interrupt(Strict):
    """Kill a rank on purpose; the training resumes from its checkpoint."""

    after: Annotated[str | float, AfterValidator(_seconds)] = Field(
        description="time from the first step: 120s, 5m"
    )
    node: str = Field("random", description="the node whose first rank is killed, or `random`")

    @property
    def seconds(self) -> float:
        """The seconds after the first step."""
        return float(self.after)


class DecoderOptions(Strict):
    """Options of `model: llama` alone."""

    size: Annotated[
        Annotated[Literal["debug", "150m", "1b", "3b", "8b", "70b", "405b"], Tag("name")]
        | Annotated[DecoderShape, Tag("shape")],
        Discriminator(lambda size: "shape" if isinstance(size, dict | DecoderShape) else "name"),
    ] = Field("debug", description="a shape of Llama 3, or one of your own")
    sequence: int = Field(4096, ge=2, le=10_000_000, description="tokens of a sequence")
    parallel: Parallel = Field(Parallel(), description="how the ranks share the model")
    activation_checkpointing: bool = Field(
        False, description="compute activations again, to save memory"
    )
    tokens: str | None = Field(
        None,
        description="a file of 32 bit little-endian tokens on every node; synthetic when unset",
    )
    replays: int = Field(
        0, ge=0, le=1000, description="steps that each rank trains alone, three times, to compare"
    )
    digest_every: int = Field(
        0, ge=0, description="steps between comparisons of what ranks share; 0: never"
    )
    checkpoint_dir: str | None = Field(
        None, description="a directory, shared or of each node; unset: no checkpoints"
    )
    checkpoint_every: int = Field(
        0, ge=0, description="steps between checkpoints; 0: one after the last step"
    )
    checkpoint_async: bool = Field(False, description="write while the training goes on")
    interrupt: tuple[Interrupt, ...] = Field(
        (), description="ranks to kill, to measure the goodput"
    )
    hang_s: float = Field(300, gt=0, description="seconds after which a step hangs")

    def decoder_conditions(self) -> Conditions:
        """Return the conditions that affect speed, besides batch and precision."""
        conditions: Conditions = {"sequence": self.sequence}
        if str(self.parallel):
            conditions["parallel"] = str(self.parallel)
        if self.activation_checkpointing:
            conditions["activation_checkpointing"] = True
        return conditions

    def decoder_problem(self) -> str | None:
        """Return why the options do not fit together; None if they do."""
        if self.interrupt and not self.checkpoint_dir:
            return "interrupt needs checkpoint_dir, from which the training goes on"
        if (self.checkpoint_every or self.checkpoint_async) and not self.checkpoint_dir:
            return "checkpoints need checkpoint_dir; without it none is written"
        if self.interrupt and not self.checkpoint_every:
            return "interrupt needs checkpoint_every, or every step before it is lost"
        return None
