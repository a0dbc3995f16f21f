"""A cluster file: what is checked, and where it runs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, Union

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from seatrial.catalog import known_hardware
from seatrial.config.destination import Address
from seatrial.config.faults import Fault
from seatrial.config.image import ImageField, ImageFile, Recipe
from seatrial.config.names import Name, ShownName
from seatrial.config.notify import Notify
from seatrial.config.platform import PlatformSettings, settings_models
from seatrial.config.this_machine import THIS_MACHINE, this_machine
from seatrial.config.yamlfile import Strict, load_yaml

DEFAULT_PORT = 222

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# mpirun starts its daemons through a shell on every other node, with the parameters of its command line and environment
# between double quotes: what a shell expands or ends there would run as a command.
_EXPANDED_BETWEEN_QUOTES = re.compile(r"[$`\"\\\x00-\x1f\x7f]")
_MPI_VARIABLE = re.compile(r"(OMPI|PRTE|PMIX)_MCA_")


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
        if _MPI_VARIABLE.match(key):
            _not_expanded(text)
    return value


def _not_expanded(value: str) -> str:
    """What mpirun can hand to the other nodes as it is."""
    if match := _EXPANDED_BETWEEN_QUOTES.search(value):
        raise ValueError(
            f"{value!r} must not hold {match[0]!r}: mpirun hands it to a shell on every node, which would expand it; "
            'legal is all but $, `, ", \\ and control characters'
        )
    return value


Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(_no_boolean)]
Environment = Annotated[dict[str, str], AfterValidator(_legal_env)]
MpiWord = Annotated[str, AfterValidator(_not_expanded)]
Nodes = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_no_boolean)]
Gpus = Annotated[int, Field(ge=0, le=1024), BeforeValidator(_no_boolean)]
KeptSeconds = Annotated[float, Field(gt=0, le=7 * 86400)]
Slots = Annotated[int, Field(ge=1, le=1024), BeforeValidator(_no_boolean)]


class Hardware(Strict):
    """What a node is made of. A name of the catalog is enough; other hardware is described here.

    The two rates bound what busbw can be: GB/s (1e9 bytes) and one direction, per GPU inside a node and per node
    between nodes.
    """

    name: ShownName = Field(description="as in `seatrial baseline list`, or a name of its own")
    gpus_per_node: int | None = Field(None, ge=0, le=1024, description="GPUs that a node has")
    gpu_link_gb_s: float | None = Field(
        None, gt=0, description="GB/s (1e9 bytes) in one direction that a GPU's links inside the node carry"
    )
    node_link_gb_s: float | None = Field(
        None, gt=0, description="GB/s (1e9 bytes) in one direction that a node's NICs carry together"
    )


def _read_hardware(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in known_hardware():
        raise ValueError(
            f"unknown hardware {value!r}; known: {', '.join(known_hardware())};"
            " or describe it: {name: ..., gpus_per_node: ...}"
        )
    return {"name": value}


if TYPE_CHECKING:
    PlatformConfig = PlatformSettings
else:
    PlatformConfig = Annotated[Union[tuple(settings_models().values())], Field(discriminator="kind")]  # noqa: UP007


class Mpi(Strict):
    """How mpirun is called on the head node."""

    mpirun: str = Field("mpirun", min_length=1, description="a name on PATH or a full path")
    interface: MpiWord | None = Field(
        None, description="network (CIDR) or interface that MPI uses; told by the platform when unset"
    )
    args: tuple[MpiWord, ...] = Field((), description="further arguments, each as it is; no shell expands them")


class Cluster(Strict):
    """What is checked: how many nodes of which hardware, on which platform."""

    name: Name = Field(description="what history, reports and alerts call it: 1 to 40 of a-z, 0-9 and '-'")
    nodes: Nodes = Field(description="how many take part; local takes at most 512")
    gpus_per_node: Gpus = Field(0, description="GPUs of each node that take part; hardware.gpus_per_node when 0")
    slots_per_node: Slots | None = Field(None, description="MPI ranks per node; one per GPU when unset, else 1")
    hardware: Annotated[Hardware, BeforeValidator(_read_hardware, json_schema_input_type=str | Hardware)] = Field(
        Hardware.model_construct(name="cpu"), description="a name that `seatrial baseline list` knows, or what it is"
    )
    fabric: ShownName | None = Field(
        None, description="what joins the nodes, as in the catalog: NVLink, IB-8x400G, EFA-3200G, GPUDirect-TCPXO, ..."
    )
    platform: PlatformConfig = Field(description="where it runs")
    image: ImageField = Field(
        None,
        description="a reference, a .sqsh or .sif file (Slurm, bare metal), or what to build (docs/images.md)",
    )
    ssh_port: Port = Field(DEFAULT_PORT, description="of every node's sshd")
    mpi: Mpi = Field(Mpi.model_construct(), description="how mpirun is called")
    env: Environment = Field(default_factory=dict, description="environment of every rank, such as NCCL settings")
    faults: tuple[Fault, ...] = Field((), description="what is broken on purpose; platform local only")
    upload: Address | None = Field(
        None, description="URL of a folder, as fsspec knows it (gs://bucket/logs); every run makes one in it"
    )
    keep: Literal["never", "on_failure", "always"] = Field("never", description="whether nodes stay up after a run")
    keep_s: KeptSeconds = Field(2 * 3600, description="seconds that they stay up")
    notify: Notify = Field(Notify.model_construct(), description="who hears of it, and how (docs/alerts.md)")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.hardware.name == "cpu" and self.gpus_per_node:
            raise ValueError(f"gpus_per_node: {self.gpus_per_node} needs hardware that has GPUs, not cpu")
        if self.hardware.name != "cpu" and not (self.gpus_per_node or self.hardware.gpus_per_node):
            raise ValueError(f"gpus_per_node: is required with hardware {self.hardware.name}")
        for problem in self.platform.problems(self):
            raise ValueError(problem)
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
    def builds_without_repository(self) -> bool:
        """Whether its image is built, and nothing says which registry takes it."""
        return isinstance(self.image, Recipe) and not self.image.repository

    @property
    def image_is_a_file(self) -> bool:
        """Whether its image is a file on the nodes, which only some container runtimes can start."""
        return isinstance(self.image, ImageFile)

    @property
    def gpus(self) -> int:
        """GPUs per node."""
        return self.gpus_per_node or self.hardware.gpus_per_node or 0

    @property
    def slots(self) -> int:
        """MPI ranks per node."""
        return self.slots_per_node or max(1, self.gpus)


def load_cluster(path: Path) -> Cluster:
    """Read a cluster file; `this-machine`, where no file is called so, needs none.

    Raises InputError with one line that names file, field and what is legal.
    """
    if str(path) == THIS_MACHINE and not path.exists():
        return Cluster.model_validate(this_machine())
    return load_yaml(path, Cluster, {"name": path.stem.lower().replace("_", "-")})
