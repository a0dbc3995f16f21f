"""Nodes as the steps of one job of Slurm: settings."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from seatrial.config.cluster import Cluster, PlatformSettings, Seconds
from seatrial.config.image import Mount
from seatrial.config.yamlfile import further_option
from seatrial.platforms.openssh import Host, SshSettings
from seatrial.text.hostlist import expand

_PATTERN = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")  # an item of a list such as a[1-3,5],b
_TIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,4})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@:,/+-]*$"
_OWN_OPTIONS = (
    "job-name|nodes|ntasks|ntasks-per-node|time|output|error|parsable|wrap|array|partition|account|qos"
    "|reservation|constraint|nodelist|exclude|switches|gres|gpus|gpus-per-node|requeue|no-requeue|chdir|wait"
)
Name = Annotated[str, Field(pattern=_NAME, max_length=255)]
NodeList = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*$", max_length=10_000)]
Constraint = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_\[(][A-Za-z0-9_.&|*,:()\[\]-]*$", max_length=1000)
]


def _legal_time(value: str) -> str:
    """Return the time unchanged. Raises ValueError if sbatch would reject it."""
    seconds(value)
    return value


def seconds(time_limit: str) -> int:
    """Return the seconds of a time limit as sbatch reads it: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S.

    Raises ValueError.
    """
    match = _TIME.fullmatch(time_limit)
    if not match:
        raise ValueError(
            f'must be as sbatch reads it, such as "01:30:00" or "1-12:00:00", is {time_limit!r}'
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None or len(numbers) == 3:
        hours, minutes, rest = [*numbers, 0, 0][:3]
    else:
        hours = 0
        minutes, rest = [*numbers, 0][:2]
    total = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + rest
    if not 60 <= total <= 30 * 86400:
        raise ValueError(f"must be from one minute to 30 days, is {time_limit!r}")
    return total


def _legal_folder(value: str) -> str:
    """Return the folder unchanged.

    Raises ValueError if it has characters that a shell interprets, or contains `..`.
    """
    is_path = re.fullmatch(r"[A-Za-z0-9_./+-]+", value)
    if not is_path or value.startswith("-") or ".." in value.split("/"):
        raise ValueError(
            f"must be a path of letters, digits and _ . / + -, without .., is {value!r}"
        )
    return value


def expanded(nodes: str) -> tuple[str, ...]:
    """Return the names in a Slurm node list such as a[1-3,5],b. Raises ValueError."""
    return expand(_PATTERN.findall(nodes))


def hosts_in(nodes: str) -> tuple[str, ...]:
    """Return the names in a Slurm node list; empty if it is not one."""
    try:
        return expanded(nodes)
    except ValueError:
        return ()


class SlurmPlatform(SshSettings, PlatformSettings):
    """A Slurm cluster, from this machine or a login node."""

    kind: Literal["slurm"] = Field(description="a Slurm cluster")
    host: Host | None = Field(None, description="login node, as ssh knows it; unset: this machine")
    partition: Name | None = Field(None, description="--partition; Slurm's default when unset")
    account: Name | None = Field(None, description="--account")
    qos: Name | None = Field(None, description="--qos")
    reservation: Name | None = Field(None, description="--reservation")
    constraint: Constraint | None = Field(
        None, description="--constraint: features that nodes must have"
    )
    nodelist: NodeList | None = Field(
        None, description="--nodelist: nodes that must take part, such as gpu-[01-08]"
    )
    exclude: NodeList | None = Field(None, description="--exclude: nodes to leave alone")
    switches: str | None = Field(
        None,
        pattern=r"^[1-9]\d*(@[0-9:-]+)?$",
        description="--switches: most leaf switches, such as 1 or 1@30:00",
    )
    gres: str | None = Field(
        None,
        pattern=r"^[a-z]+(:[A-Za-z0-9_.-]+)*(,[a-z]+(:[A-Za-z0-9_.-]+)*)*$",
        description="--gres, such as gpu:h100:8, in place of --gpus-per-node",
    )
    time_limit: Annotated[str, AfterValidator(_legal_time)] = Field(
        "01:00:00", description="--time, in quotes; longer than the suite"
    )
    args: tuple[Annotated[str, AfterValidator(further_option(_OWN_OPTIONS, "--mem=0"))], ...] = (
        Field((), description="further options of sbatch, such as --mem=0")
    )
    launch: Literal["sshd", "srun"] = Field(
        "sshd", description="what starts ranks; sshd: mpirun over it"
    )
    runtime: Literal["none", "pyxis", "apptainer", "singularity"] = Field(
        "none", description="what starts `image`"
    )
    mounts: tuple[Mount, ...] = Field((), description="files and folders that the containers see")
    modules: tuple[Name, ...] = Field(
        (), description="environment modules that every node loads, such as openmpi/4.1"
    )
    mpi_plugin: Literal["pmix", "pmi2", "none"] = Field(
        "pmix", description="srun --mpi: what nccl-tests was built with"
    )
    output: Annotated[str, AfterValidator(_legal_folder)] | None = Field(
        None, description="existing folder for what the script by hand writes"
    )
    folder: Annotated[str, AfterValidator(_legal_folder)] = Field(
        ".seatrial", description="for the files of runs, shared by all nodes; in the home"
    )
    python: Annotated[str, AfterValidator(_legal_folder)] = Field(
        "python3", description="on the nodes, with torch"
    )
    queue_timeout_s: Seconds = Field(3600, description="seconds until the nodes start")
    start_timeout_s: Seconds = Field(300, description="seconds that started nodes have to answer")

    pulls_images: ClassVar[bool] = True
    isolates: ClassVar[bool] = True
    qualifies: ClassVar[bool] = True
    takes_image_files: ClassVar[bool] = True

    @property
    def time_limit_s(self) -> int:
        """Seconds after which Slurm ends the nodes."""
        return seconds(self.time_limit)

    def without(self, names: Collection[str], of: Sequence[str]) -> PlatformSettings:
        """Return the settings with `names` excluded, also from the nodes that must take part
        (`nodelist`).
        """
        excluded = ",".join([*filter(None, [self.exclude]), *names])
        listed = [node for node in hosts_in(self.nodelist or "") if node not in names]
        return self.model_copy(update={"exclude": excluded, "nodelist": ",".join(listed) or None})

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if self.gres and cluster.hardware.name == "cpu":
            yield "platform.gres: needs hardware that has GPUs"
        for name in ("user", "port", "jump", "key_file", "ssh_config"):
            if getattr(self, name) is not None and self.host is None:
                yield (
                    f"platform.{name}: is for the login on platform.host; name that host, or "
                    "leave it out"
                )
        image = cluster.image.planned if cluster.image else None
        ending = ".sqsh" if self.runtime == "pyxis" else ".sif"
        if self.runtime == "none":
            if image:
                yield (
                    "platform.runtime: must say what starts the image: pyxis, apptainer or "
                    "singularity"
                )
            if self.mounts:
                yield "platform.mounts: are for containers; platform.runtime: none starts none"
        elif image is None:
            yield f"image: is required with platform.runtime {self.runtime}"
        elif cluster.image_is_a_file and not image.endswith(ending):
            yield f"image: {self.runtime} starts a {ending} file or a reference, is {image!r}"
        if cluster.qualify and not (cluster.qualify.qos or cluster.qualify.partition):
            yield (
                "qualify.qos: is required on Slurm, or qualify.partition: one whose jobs may "
                "be preempted"
            )
        yield from super().problems(cluster)
