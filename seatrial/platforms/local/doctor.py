"""Checks before a run on local nodes: programs, rights, and limits of this machine."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from seatrial.model.reason import Reason

_PROC = Path("/proc")
_NODES_OF_ANY_MACHINE = 16  # so many need no check: the usual limits carry them
PROCESSES_PER_NODE = 8  # at most: its shell and sshd, a session with its shell and probe, a daemon of MPI and a rank
MEMORY_MIB_PER_NODE = 32  # of the same


@dataclass(frozen=True, slots=True)
class HostResource:
    """A resource of this machine: how much nodes need, how much is free, and how to raise it."""

    resource: str
    needed: int
    available: int
    remedy: str


def problems(node_count: int, proc: Path = _PROC) -> list[str]:
    """List limits of this machine that are too low for `node_count` nodes, each with the setting to change."""
    if node_count <= _NODES_OF_ANY_MACHINE:
        return []
    return [
        Reason.of(
            "local-machine-too-small",
            nodes=node_count,
            resource=need.resource,
            needed=need.needed,
            available=need.available,
            remedy=need.remedy,
        )
        for need in _needs(node_count, proc)
        if need.available < need.needed
    ]


def _needs(node_count: int, proc: Path) -> Iterator[HostResource]:
    running = sum(entry.name.isdigit() for entry in proc.iterdir())
    processes = node_count * PROCESSES_PER_NODE
    for setting in ("pid_max", "threads-max"):
        free = _number(proc / "sys/kernel" / setting) - running
        yield HostResource("processes", processes, free, f"sysctl -w kernel.{setting}={_rounded(running + processes)}")
    namespaces = _number(proc / "sys/user/max_net_namespaces")
    yield HostResource(
        "network namespaces",
        node_count + 1,
        namespaces,
        f"sysctl -w user.max_net_namespaces={_rounded(node_count + 1)}",
    )
    yield HostResource("MiB of memory", node_count * MEMORY_MIB_PER_NODE, _available_mib(proc), "use fewer nodes")


def _number(path: Path) -> int:
    """The number in a file of the kernel; without limit where the kernel has no such setting."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 1 << 62


def _available_mib(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 1 << 62


def _rounded(number: int) -> int:
    """The next power of two."""
    return 1 << max(15, (number - 1).bit_length())


_TOOLS = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
}


def missing(also: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Programs and rights that this machine lacks; `also` are further programs, with their packages."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    absent = [(tool, package) for tool, package in (_TOOLS | dict(also)).items() if not shutil.which(tool, path=path)]
    reasons = [Reason.of("local-program-missing", program=tool, package=package) for tool, package in absent]
    return [*reasons] or _namespace_problems()


def _namespace_problems() -> list[str]:
    rootless = ["--user", "--map-root-user"] if os.geteuid() else []
    trial = ["unshare", *rootless, "--net", "--mount", "--uts", "--pid", "--fork", "true"]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    if rootless:
        step = (
            "run as root, or allow user namespaces: sysctl -w user.max_user_namespaces=15000, and where they exist"
            " kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0"
        )
    else:
        step = "run outside a container, or in one with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    return [Reason.of("local-namespaces-forbidden", problem=reason, remedy=step)]
