"""A cluster file: what is checked, and where it runs.

A platform is one package: it has its settings model, its `platform` has `platform(cluster)`, which
returns what fulfils `seatrial.platforms.Platform`.
"""

import re
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from seatrial.catalog import hardware_of, known_hardware, unknown_fabric
from seatrial.config import PLATFORMS
from seatrial.config.faults import Fault, fault_problems
from seatrial.config.image import ImageField, ImageFile, Recipe
from seatrial.config.notify import Notify
from seatrial.config.qualify import Qualify
from seatrial.config.upload import Address
from seatrial.config.yamlfile import Strict, load_yaml, matching, no_boolean
from seatrial.model.errors import InputError
from seatrial.system.extensions import loaders, usable
from seatrial.system.shipped import example
from seatrial.text.addresses import legal_network

NodePath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./+-]{1,254}$")]
THIS_MACHINE = "this-machine"
AMD_MODELS = "/sys/class/drm/renderD*/device/product_name"  # an APU of AMD has no such file
DEFAULT_PORT = 222
Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(no_boolean)]
Nodes = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(no_boolean)]
Gpus = Annotated[int, Field(ge=0, le=1024), BeforeValidator(no_boolean)]
Seconds = Annotated[float, Field(gt=0, le=7 * 86400)]
Slots = Annotated[int, Field(ge=1, le=1024), BeforeValidator(no_boolean)]
# The strictest of the platforms' rules (a Kubernetes label, less room for suffixes), so one name
# serves everywhere.
_legal_name = matching(
    r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?",
    "1 to 40 of a-z, 0-9 and '-', with a letter or digit at both ends",
)
Name = Annotated[str, AfterValidator(_legal_name)]


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be printable text on one line")
    return value


ShownName = Annotated[str, Field(min_length=1, max_length=63), AfterValidator(_printable)]


def this_machine() -> dict[str, Any]:
    """Return the content of a cluster file for this machine and its GPUs.

    Raises InputError if nvidia-smi is installed and fails.
    """
    words = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    # The host's name, so that machines with one history do not mix
    content = {
        "name": words[:40].rstrip("-") or THIS_MACHINE,
        "nodes": 1,
        "platform": {"kind": THIS_MACHINE},
    }
    models = _gpu_models()
    if not models:
        # A single rank exchanges no data
        return {**content, "hardware": "cpu", "slots_per_node": 2}
    hardware = hardware_of(models[0]) or {"name": models[0][:63]}
    return {**content, "hardware": hardware, "gpus_per_node": len(models)}


def _gpu_models() -> list[str]:
    argv = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True)
    except FileNotFoundError:
        return [Path(name).read_text().strip() or "AMD" for name in sorted(glob(AMD_MODELS))]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        problem = f"nvidia-smi does not answer ({type(error).__name__}); see what it prints"
        raise InputError(
            f"{THIS_MACHINE}: {problem}, or write a cluster file with hardware: cpu"
        ) from error
    # At most as many as a node may have
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()][:1024]


def _legal_env(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise ValueError(
                f"{key!r} is no name of an environment variable: letters, digits and _ are legal"
            )
        if "\0" in text or "\n" in text:
            raise ValueError(f"the value of {key} must be one line of text")
        if re.match(r"(OMPI|PRTE|PMIX)_MCA_", key):
            _not_expanded(text)
    return value


def _not_expanded(value: str) -> str:
    """Check that a shell does not expand the value, since mpirun passes it through one.

    mpirun starts its daemons through a shell on every other node, with the parameters of its
    command line and environment between double quotes: what a shell expands or ends there would run
    as a command.
    """
    if match := re.search(r"[$`\"\\\x00-\x1f\x7f]", value):
        raise ValueError(
            f"{value!r} must not hold {match[0]!r}: mpirun hands it to a shell on every node, "
            "which would expand it; "
            'legal is all but $, `, ", \\ and control characters'
        )
    return value


Environment = Annotated[dict[str, str], AfterValidator(_legal_env)]
MpiWord = Annotated[str, AfterValidator(_not_expanded)]
Network = Annotated[MpiWord, AfterValidator(legal_network)]


class Hardware(Strict):
    """Hardware that the catalog lacks.

    The two rates bound what busbw can be: GB/s (1e9 bytes) and one direction, per GPU inside a node
    and per node between nodes.
    """

    name: ShownName = Field(description="its name")
    gpus_per_node: int | None = Field(None, ge=0, le=1024, description="GPUs that a node has")
    gpu_link_gb_s: float | None = Field(
        None, gt=0, description="GB/s in one direction that a GPU's links inside the node carry"
    )
    node_link_gb_s: float | None = Field(
        None, gt=0, description="GB/s in one direction that a node's NICs carry together"
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


class Mpi(Strict):
    """Call of mpirun on the head node."""

    mpirun: str = Field("mpirun", min_length=1, description="a name on PATH or a full path")
    interface: Network | None = Field(None, description="network (CIDR) or interface that MPI uses")
    args: tuple[MpiWord, ...] = Field((), description="further arguments, each as it is")


class Schedule(Strict):
    """When `seatrial serve` checks the cluster; its options win."""

    suite: str = Field(
        "nightly", min_length=1, description="a shipped suite, or the path of a suite file"
    )
    cron: str = Field("0 2 * * *", description="minute, hour, day, month, weekday")
    timezone: str | None = Field(None, description="such as Europe/Berlin; unset: the machine's")


class Isolate(Strict):
    """Taking nodes out of service: cordon and taint on Kubernetes, drain on Slurm.

    At most a third of the nodes are. `seatrial release CLUSTER NODE` undoes it.
    """

    confidence: float = Field(0.95, ge=0.5, le=1, description="least confidence of a suspect")
    dry_run: bool = Field(True, description="say by which command, and change nothing")


class PlatformSettings(Strict):
    """The platform's section of a cluster file, and properties that the rest of seatrial uses."""

    kind: str
    # Nodes take their image from a registry, so what is built needs a repository
    pulls_images: ClassVar[bool] = False
    # Nodes run the software of this machine, not that of an image
    uses_host_software: ClassVar[bool] = False
    takes_image_files: ClassVar[bool] = False  # nodes may start an image that is a file
    injects_faults: ClassVar[bool] = False
    isolates: ClassVar[bool] = False  # its scheduler can take nodes out of service
    qualifies: ClassVar[bool] = False  # nodes of it can be tested beside jobs

    def architecture(self, hardware: str, here: str) -> str | None:
        """Return the nodes' architecture (amd64, arm64) if the platform decides it; `here` is this
        machine's.
        """
        return None

    def secret_variables(self) -> tuple[str, ...]:
        """Return the environment variables of the nodes whose values are secret."""
        return ()

    def problems(self, cluster: "Cluster") -> Iterator[str]:
        """Yield conflicts with the rest of the cluster file; each begins with the field to
        change.
        """
        if self.pulls_images and cluster.builds_without_repository:
            yield f"image: needs a repository, from which the nodes of platform {self.kind} pull it"
        if cluster.image_is_a_file and not self.takes_image_files:
            takers = "slurm and baremetal"
            yield (
                f"image: a file is only for platforms {takers}; {self.kind} takes a reference "
                "such as repo/name:tag"
            )
        if cluster.faults and not self.injects_faults:
            yield "faults: are only for platform local; no real cluster is broken on purpose"
        if cluster.isolate and not self.isolates:
            yield f"isolate: is only for platforms kubernetes and slurm, not {self.kind}"
        if cluster.qualify and not self.qualifies:
            yield (
                "qualify: is only for platforms kubernetes, slurm, baremetal and local, not "
                f"{self.kind}"
            )

    def node_names(self, count: int) -> list[str]:
        """Return the names of `count` nodes where the platform does not give them others."""
        return [f"node-{i}" for i in range(count)]

    def without(self, names: Collection[str], of: Sequence[str]) -> "PlatformSettings | None":
        """Return the settings without the nodes `names`, out of all nodes `of`; None if the
        platform cannot choose its nodes.
        """
        return None

    def moving_parts(self) -> list[str]:
        """Return the provider's versions and names that a run uses and the cluster file can
        replace, for `doctor`.
        """
        return []

    @classmethod
    def own_module(cls, name: str) -> Any:
        """Import a module of the model's package: `platform`, which brings nodes up, `isolate` or
        `service`.
        """
        return import_module(f"{sys.modules[cls.__module__].__package__}.{name}")


def _accepted(kind: str, model: Any) -> Any:
    """Return the settings of another package's platform. Raises ValueError."""
    if not issubclass(model, PlatformSettings) or get_args(
        model.model_fields["kind"].annotation
    ) != (kind,):
        raise ValueError(f"must be PlatformSettings whose field kind is Literal[{kind!r}]")
    return model


# After PlatformSettings, which they import; a kind of seatrial's own stays.
PLATFORMS.update({**loaders("seatrial.platforms", _accepted), **PLATFORMS})


class SettingsByKind(Mapping[str, type[PlatformSettings]]):
    """Annotation of a field that takes the settings of any platform; only the model of the kind
    given is imported.
    """

    def __getitem__(self, kind: str) -> type[PlatformSettings]:
        model: type[PlatformSettings] = PLATFORMS[kind]()
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(PLATFORMS)

    def __len__(self) -> int:
        return len(PLATFORMS)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        choices: dict[Any, CoreSchema] = {
            kind: core_schema.no_info_plain_validator_function(partial(_read, kind))
            for kind in self
        }
        return core_schema.tagged_union_schema(
            choices,
            "kind",
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda value, write: write(value),
                schema=core_schema.any_schema(),  # as the value's own model says
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        models: Any = Union[tuple(usable(PLATFORMS).values())]  # noqa: UP007
        return handler(TypeAdapter(Annotated[models, Field(discriminator="kind")]).core_schema)


def _read(kind: str, value: Any) -> Any:
    return PLATFORMS[kind]().model_validate(value)


class Cluster(Strict):
    """The cluster to check: how many nodes of which hardware, on which platform."""

    name: Name = Field(
        description="what history, reports and alerts call it: 1 to 40 of a-z, 0-9 and '-'"
    )
    nodes: Nodes = Field(description="how many take part; local takes at most 512")
    gpus_per_node: Gpus = Field(0, description="GPUs of each node that take part; 0: all")
    slots_per_node: Slots | None = Field(
        None, description="MPI ranks per node; unset: one per GPU, else 1"
    )
    hardware: Annotated[
        Hardware, BeforeValidator(_read_hardware, json_schema_input_type=str | Hardware)
    ] = Field(
        Hardware.model_construct(name="cpu"),
        description="a name of `seatrial baseline list`, or a description",
    )
    fabric: ShownName | None = Field(
        None,
        description="what joins the nodes: a name of `seatrial baseline list --fabrics`, or IB-8x200G",
    )
    platform: Annotated[PlatformSettings, SettingsByKind()] = Field(description="where it runs")
    image: ImageField = Field(
        None,
        description="a reference, a .sqsh or .sif file, or what to build (docs/images.md)",
    )
    ssh_port: Port = Field(DEFAULT_PORT, description="of every node's sshd")
    mpi: Mpi = Field(Mpi.model_construct(), description="how mpirun is called")
    nccl_tests: NodePath | None = Field(
        None,
        description="folder of nccl-tests on the nodes; unset: PATH and the usual ones",
    )
    env: Environment = Field(
        default_factory=dict, description="environment of every rank, such as NCCL settings"
    )
    faults: tuple[Fault, ...] = Field((), description="what is broken on purpose; local nodes only")
    upload: Address | None = Field(
        None, description="URL of a folder for the files of runs, such as gs://bucket/logs"
    )
    keep: Literal["never", "on_failure", "always"] = Field(
        "never", description="whether nodes stay up after a run"
    )
    keep_s: Seconds = Field(2 * 3600, description="seconds that they stay up")
    isolate: Isolate | None = Field(None, description="takes nodes that a run names out of service")
    qualify: Qualify | None = Field(
        None, description="tests nodes beside the jobs of the cluster (docs/qualify.md)"
    )
    schedule: Schedule = Field(
        Schedule.model_construct(), description="when `seatrial serve` checks it"
    )
    notify: Notify = Field(
        Notify.model_construct(), description="who hears of it, and how (docs/alerts.md)"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Yield what does not fit together; each begins with the field to change."""
        hardware = self.hardware
        if hardware.name == "cpu" and self.gpus_per_node:
            yield f"gpus_per_node: {self.gpus_per_node} needs hardware that has GPUs, not cpu"
        if hardware.name != "cpu" and not (self.gpus_per_node or hardware.gpus_per_node):
            yield f"gpus_per_node: is required with hardware {hardware.name}"
        if self.fabric and not hardware.node_link_gb_s and (unknown := unknown_fabric(self.fabric)):
            yield f"fabric: {unknown}"
        yield from self.platform.problems(self)
        yield from (
            f"faults: {problem}" for problem in fault_problems(self.faults, self.node_names())
        )

    def node_names(self) -> list[str]:
        """Return the names nodes have when the platform does not give them others."""
        return self.platform.node_names(self.nodes)

    def at(self, elapsed_s: float) -> "Cluster":
        """Return the cluster at a time of the campaign: without the faults that begin later."""
        return self.model_copy(
            update={"faults": tuple(f for f in self.faults if f.minute * 60 <= elapsed_s)}
        )

    def without(self, names: Collection[str]) -> "Cluster | None":
        """Return the cluster without those nodes; None if its platform cannot leave nodes out, or
        no node is left.
        """
        platform = self.platform.without(names, self.node_names())
        if platform is None or len(names) >= self.nodes:
            return None
        faults = tuple(fault for fault in self.faults if not set(fault.nodes) & set(names))
        return self.model_copy(
            update={"nodes": self.nodes - len(names), "platform": platform, "faults": faults}
        )

    @property
    def builds_without_repository(self) -> bool:
        """Whether its image is built, and nothing says which registry takes it."""
        return isinstance(self.image, Recipe) and not self.image.repository

    @property
    def image_is_a_file(self) -> bool:
        """Whether its image is a file on the nodes, which only some container runtimes can
        start.
        """
        return isinstance(self.image, ImageFile)

    @property
    def kept_s(self) -> float:
        """Seconds that nodes may stay up after a run."""
        return 0 if self.keep == "never" else self.keep_s

    @property
    def gpus(self) -> int:
        """GPUs per node."""
        return self.gpus_per_node or self.hardware.gpus_per_node or 0

    @property
    def slots(self) -> int:
        """MPI ranks per node."""
        return self.slots_per_node or max(1, self.gpus)


def load_cluster(path: Path) -> Cluster:
    """Read a cluster file, also a shipped one by its path below deployments/clusters.

    `this-machine`, where no file is called so, needs none.
    Raises InputError with one line that names file, field and what is legal.
    """
    if str(path) == THIS_MACHINE and not path.exists():
        return Cluster.model_validate(this_machine())
    return load_yaml(example(path), Cluster, {"name": path.stem.lower().replace("_", "-")})
