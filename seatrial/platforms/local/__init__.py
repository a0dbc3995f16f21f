"""Nodes as network namespaces on this machine, each with its own real sshd: settings."""

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from seatrial.config.cluster import Cluster, PlatformSettings

# A Linux bridge has up to 1023 ports, but more nodes on one machine would show nothing new
MAX_NODES = 512


class LocalPlatform(PlatformSettings):
    """Network namespaces on this machine, each with its own real sshd."""

    kind: Literal["local"] = Field(description="this machine")
    names: tuple[Annotated[str, Field(pattern=r"^node-(0|[1-9]\d{0,3})$")], ...] = Field(
        (), description="names of the nodes; unset: node-0, node-1 and so on"
    )

    uses_host_software: ClassVar[bool] = True
    injects_faults: ClassVar[bool] = True
    qualifies: ClassVar[bool] = True

    def node_names(self, count: int) -> list[str]:
        return list(self.names) or super().node_names(count)

    def without(self, names: Collection[str], of: Sequence[str]) -> PlatformSettings:
        return self.model_copy(update={"names": tuple(name for name in of if name not in names)})

    def architecture(self, hardware: str, here: str) -> str | None:
        return here if hardware == "cpu" else None

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if cluster.nodes > MAX_NODES:
            yield f"nodes: the local platform takes at most {MAX_NODES}, is {cluster.nodes}"
        if self.names and len(set(self.names)) != cluster.nodes:
            yield (
                f"platform.names: must be {cluster.nodes} different ones, as many as nodes, "
                f"is {len(self.names)}"
            )
        yield from super().problems(cluster)
