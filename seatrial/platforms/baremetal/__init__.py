"""Bare metal, hosts that are up, each with one more sshd for the time of a run: reasons and settings."""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from seatrial.config.cluster import Cluster, PlatformSettings, Seconds
from seatrial.config.image import FullPath, Mount, Ulimits
from seatrial.model.reason import Explanation, register
from seatrial.platforms.openssh import LoginSettings, PathText, SshSettings, legal_path
from seatrial.text.hostlist import expand

REASONS = {
    "baremetal-host-busy": Explanation(
        "{host}: {holder} has it",
        "One run at a time measures a host. The lock is `seatrial.lock` in `platform.folder` on the host.",
        "Wait for that run, or interrupt it. `seatrial reap FILE` ends runs of this machine whose process is gone.",
    ),
    "baremetal-host-failed": Explanation(
        "{host}: {problem}",
        "The login works, and the run's sshd could not be started or ended there.",
        "Run `seatrial doctor FILE`: it lists what each host lacks.",
    ),
    "baremetal-host-lacks": Explanation(
        "{host}: {programs} missing or cannot be run",
        "Programs that a run calls are not on PATH of a login without terminal.",
        "Install openssh-server, openssh-client, awk, coreutils, Python 3 and Open MPI, or what `platform.runtime`"
        " names; `mpi.mpirun` and `platform.python` take a full path.",
        formerly=("baremetal-python-missing",),
    ),
    "baremetal-image-missing": Explanation(
        "{host}: image {image} is not there: {problem}",
        "The container of the run cannot start there yet.",
        "Run `docker pull IMAGE` or `podman pull IMAGE` on the host, after a login to its registry, or copy the .sif"
        " file there; correct `image` in the cluster file.",
    ),
    "baremetal-folder-unusable": Explanation(
        "{host}: {folder} {problem}",
        "A run needs a folder where it may write and run programs, with 100 MiB of space.",
        "Make room, or set `platform.folder` to another folder on the hosts.",
    ),
    "baremetal-hosts-remain": Explanation(
        "{count} of {hosts} hosts not cleared: {problems}; they end the run by themselves at {until}",
        "The run could not be ended there, as the host does not answer, or a process does not end.",
        "Run `seatrial reap FILE` when the hosts answer again.",
    ),
    "baremetal-deadline": Explanation(
        "the hosts ended the run at its deadline (deadline_s: {deadline_s})",
        "The run took longer than `platform.deadline_s`. No node is to blame.",
        "Raise `platform.deadline_s`, or choose a shorter suite.",
    ),
    "baremetal-jump-silent": Explanation(
        "jump host {jump} does not answer: {problem}",
        "This machine has no way to the node, because the jump host before it is gone. The node is not to blame.",
        "Run `ssh JUMP true` on this machine.",
    ),
}

register(REASONS)


def legal_folder(value: str) -> str:
    """Check for a full path without characters that a shell interprets. Raises ValueError."""
    if not re.fullmatch(r"/[A-Za-z0-9_./+-]*", value) or ".." in value.split("/"):
        raise ValueError(f"must be a full path of letters, digits and _ . / + -, without .., is {value!r}")
    return value.rstrip("/") or "/"


def _one_setting_each(value: "dict[str, LoginSettings]") -> "dict[str, LoginSettings]":
    expand(tuple(value))
    return value


class BaremetalPlatform(SshSettings, PlatformSettings):
    """Hosts that are already up and reachable over SSH."""

    kind: Literal["baremetal"] = Field(description="hosts that are up")
    hosts: Annotated[tuple[str, ...], AfterValidator(expand)] = Field(
        min_length=1, description="names, addresses or ranges such as gpu-[01-64]"
    )
    host_settings: Annotated[dict[str, LoginSettings], AfterValidator(_one_setting_each)] = Field(
        {}, description="login to some hosts, by host or range: {gpu-[09-16]: {port: 2222}}"
    )
    folder: Annotated[str, AfterValidator(legal_folder)] = Field(
        "/tmp", description="where a run makes its folder; not mounted noexec"
    )
    python: Annotated[str, AfterValidator(legal_path)] = Field("python3", description="on the nodes, with torch")
    runtime: Literal["none", "docker", "podman", "apptainer", "singularity"] = Field(
        "none",
        description="what starts `image`; devices and ulimits need docker or podman",
    )
    mounts: tuple[Mount, ...] = Field((), description="files and folders that the containers see")
    devices: tuple[FullPath, ...] = Field((), description="beside GPUs, such as /dev/infiniband")
    ulimits: Ulimits = Field(
        default_factory=dict,
        description="by name; memlock is -1 (unlimited) with GPUs",
    )
    container_python: Annotated[str, AfterValidator(legal_path)] = Field(
        "python3", description="in the containers, with torch"
    )
    pull_timeout_s: Seconds = Field(1800, description="seconds until an image is pulled")
    start_timeout_s: Seconds = Field(60, description="seconds that started nodes have to answer")
    deadline_s: Annotated[int, Field(ge=10, le=7 * 86400)] = Field(
        4 * 3600, description="seconds after which the nodes end by themselves"
    )

    pulls_images: ClassVar[bool] = True
    takes_image_files: ClassVar[bool] = True

    @property
    def has_daemon(self) -> bool:
        """Whether a daemon (docker, podman) knows the containers by name."""
        return self.runtime in ("docker", "podman")

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if len(self.hosts) != cluster.nodes:
            yield f"nodes: {cluster.nodes} does not match the {len(self.hosts)} hosts of the platform"
        for host in sorted(set(expand(tuple(self.host_settings))) - set(self.hosts)):
            yield f"platform.host_settings: {host} is not one of hosts"
        for name in ("mounts", "devices", "ulimits"):
            if getattr(self, name) and not (self.has_daemon or (name == "mounts" and self.runtime != "none")):
                yield f"platform.{name}: has no use with platform.runtime {self.runtime}; leave it out"
        image = cluster.image.planned if cluster.image else None
        if self.runtime == "none":
            if cluster.image is not None:
                yield "platform.runtime: must say what starts the image: docker, podman, apptainer or singularity"
        elif image is None:
            yield f"image: is required with platform.runtime {self.runtime}"
        elif self.has_daemon and cluster.image_is_a_file:
            yield f"image: {self.runtime} starts a reference such as repo/name:tag, is {image!r}"
        elif not self.has_daemon and not image.endswith(".sif"):
            yield f"image: {self.runtime} starts a .sif file on the hosts, is {image!r}"
        yield from super().problems(cluster)


class ThisMachinePlatform(PlatformSettings):
    """The machine or container that seatrial runs on: one node."""

    uses_host_software: ClassVar[bool] = True

    kind: Literal["this-machine"] = Field(description="the machine that seatrial runs on")
    folder: Annotated[str, AfterValidator(legal_folder)] = Field(
        "/tmp", description="where a run makes its folder; not mounted noexec"
    )
    python: PathText | None = Field(None, description="with torch; seatrial's own when unset")

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if cluster.nodes != 1:
            yield f"nodes: must be 1 on platform this-machine, is {cluster.nodes}"
        if cluster.image is not None:
            yield "image: has no use on platform this-machine, which runs the software that is here; leave it out"
        yield from super().problems(cluster)
