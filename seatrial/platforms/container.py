"""The keys, capabilities, limits and GPUs of a node's container, on every platform with containers.
Pure.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.system.shipped import IMAGES

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster
    from seatrial.config.image import Mount, Ulimits
    from seatrial.remote.ssh import KeyPair

KEYS = "/etc/seatrial"  # where the entry point looks for the run's keys
# The entry point, which any image may have as its command: it travels with the keys.
_ENTRY_FILES = (
    "bin/seatrial-node",
    "bin/seatrial-functions",
    "bin/seatrial-ready",
    "bin/seatrial-session",
    "sshd_config",
)
ENTRY_FILES = tuple(Path(name).name for name in _ENTRY_FILES)
ENTRY_POINT = ["/bin/sh", f"{KEYS}/seatrial-node"]
READY = ["/bin/sh", f"{KEYS}/seatrial-ready"]
KEY_FILES = ("authorized_keys", "id_ed25519", "ssh_host_ed25519_key", "known_hosts")
# What sshd as root needs to bind its port, confine itself, become the user who logs in and hand
# over a terminal, and what root needs for files of other owners, as on a shared volume.
CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
)


def key_files(run_key: "KeyPair", host_key: "KeyPair") -> dict[str, str]:
    """Return the files that the entry point needs, by name.

    All nodes of a run have the same host key: their addresses are not known yet when the keys are
        handed over, and the files of one node would reveal the keys of all anyway.
    """
    texts = (f"{run_key.public}\n", run_key.private, host_key.private, f"* {host_key.public}\n")
    return dict(zip(KEY_FILES, texts, strict=True))


@cache
def entry_files() -> dict[str, str]:
    """Return the entry point and the files that it reads, by name."""
    return {Path(name).name: (IMAGES / "common" / name).read_text() for name in _ENTRY_FILES}


def has_amd_gpus(cluster: "Cluster") -> bool:
    """Return whether the GPUs are AMD's by their name, such as MI300X or AMD Instinct MI210; MIG is
    NVIDIA's.
    """
    return bool(re.search(r"(?<![A-Z0-9])(AMD|MI\d)", cluster.hardware.name.upper()))


def capabilities(cluster: "Cluster", devices: Iterable[str], more: Iterable[str] = ()) -> list[str]:
    """Return the capabilities of root in a container, with IPC_LOCK for GPUs and devices, which pin
    memory.
    """
    pinning = ["IPC_LOCK"] if cluster.gpus or tuple(devices) else []
    return list(dict.fromkeys([*CAPABILITIES, *pinning, *more]))


def limits(cluster: "Cluster", own: "Ulimits") -> dict[str, int]:
    """Return the ulimits by name.

    RDMA pins memory, which the default limit of a container forbids.
    """
    return {
        **({"memlock": -1} if cluster.gpus else {}),
        **{str(name): limit for name, limit in own.items()},
    }


def bind(mount: "Mount") -> str:
    """Return a mount as SOURCE:TARGET[:ro]."""
    return f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")


def apptainer_exec(cluster: "Cluster", program: str, binds: Iterable[str]) -> list[str]:
    """Return the command line to which the image is appended; `program` is apptainer or
    singularity.
    """
    gpus = ["--rocm" if has_amd_gpus(cluster) else "--nv"] if cluster.gpus else []
    return [program, "exec", *gpus, *(f"--bind={each}" for each in binds)]


def apptainer_image(image: str) -> str:
    """Return the image as Apptainer reads it: a file, or a reference with either a tag or a
    digest.
    """
    if image.startswith("/"):
        return image
    bare, at, digest = image.partition("@")
    return "docker://" + (re.sub(r":[^/:]+$", "", bare) + at + digest if at else image)
