"""What a cluster file says about one Docker host."""

from typing import Literal

from pydantic import Field

from seatrial.config.platform import PlatformSettings


class DockerPlatform(PlatformSettings):
    """Containers on one Docker host."""

    kind: Literal["docker"] = Field(description="one Docker host")
    network: str = Field("seatrial", description="the Docker network that joins the containers")

    def architecture(self, hardware: str, here: str) -> str | None:
        return here if hardware == "cpu" else None
