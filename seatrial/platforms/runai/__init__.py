"""RunAI, nodes as the pods of one workload by the command runai: settings."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from seatrial.config.cluster import Cluster, Name, PlatformSettings, Seconds
from seatrial.config.yamlfile import further_option, matching

_OWN_OPTIONS = (
    "project|image|workers|gpu-devices-request|slots-per-worker|node-pools|large-shm|command"
    "|extended-resource|capability|no-master|name-prefix|attach|tty|stdin"
)
Resource = Annotated[
    str,
    AfterValidator(
        matching(
            r"[A-Za-z0-9][A-Za-z0-9_./-]{0,252}",
            "a resource of Kubernetes, such as rdma/rdma_shared_device_a",
        )
    ),
]


class RunaiPlatform(PlatformSettings):
    """A RunAI project, by the command `runai` (version 2) of this machine."""

    kind: Literal["runai"] = Field(description="a RunAI project")
    project: Name = Field(description="the project that pays for the nodes")
    framework: Literal["pytorch", "mpi"] = Field(
        "pytorch", description="kind of workload; with `mpi` the launcher is one more pod"
    )
    node_pool: Name | None = Field(None, description="pool of nodes; unset: the project's")
    large_shm: bool = Field(True, description="/dev/shm as large as the node's memory allows")
    extended_resources: dict[Resource, Annotated[int, Field(ge=1, le=1024)]] = Field(
        {}, description="further resources of each node, such as rdma/rdma_shared_device_a: 8"
    )
    capabilities: tuple[Annotated[str, Field(pattern=r"^[A-Z][A-Z_]*$")], ...] = Field(
        ("IPC_LOCK",), description="Linux capabilities"
    )
    args: tuple[
        Annotated[str, AfterValidator(further_option(_OWN_OPTIONS, "--node-type=gh200"))], ...
    ] = Field((), description="further options of submit, such as --node-type=gh200")
    python: str = Field(
        "python3", pattern=r"^[A-Za-z0-9_./+-]+$", description="on the nodes, with torch"
    )
    queue_timeout_s: Seconds = Field(3600, description="seconds until the nodes start")
    start_timeout_s: Seconds = Field(300, description="seconds that started nodes have to answer")
    deadline_s: int = Field(
        4 * 3600,
        ge=60,
        le=7 * 86400,
        description="seconds after which the nodes end by themselves",
    )

    pulls_images: ClassVar[bool] = True

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if cluster.image is None:
            yield "image: is needed, because platform runai starts the nodes from it"
        yield from super().problems(cluster)
