"""What a cluster file says about a RunAI project."""

from typing import ClassVar, Literal

from pydantic import Field

from seatrial.config.names import Name
from seatrial.config.platform import PlatformSettings


class RunaiPlatform(PlatformSettings):
    """A RunAI project."""

    kind: Literal["runai"] = Field(description="a RunAI project")
    project: Name = Field(description="the project that pays for the nodes")
    node_pool: str | None = Field(None, description="the pool that nodes come from; the project's when unset")

    pulls_images: ClassVar[bool] = True
