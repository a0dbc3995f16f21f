"""The size of the model `transformer` in a suite file, and the work that it makes. Pure."""

from typing import Self

from pydantic import Field, model_validator

from seatrial.config.yamlfile import Strict
from seatrial.model.measurement import ConditionValue


class TransformerSize(Strict):
    """The size of the model `transformer`: blocks of attention and a feed-forward network, each token after others."""

    layers: int = Field(6, ge=1, le=256, description="blocks")
    width: int = Field(512, ge=16, le=32_768, description="numbers for each token between blocks; a multiple of heads")
    heads: int = Field(8, ge=1, le=256, description="parts of the width that attend by themselves")
    sequence_length: int = Field(128, ge=2, le=16_384, description="tokens of a sample")
    vocabulary: int = Field(1024, ge=16, le=1_000_000, description="different tokens")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}, which is no multiple of {self.heads} heads")
        return self

    def __str__(self) -> str:
        """As people name it: layers by width."""
        return f"{self.layers}x{self.width}"

    def others(self) -> dict[str, ConditionValue]:
        """What `str` leaves out, where it is not the default."""
        fields = type(self).model_fields
        names = ("heads", "sequence_length", "vocabulary")
        return {name: getattr(self, name) for name in names if getattr(self, name) != fields[name].default}

    def flops(self) -> float:
        """Of one sample, forward and backward: twice the weights and the attention for each token, three times."""
        weights = 12 * self.layers * self.width**2 + self.width * self.vocabulary
        attention = 2 * self.layers * self.width * self.sequence_length
        return 3.0 * 2 * (weights + attention) * self.sequence_length
