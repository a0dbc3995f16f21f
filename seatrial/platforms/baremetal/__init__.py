"""Settings of bare metal: hosts that are up, on each of which a run starts one more sshd."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from seatrial.config.cluster import Cluster, PlatformSettings, Seconds
from seatrial.config.image import FullPath, Mount, Ulimits
from seatrial.platforms.openssh import LoginSettings, PathText, SshSettings
from seatrial.text.hostlist import expand


def legal_folder(value: str) -> str:
    """Return a full path without a trailing slash.

    Raises ValueError if it has characters that a shell interprets, or contains `..`.
    """
    if not re.fullmatch(r"/[A-Za-z0-9_./+-]*", value) or ".." in value.split("/"):
        raise ValueError(
            f"must be a full path of letters, digits and _ . / + -, without .., is {value!r}"
        )
    return value.rstrip("/") or "/"


def _one_setting_each(value: "dict[str, LoginSettings]") -> "dict[str, LoginSettings]":
    """Return the settings unchanged. Raises ValueError if two entries cover the same host."""
    expand(tuple(value))  # raises for a host that occurs twice
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
    python: PathText = Field("python3", description="on the nodes, with torch")
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
    container_python: PathText = Field("python3", description="in the containers, with torch")
    pull_timeout_s: Seconds = Field(1800, description="seconds until an image is pulled")
    start_timeout_s: Seconds = Field(60, description="seconds that started nodes have to answer")
    deadline_s: int = Field(
        4 * 3600,
        ge=10,
        le=7 * 86400,
        description="seconds after which the nodes end by themselves",
    )

    pulls_images: ClassVar[bool] = True
    qualifies: ClassVar[bool] = True
    takes_image_files: ClassVar[bool] = True

    @property
    def has_daemon(self) -> bool:
        """Whether a daemon (docker, podman) knows the containers by name; others end with their
        processes.
        """
        return self.runtime in ("docker", "podman")

    def logins(self) -> dict[str, LoginSettings]:
        """Return the login settings by host; an entry for a range applies to each host in it."""
        return {
            host: login
            for pattern, login in self.host_settings.items()
            for host in expand((pattern,))
        }

    def only(self, hosts: Iterable[str]) -> dict[str, object]:
        """Return the settings `hosts`, in the order given, and `host_settings` for these hosts
        only, one entry per host.
        """
        chosen = tuple(hosts)
        logins = {host: login for host, login in self.logins().items() if host in chosen}
        return {"hosts": chosen, "host_settings": logins}

    def without(self, names: Collection[str], of: Sequence[str]) -> PlatformSettings:
        """Return the settings without the hosts in `names`."""
        return self.model_copy(update=self.only(host for host in self.hosts if host not in names))

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if len(self.hosts) != cluster.nodes:
            yield (
                f"nodes: {cluster.nodes} does not match the {len(self.hosts)} hosts of the platform"
            )
        strangers = set(self.logins()) - set(self.hosts)
        for host in sorted(strangers):
            yield f"platform.host_settings: {host} is not one of hosts"
        for name in ("mounts", "devices", "ulimits"):
            has_use = self.has_daemon or (name == "mounts" and self.runtime != "none")
            if getattr(self, name) and not has_use:
                yield (
                    f"platform.{name}: has no use with platform.runtime {self.runtime}; leave "
                    "it out"
                )
        image = cluster.image.planned if cluster.image else None
        if self.runtime == "none":
            if cluster.image is not None:
                yield (
                    "platform.runtime: must say what starts the image: docker, podman, "
                    "apptainer or singularity"
                )
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
    python: PathText | None = Field(None, description="with torch; unset: seatrial's own")

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if cluster.nodes != 1:
            yield f"nodes: must be 1 on platform this-machine, is {cluster.nodes}"
        if cluster.image is not None:
            yield (
                "image: has no use on platform this-machine, which runs the software that is "
                "here; leave it out"
            )
        yield from super().problems(cluster)
