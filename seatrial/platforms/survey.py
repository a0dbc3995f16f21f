"""Survey a site for a draft of a cluster file: which platforms exist; details of Slurm and RunAI.

Names from the site are limited and checked when the draft is read as a cluster file. Features that
the site lacks are not asked for.
"""

import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seatrial.catalog import usual_gpus
from seatrial.config.cluster import THIS_MACHINE
from seatrial.model.errors import InputError, MissingError, SeatrialError
from seatrial.platforms.drafts import (
    IMAGE,
    MOST_NODES,
    Choose,
    Draft,
    Seen,
    Site,
    hardware_fields,
    open_fields,
)
from seatrial.platforms.hosts_survey import baremetal, docker, local, machine
from seatrial.platforms.kubernetes_survey import kubernetes

if TYPE_CHECKING:
    from seatrial.platforms.slurm.login import Login

_GPU = re.compile(r"(?:^|,)gpu:(?:([A-Za-z0-9_.-]{1,63}):)?(\d{1,4})(?![\w.-])")
_UP = re.compile(
    r"(idle|mix|mixed|alloc|allocated|comp|completing|resv|reserved|plnd|planned)[~#$@^-]?\+?"
)


def present(site: Site) -> list[str]:
    """Return the kinds of platforms that can be reached from here, the likeliest first."""
    if site.hosts:
        return ["slurm", "baremetal"]
    kinds = []
    if _has_kubeconfig(site):
        kinds.append("kubernetes")
    for kind, command in (("slurm", "sinfo"), ("runai", "runai")):
        if shutil.which(command):
            kinds.append(kind)
    kinds.append(THIS_MACHINE)
    if shutil.which("docker") or os.environ.get("DOCKER_HOST"):
        kinds.append("docker")
    return [*kinds, "local"]


def _has_kubeconfig(site: Site) -> bool:
    """Return whether a Kubernetes cluster is configured here; whether it works is checked later,
    and reported.
    """
    from seatrial.platforms.kubernetes.api import connect

    listed = os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = map(os.path.expanduser, listed.split(os.pathsep))
    if site.context or any(map(os.path.isfile, paths)):
        return True
    try:
        connect(None)  # works inside a pod
    except MissingError:
        return False
    return True


# --- Slurm


@dataclass(slots=True)
class _Partition:
    """A partition: usable nodes by (GPUs per node, type of GPU)."""

    is_default: bool
    limit: str
    most: int
    nodes: dict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))

    @property
    def largest(self) -> tuple[int, str]:
        """The (GPUs per node, type of GPU) with the most GPUs in total."""
        return max(self.nodes, key=lambda gres: (gres[0] * self.nodes[gres], self.nodes[gres]))


def slurm(choose: Choose, site: Site) -> Draft:
    """Draft the largest group of equal nodes of a partition. Raises MissingError, LaunchError."""
    from seatrial.platforms.slurm import SlurmPlatform, seconds
    from seatrial.platforms.slurm.login import login_of

    host = site.one_host("Slurm needs one login node")
    login = login_of(SlurmPlatform(kind="slurm", host=host))
    listed = login.run(
        ["sinfo", "--noheader", "--all", "--format=%P|%a|%D|%t|%l|%s|%G"], timeout_s=60
    )
    partitions = _partitions(listed.splitlines())
    if not partitions:
        raise InputError("slurm: sinfo lists no partition with a node that is up")

    def most_gpus_first(name: str) -> tuple[int, bool, str]:
        gpus, _ = partitions[name].largest
        return -gpus, not partitions[name].is_default, name

    order = sorted(partitions, key=most_gpus_first)
    name = choose("platform.partition", order)
    partition = partitions[name]
    gpus, kind = partition.largest
    nodes_up = partition.nodes[gpus, kind]
    nodes = min(nodes_up, partition.most, MOST_NODES)
    draft = {
        "name": Seen(host.partition(".")[0] if host else "slurm"),
        "nodes": Seen(nodes, f"nodes of this kind that are up: {nodes_up}"),
        **hardware_fields(gpus, kind),
        **open_fields(nodes, None, None),
        "platform.partition": Seen(name, f"there are {', '.join(order[:8])}"),
    }
    if host:
        draft["platform.host"] = Seen(host)
    with suppress(ValueError):  # a limit such as "infinite"
        if seconds(partition.limit) < seconds(SlurmPlatform(kind="slurm").time_limit):
            draft["platform.time_limit"] = Seen(partition.limit, "the partition's own")
    runtime = _container_runtime(login)
    draft["image"] = Seen(IMAGE, unset=True)
    draft["platform.runtime"] = Seen(
        runtime or "pyxis", "found here" if runtime else "", unset=True
    )
    return draft


def _container_runtime(login: "Login") -> str | None:
    """Return the container runtime on the login node, Pyxis, Apptainer or Singularity, or None."""
    with suppress(SeatrialError):
        if "--container-image" in login.run(["srun", "--help"], timeout_s=20):
            return "pyxis"
    for name in ("apptainer", "singularity"):
        with suppress(SeatrialError):
            login.run(["sh", "-c", f"command -v {name}"], timeout_s=20)
            return name
    return None


def _partitions(lines: Sequence[str]) -> dict[str, _Partition]:
    """Parse the rows of sinfo, ignoring nodes that are down or drained, and other lines."""
    partitions: dict[str, _Partition] = {}
    for line in lines[:100_000]:
        cells = line.strip().split("|", 6)
        if len(cells) != 7:
            continue
        name, available, count, state, limit, sizes, gres = cells
        if available != "up" or not count.isdecimal() or not _UP.fullmatch(state):
            continue
        largest = sizes.rpartition("-")[2]
        most = int(largest) if largest.isdecimal() else MOST_NODES
        new = _Partition(name.endswith("*"), limit, most)
        partition = partitions.setdefault(name.rstrip("*"), new)
        gpus = 0
        kind = ""
        if gpu := _GPU.search(gres):
            gpus = int(gpu[2])
            kind = gpu[1] or ""
        partition.nodes[gpus, kind] += int(count[:6])
    return partitions


# --- RunAI


def runai(choose: Choose, site: Site) -> Draft:
    """Draft the nodes of a project; RunAI does not show their number and kind.

    Raises MissingError, LaunchError.
    """
    from seatrial.platforms.runai import RunaiPlatform
    from seatrial.platforms.runai.platform import Client

    client = Client(RunaiPlatform(kind="runai", project="none"))

    def listed(kind: str) -> list[str]:
        return list(_names(client.run(["runai", kind, "list", "--json"])))

    projects = listed("project")
    pools = listed("nodepool")
    if not projects:
        raise InputError(
            "runai: `runai project list` names no project; runai login, or ask for one"
        )
    project = choose("platform.project", projects)
    draft = {
        "name": Seen(project),
        "nodes": Seen(2, is_open=True),
        "hardware": Seen(None, is_open=True),
        **open_fields(2, None, None),
        "platform.project": Seen(project, f"there are {', '.join(projects[:8])}"),
    }
    if pools:
        draft["platform.node_pool"] = Seen(
            pools[0], f"there are {', '.join(pools[:8])}", unset=len(pools) == 1
        )
    return draft


def _names(text: str) -> Iterator[str]:
    """Yield the names in a JSON list, whose schema differs between versions, that are legal in a
    cluster file.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        document = next((value for value in document.values() if isinstance(value, list)), [])
    if not isinstance(document, list):
        return
    for entry in document[:1000]:
        metadata = entry.get("metadata") if isinstance(entry, dict) else None
        holders = [each for each in (entry, metadata) if isinstance(each, dict)]
        name = next((each["name"] for each in holders if isinstance(each.get("name"), str)), "")
        if re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", name):
            yield name


SURVEYS: dict[str, Callable[[Choose, Site], Draft]] = {
    "kubernetes": kubernetes,
    "slurm": slurm,
    "runai": runai,
    "baremetal": baremetal,
    "docker": docker,
    "local": local,
    THIS_MACHINE: machine,
}


def completed(draft: Draft) -> Draft:
    """Return the draft with the usual number of GPUs of its hardware, if the draft lacks the
    number.
    """
    hardware = draft.get("hardware", Seen(None)).value
    if not isinstance(hardware, str) or hardware == "cpu" or "gpus_per_node" in draft:
        return draft
    return {**draft, "gpus_per_node": Seen(usual_gpus(hardware) or 1, "as many as are usual")}
