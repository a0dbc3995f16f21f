"""What a cluster file says about a Slurm cluster."""

from typing import ClassVar, Literal

from pydantic import Field

from seatrial.config.platform import PlatformSettings


class SlurmPlatform(PlatformSettings):
    """A Slurm cluster, submitted to from a login node (`host`) or from here."""

    kind: Literal["slurm"] = Field(description="a Slurm cluster")
    host: str | None = Field(None, description="login node; commands run here when unset")
    partition: str | None = Field(None, description="--partition")
    account: str | None = Field(None, description="--account")
    qos: str | None = Field(None, description="--qos")
    time_limit: str = Field("01:00:00", description="--time, after which Slurm ends the nodes")
    container: str | None = Field(None, description="image for pyxis (--container-image)")

    pulls_images: ClassVar[bool] = True
