"""A cluster file: what is checked, and where it runs."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from seatrial.baselines.catalog import known_hardware
from seatrial.builders.config import ImageField, Recipe
from seatrial.destination import Address
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.yamlfile import Strict, load_yaml

DEFAULT_PORT = 222
MAX_LOCAL_NODES = 512  # a Linux bridge takes 1023 ports; past this one machine shows nothing that fewer nodes do not

_PULLING = ("kubernetes", "slurm", "runai")  # platforms whose nodes take their image from a registry

# The strictest of the platforms' rules (a Kubernetes label, less room for suffixes), so one name serves everywhere.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_RATE = re.compile(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)")
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _legal_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("must be 1 to 40 of a-z, 0-9 and '-', with a letter or digit at both ends")
    return value


def _legal_rate(value: str) -> str:
    match = _RATE.fullmatch(value)
    if not match or not 8e3 <= float(match[1]) * _BITS[match[2]] <= 1e12:
        raise ValueError(f"must be a rate as tc writes it, from 8kbit to 1000gbit, such as 200mbit, is {value!r}")
    return value


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):  # YAML reads yes and on as true, and Python counts true as 1
        raise ValueError(f"must be a whole number, is {str(value).lower()}")
    return value


def _legal_env(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        if not _ENV_NAME.fullmatch(key):
            raise ValueError(f"{key!r} is no name of an environment variable: letters, digits and _ are legal")
        if "\0" in text or "\n" in text:
            raise ValueError(f"the value of {key} must be one line of text")
    return value


Name = Annotated[str, AfterValidator(_legal_name)]
Port = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1, le=65535)]
Environment = Annotated[dict[str, str], AfterValidator(_legal_env)]
Nodes = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1, le=10_000)]
Gpus = Annotated[int, BeforeValidator(_no_boolean), Field(ge=0, le=1024)]
KeptSeconds = Annotated[float, Field(gt=0, le=7 * 86400)]
Slots = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1, le=1024)]


class Hardware(Strict):
    """What a node is made of. A name of the catalog is enough; other hardware is described here.

    The two rates bound what busbw can be: GB/s (1e9 bytes) and one direction, per GPU inside a node and per node
    between nodes.
    """

    name: str = Field(min_length=1, max_length=63)
    gpus_per_node: int | None = Field(None, ge=0, le=1024)
    gpu_link_gb_s: float | None = Field(None, gt=0)
    node_link_gb_s: float | None = Field(None, gt=0)


def _read_hardware(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in known_hardware():
        raise ValueError(
            f"unknown hardware {value!r}; known: {', '.join(known_hardware())};"
            " or describe it: {name: ..., gpus_per_node: ...}"
        )
    return {"name": value}


class NodeFault(Strict):
    """Break one node on purpose: its link's rate, its sshd, or the host key it answers with."""

    node: str
    rate: Annotated[str, AfterValidator(_legal_rate)] | None = None
    sshd: Literal["stopped"] | None = None
    host_key: Literal["wrong"] | None = None

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not (self.rate or self.sshd or self.host_key):
            raise ValueError("a fault needs one of rate, sshd, host_key")
        return self

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


class LinkFault(Strict):
    """Cut the path between two nodes; both stay reachable from everywhere else."""

    link: tuple[str, str]
    state: Literal["down"]

    @model_validator(mode="after")
    def _two_ends(self) -> Self:
        if self.link[0] == self.link[1]:
            raise ValueError("a link needs two different nodes")
        return self

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.link


def _fault_kind(fault: object) -> str:
    return "link" if isinstance(fault, LinkFault) or (isinstance(fault, dict) and "link" in fault) else "node"


# Told apart by their field, so that an error speaks of one kind of fault alone.
Fault = Annotated[
    Annotated[NodeFault, Tag("node")] | Annotated[LinkFault, Tag("link")],
    Discriminator(_fault_kind),
]


class LocalPlatform(Strict):
    """Network namespaces on this machine, each with its own real sshd."""

    kind: Literal["local"]


class SlurmPlatform(Strict):
    """A Slurm cluster, submitted to from a login node (`host`) or from here."""

    kind: Literal["slurm"]
    host: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time_limit: str = "01:00:00"
    container: str | None = Field(None, description="image for pyxis (--container-image)")


class RunaiPlatform(Strict):
    """A RunAI project."""

    kind: Literal["runai"]
    project: Name
    node_pool: str | None = None


class DockerPlatform(Strict):
    """Containers on one Docker host."""

    kind: Literal["docker"]
    network: str = "seatrial"


class BaremetalPlatform(Strict):
    """Hosts that are already up and reachable over SSH."""

    kind: Literal["baremetal"]
    hosts: tuple[str, ...] = Field(min_length=1)
    user: str = "root"
    key_file: str = "~/.ssh/id_ed25519"


PlatformConfig = Annotated[
    LocalPlatform | KubernetesPlatform | SlurmPlatform | RunaiPlatform | DockerPlatform | BaremetalPlatform,
    Field(discriminator="kind"),
]


class Mpi(Strict):
    """How mpirun is called on the head node."""

    mpirun: str = Field("mpirun", min_length=1, description="a name on PATH or a full path")
    interface: str | None = Field(
        None, description="network (CIDR) or interface that MPI uses; told by the platform when unset"
    )
    args: tuple[str, ...] = Field((), description="further arguments, as they are")


class Cluster(Strict):
    """What is checked: how many nodes of which hardware, on which platform."""

    name: Name
    nodes: Nodes
    gpus_per_node: Gpus = 0
    slots_per_node: Slots | None = Field(None, description="MPI ranks per node; one per GPU when unset, else 1")
    hardware: Annotated[Hardware, BeforeValidator(_read_hardware)] = Hardware.model_construct(name="cpu")
    fabric: str | None = Field(
        None, description="as in the catalog: NVLink, IB-8x400G, EFA-3200G, GPUDirect-TCPXO, ..."
    )
    platform: PlatformConfig
    image: ImageField = Field(
        None, description="a reference, or what to build (docs/images.md); local and bare metal run without one"
    )
    ssh_port: Port = DEFAULT_PORT
    mpi: Mpi = Mpi.model_construct()
    env: Environment = Field(default_factory=dict, description="environment of every rank, such as NCCL settings")
    faults: tuple[Fault, ...] = ()
    upload: Address | None = Field(None, description="URL of a folder, as fsspec knows it; every run makes one in it")
    keep: Literal["never", "on_failure", "always"] = Field("never", description="leave the nodes up after the run")
    keep_s: KeptSeconds = Field(2 * 3600, description="for so long")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.hardware.name == "cpu" and self.gpus_per_node:
            raise ValueError(f"gpus_per_node: {self.gpus_per_node} needs hardware that has GPUs, not cpu")
        if self.hardware.name != "cpu" and not (self.gpus_per_node or self.hardware.gpus_per_node):
            raise ValueError(f"gpus_per_node: is required with hardware {self.hardware.name}")
        if isinstance(self.platform, BaremetalPlatform) and len(self.platform.hosts) != self.nodes:
            raise ValueError(f"nodes: {self.nodes} does not match the {len(self.platform.hosts)} hosts of the platform")
        if isinstance(self.platform, LocalPlatform) and self.nodes > MAX_LOCAL_NODES:
            raise ValueError(f"nodes: the local platform takes at most {MAX_LOCAL_NODES}, is {self.nodes}")
        if isinstance(self.image, Recipe) and not self.image.repository and self.platform.kind in _PULLING:
            raise ValueError(
                f"image: needs a repository, from which the nodes of platform {self.platform.kind} pull it"
            )
        if self.faults and self.platform.kind != "local":
            raise ValueError("faults: are only for platform local; nobody's real cluster is broken on purpose")
        self._check_fault_nodes()
        return self

    def _check_fault_nodes(self) -> None:
        for name in (name for fault in self.faults for name in fault.nodes):
            if name not in self.node_names():
                raise ValueError(f"faults: unknown node {name!r}; legal: node-0 to node-{self.nodes - 1}")

    def node_names(self) -> list[str]:
        """The names nodes have when the platform does not give them others."""
        return [f"node-{i}" for i in range(self.nodes)]

    @property
    def gpus(self) -> int:
        """GPUs per node."""
        return self.gpus_per_node or self.hardware.gpus_per_node or 0

    @property
    def slots(self) -> int:
        """MPI ranks per node."""
        return self.slots_per_node or max(1, self.gpus)


def load_cluster(path: Path) -> Cluster:
    """Read a cluster file. Raises InputError with one line that names file, field and what is legal."""
    return load_yaml(path, Cluster, {"name": path.stem.lower().replace("_", "-")})
