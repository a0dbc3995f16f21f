"""The section `training` of a suite file."""

from pydantic import Field

from seatrial.config.yamlfile import Strict


class Training(Strict):
    """A small transformer on synthetic data, data parallel over every rank."""

    steps: int = Field(30, ge=4, le=100_000, description="optimizer steps")
    batch_per_rank: int = Field(8, ge=1, le=4096, description="sequences per rank and step")
    min_loss_drop: float = Field(0.2, gt=0, lt=1, description="fraction of the first loss that training must take off")
    timeout_s: float = Field(300, gt=0, description="seconds for the whole training")
