"""What a cluster file says about the machine that seatrial runs on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from seatrial.config.platform import PlatformSettings
from seatrial.platforms.baremetal.config import legal_folder
from seatrial.platforms.openssh import PathText

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster


class ThisMachinePlatform(PlatformSettings):
    """The machine that seatrial runs on, as it is, or the container that it runs in: one node."""

    uses_host_software: ClassVar[bool] = True

    kind: Literal["this-machine"] = Field(description="the machine that seatrial runs on")
    folder: Annotated[str, AfterValidator(legal_folder)] = Field(
        "/tmp", description="where a run makes its private folder; programs must be allowed to run there"
    )
    python: PathText | None = Field(
        None, description="with torch: a name on PATH or a full path; seatrial's own when unset"
    )

    def problems(self, cluster: "Cluster") -> Iterator[str]:
        if cluster.nodes != 1:
            yield f"nodes: must be 1 on platform this-machine, is {cluster.nodes}"
        if cluster.image is not None:
            yield "image: has no use on platform this-machine, which runs the software that is here; leave it out"
        yield from super().problems(cluster)
