"""What a cluster file says about hosts that are up."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from seatrial.config.platform import PlatformSettings
from seatrial.text.hostranges import expand

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster


class BaremetalPlatform(PlatformSettings):
    """Hosts that are already up and reachable over SSH."""

    kind: Literal["baremetal"] = Field(description="hosts that are up")
    hosts: Annotated[tuple[str, ...], AfterValidator(expand)] = Field(
        min_length=1, description="host names, addresses or ranges such as gpu-[01-64], together as many as nodes"
    )
    user: str = Field("root", description="who logs in to them")
    key_file: str = Field("~/.ssh/id_ed25519", description="private key of that user on this machine")

    def problems(self, cluster: "Cluster") -> Iterator[str]:
        if len(self.hosts) != cluster.nodes:
            yield f"nodes: {cluster.nodes} does not match the {len(self.hosts)} hosts of the platform"
        yield from super().problems(cluster)
