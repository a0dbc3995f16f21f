"""The settings of the local platform in a cluster file."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from seatrial.config.cluster import Cluster, PlatformSettings

MAX_NODES = 512  # a Linux bridge takes 1023 ports; past this one machine shows nothing that fewer nodes do not


class LocalPlatform(PlatformSettings):
    """Network namespaces on this machine, each with its own real sshd."""

    kind: Literal["local"] = Field(description="this machine")

    uses_host_software: ClassVar[bool] = True
    injects_faults: ClassVar[bool] = True

    def architecture(self, hardware: str, here: str) -> str | None:
        return here if hardware == "cpu" else None

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if cluster.nodes > MAX_NODES:
            yield f"nodes: the local platform takes at most {MAX_NODES}, is {cluster.nodes}"
        yield from super().problems(cluster)
