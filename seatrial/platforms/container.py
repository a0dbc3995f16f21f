"""What a node's container is on every platform that runs containers: its keys, its rights, its GPUs. Pure."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster
    from seatrial.config.image import Mount, Ulimits

KEYS = "/etc/seatrial"  # where the image's entry point looks for the run's keys
# What sshd as root needs to bind its port, confine itself, become the user who logs in and hand over a terminal, and
# what root needs for files of other owners, as on a shared volume.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT")


def has_amd_gpus(cluster: "Cluster") -> bool:
    """Whether the hardware is AMD's; NVIDIA's or none otherwise."""
    return cluster.hardware.name.startswith("MI")


def capabilities(cluster: "Cluster", devices: Iterable[str], more: Iterable[str] = ()) -> list[str]:
    """Of root in a container with the GPUs of the cluster file and those devices, which pin memory."""
    pinning = ["IPC_LOCK"] if cluster.gpus or tuple(devices) else []
    return list(dict.fromkeys([*CAPABILITIES, *pinning, *more]))


def limits(cluster: "Cluster", own: "Ulimits") -> dict[str, int]:
    """By name. RDMA pins memory, which the default limit of a container forbids."""
    return {**({"memlock": -1} if cluster.gpus else {}), **{str(name): limit for name, limit in own.items()}}


def bind(mount: "Mount") -> str:
    """As most runtimes take it."""
    return f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")


def apptainer_exec(cluster: "Cluster", program: str, binds: Iterable[str]) -> list[str]:
    """What stands before the image; `program` is apptainer or singularity, which have the same options."""
    gpus = ["--rocm" if has_amd_gpus(cluster) else "--nv"] if cluster.gpus else []
    return [program, "exec", *gpus, *(f"--bind={each}" for each in binds)]


def apptainer_image(image: str) -> str:
    """A file as it is; a reference without its tag where it has a digest: Apptainer takes one of both."""
    if image.startswith("/"):
        return image
    bare, at, digest = image.partition("@")
    return "docker://" + (re.sub(r":[^/:]+$", "", bare) + at + digest if at else image)
