"""The container that a host starts for a run: its runtime's command line, around the shell that starts sshd. Pure."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from seatrial.config.cluster import Cluster
from seatrial.config.image import Mount
from seatrial.config.run import Run
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.container import (
    apptainer_exec,
    apptainer_image,
    bind,
    capabilities,
    has_amd_gpus,
    limits,
)


@dataclass(frozen=True, slots=True)
class Container:
    """What a host is told of it.

    `command` is followed by the arguments of sh. `name` is by what docker and podman know it, and `user` who logs in
    there; both are empty where it is but processes of the user.
    """

    program: str
    image: str
    command: tuple[str, ...]
    name: str = ""
    user: str = ""

    def request(self) -> dict[str, object]:
        """For the program on the host."""
        return asdict(self)


def container_name(settings: BaremetalPlatform, run_id: str) -> str:
    """Empty where nobody knows it by one."""
    return f"seatrial-{run_id}" if settings.has_daemon else ""


def container_of(run: Run, settings: BaremetalPlatform, folder: str) -> Container | None:
    """`folder` is that of the run on the host, which the container sees at the same place; None without runtime."""
    cluster, program, image = run.cluster, settings.runtime, run.nodes_image
    if program == "none":
        return None
    if settings.has_daemon:
        name, options = container_name(settings, run.run_id), _options(cluster, settings, folder)
        command = (program, "run", f"--name={name}", *options, image)
        return Container(program, image, command, name, user="root")
    binds = [f"{folder}:{folder}", *map(bind, settings.mounts)]
    return Container(program, image, (*apptainer_exec(cluster, program, binds), apptainer_image(image), "sh"))


def _options(cluster: Cluster, settings: BaremetalPlatform, folder: str) -> Iterator[str]:
    """An image of ours would start another sshd by itself, so the shell is started in place of its entry point."""
    yield from ("--rm", "--interactive", "--pull=never", "--network=host", "--ipc=host", "--uts=host")
    yield from ("--user=0", "--entrypoint=sh", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    yield from (f"--cap-add={name}" for name in capabilities(cluster, settings.devices))
    yield from (f"--ulimit={name}={limit}:{limit}" for name, limit in limits(cluster, settings.ulimits).items())
    yield f"--volume={folder}:{folder}"
    yield from map(_mount, settings.mounts)
    yield from (f"--device={path}" for path in settings.devices)
    yield from _gpus(cluster, settings)


def _mount(mount: Mount) -> str:
    """Unlike --volume it makes no folder where the source is not there."""
    return f"--mount=type=bind,source={mount.source},target={mount.target}" + (",readonly" if mount.read_only else "")


def _gpus(cluster: Cluster, settings: BaremetalPlatform) -> tuple[str, ...]:
    """All of the host: docker has an option for NVIDIA's, podman knows them by CDI, AMD's are devices like others."""
    if not cluster.gpus:
        return ("--env=NVIDIA_VISIBLE_DEVICES=void",)  # images of NVIDIA's ask for all of them
    if has_amd_gpus(cluster):
        return "--device=/dev/kfd", "--device=/dev/dri"
    return ("--gpus=all",) if settings.runtime == "docker" else ("--device=nvidia.com/gpu=all",)


def by_hand(container: Container) -> str:
    """A script that starts it as the host does; for people to read."""
    words = " \\\n    ".join(map(shlex.quote, container.command[1:]))
    return f"#!/bin/sh\nexec {container.program} {words} -s <node.sh\n"
