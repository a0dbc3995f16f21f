"""Docker: containers of one host as nodes: settings."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from seatrial.config import image
from seatrial.config.cluster import Cluster, PlatformSettings, Seconds
from seatrial.config.image import FullPath, Ulimits

MAX_NODES = 64  # one host's containers; a bridge network of Docker has 254 addresses or more
Capability = Annotated[str, Field(pattern=r"^[A-Z][A-Z_]{1,40}$")]


def _legal_target(value: str) -> str:
    for own in ("/etc/seatrial", "/run/seatrial", "/root/.ssh"):
        if value == "/" or f"{own}/".startswith(f"{value}/") or value.startswith(f"{own}/"):
            raise ValueError(f"{value!r} hides {own}, which a node needs; choose another folder")
    return value


def _as_text(value: object) -> object:
    """Convert GPUs, written as numbers or UUIDs, to text."""
    return str(value) if type(value) is int else value


Target = Annotated[FullPath, AfterValidator(_legal_target)]
Gpu = Annotated[
    str,
    Field(pattern=r"^(\d{1,4}|(GPU|MIG)-[A-Za-z0-9-]{1,100})$"),
    BeforeValidator(_as_text, json_schema_input_type=int | str),
]


class Mount(image.Mount):
    """A file or folder of the Docker host that every container sees."""

    source: FullPath = Field(description="full path on the machine that runs the container")
    target: Target = Field(description="full path in the containers")


class DockerPlatform(PlatformSettings):
    """Containers on one Docker or Podman host."""

    kind: Literal["docker"] = Field(description="one Docker host")
    host: str | None = Field(
        None,
        pattern=r"^(unix:///|tcp://|ssh://)[A-Za-z0-9_./:@%\[\]-]+$",
        max_length=300,
        description="the daemon; unset: DOCKER_HOST, or docker's context",
    )
    context: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,100}$",
        description="a context of `docker context ls`; not with host",
    )
    network: Literal["own", "host"] = Field(
        "own", description="own: a bridge; host: the host's, for one container"
    )
    gpus: tuple[tuple[Gpu, ...], ...] = Field(
        (), description="GPUs of each container, by index or UUID; unset: in order"
    )
    cdi: bool = Field(False, description="GPUs by CDI, not by the nvidia runtime; AMD's always")
    ipc: Literal["private", "host"] = Field(
        "private", description="host: containers share /dev/shm and IPC of the host"
    )
    shared_memory_gib: float | None = Field(
        None, gt=0, le=4096, description="size of /dev/shm; unset: 16 with GPUs, else 1"
    )
    ulimits: Ulimits = Field(
        default_factory=dict, description="by name; memlock is -1 (unlimited) with GPUs"
    )
    mounts: tuple[Mount, ...] = Field((), description="files and folders that the containers see")
    devices: tuple[FullPath, ...] = Field((), description="beside GPUs, such as /dev/infiniband")
    capabilities: tuple[Capability, ...] = Field(
        (), description="beside those that a node needs, such as SYS_PTRACE"
    )
    start_timeout_s: Seconds = Field(120, description="seconds that started nodes have to answer")
    deadline_s: float = Field(
        4 * 3600,
        ge=60,
        le=7 * 86400,
        description="seconds after which the nodes end by themselves, plus keep_s",
    )

    def architecture(self, hardware: str, here: str) -> str | None:
        return here if hardware == "cpu" else None

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if cluster.image is None:
            yield "image: is required with platform docker: the containers' image"
        if cluster.nodes > MAX_NODES:
            yield f"nodes: one Docker host takes at most {MAX_NODES}, is {cluster.nodes}"
        if self.network == "host" and cluster.nodes > 1:
            yield (
                "platform.network: host takes one container (nodes: 1), as they would share "
                "one address; legal: own"
            )
        if self.host and self.context:
            yield "platform.context: not together with platform.host; leave one of them out"
        if self.ipc == "host" and self.shared_memory_gib:
            yield "platform.shared_memory_gib: not with ipc: host, whose /dev/shm is the host's"
        named = [gpu for gpus in self.gpus for gpu in gpus]
        if self.gpus and len(self.gpus) != cluster.nodes:
            yield (
                f"platform.gpus: needs one list for each of the {cluster.nodes} nodes, has "
                f"{len(self.gpus)}"
            )
        for i, gpus in enumerate(self.gpus):
            if len(gpus) != cluster.gpus:
                yield (
                    f"platform.gpus: node-{i} needs {cluster.gpus} GPUs (gpus_per_node), has "
                    f"{len(gpus)}"
                )
        if twice := next((gpu for gpu in named if named.count(gpu) > 1), None):
            yield (
                f"platform.gpus: GPU {twice} is in two places; each container needs GPUs of its own"
            )
        yield from super().problems(cluster)
