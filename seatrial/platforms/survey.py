"""Read what a site has, as the draft of a cluster file: a Kubernetes cluster, Slurm, RunAI.

Names from the site are bounded and checked when the draft is read as a cluster file; what it has
not, is not asked for.
"""

import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from seatrial.catalog import usual_gpus
from seatrial.config.cluster import THIS_MACHINE
from seatrial.model.errors import InputError, MissingError, SeatrialError
from seatrial.platforms.drafts import IMAGE, Choose, Draft, Seen, Site, hardware_fields, open_fields
from seatrial.platforms.hosts_survey import baremetal, docker, local, machine

if TYPE_CHECKING:
    from seatrial.platforms.kubernetes.api import Api
    from seatrial.platforms.slurm.login import Login

_MOST = 10_000  # nodes that a cluster file takes
_PRODUCT = "nvidia.com/gpu.product"
_GKE = "cloud.google.com/gke-accelerator"
_INSTANCE = "node.kubernetes.io/instance-type"
_NICS = 32  # of p5; a plugin offers a device that pods share 63 times and more
_NOT_OF_A_SITE = re.compile(
    r"(nvidia|amd)\.com/gpu|node\.kubernetes\.io/|kubernetes\.io/arch|cloud\.google\.com/impend"
)
_CONTROL = "node-role.kubernetes.io/control-plane"
_TOPOLOGY = re.compile(
    r"(cloud\.google\.com/gce-topology|topology\.k8s\.aws/|network\.topology\.nvidia\.com/)"
)
_FABRICS = {  # as the clouds' lists of machine types have it
    "a3-mega": "GPUDirect-TCPXO",
    "a3-megagpu-8g": "GPUDirect-TCPXO",
    "a3-ultra": "RoCE-8x400G",
    "a4": "RoCE-8x400G",
    "p4d.24xlarge": "EFA-400G",
    "p4de.24xlarge": "EFA-400G",
    "p5.48xlarge": "EFA-3200G",
    "p5e.48xlarge": "EFA-3200G",
    "p5en.48xlarge": "EFA-3200G",
    "p6-b200.48xlarge": "EFA-3200G",
    "Standard_ND96isr_H100_v5": "IB-8x400G",
    "Standard_ND96isr_H200_v5": "IB-8x400G",
    "Standard_ND96asr_v4": "IB-8x200G",
    "Standard_ND96amsr_A100_v4": "IB-8x200G",
}
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
    """Return whether somebody has set a cluster up here; a kubeconfig that does not work is
    reported, not skipped.
    """
    from seatrial.platforms.kubernetes.api import connect

    listed = os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = map(os.path.expanduser, listed.split(os.pathsep))
    if site.context or any(map(os.path.isfile, paths)):
        return True
    try:
        connect(None)  # inside a pod
    except MissingError:
        return False
    return True


# --- Kubernetes


@dataclass(frozen=True, slots=True)
class _Offer:
    """What nodes of one kind have in common."""

    gpus: int
    product: str
    accelerator: str
    instance: str


def kubernetes(choose: Choose, site: Site) -> Draft:
    """Draft the largest group of equal GPU nodes of the kubeconfig's context.

    Raises MissingError, LaunchError.
    """
    from seatrial.platforms.kubernetes.api import NODE, Api
    from seatrial.platforms.kubernetes.config import KubernetesPlatform
    from seatrial.platforms.kubernetes.plan import true_condition

    current, usual = _kubeconfig(site.context)
    settings = KubernetesPlatform(
        kind="kubernetes", context=site.context, namespace=site.namespace or usual
    )
    api = Api(settings)
    ready = [
        node
        for node in api.list(NODE)
        if true_condition(node, "Ready") and not node["spec"].get("unschedulable")
    ]
    offers: dict[_Offer, list[Any]] = defaultdict(list)
    for node in ready:
        offer = _offer(node)
        keys = [taint["key"] for taint in node["spec"].get("taints", ())]
        if _CONTROL not in keys or offer.gpus:
            offers[offer].append(node)
    if not offers:
        raise InputError(
            f"kubernetes: none of the nodes of {current or 'the cluster'} is ready for pods"
        )

    def all_gpus(offer: _Offer) -> tuple[int, int]:
        count = len(offers[offer])
        return offer.gpus * count, count

    offer = max(offers, key=all_gpus)
    nodes = offers[offer][:_MOST]
    family = _family(offer)
    fabric = _FABRICS.get(family) or _FABRICS.get(offer.instance)
    draft = {
        "name": Seen(current or "kubernetes"),
        "nodes": Seen(len(nodes), f"ready nodes of this kind: {len(nodes)} of {len(ready)}"),
        **hardware_fields(offer.gpus, offer.product or offer.accelerator),
        **open_fields(len(nodes), fabric, _image(nodes)),
        **({"platform.context": Seen(current)} if current else {}),
        "platform.namespace": Seen(settings.namespace),
        **_submitted(api, choose, nodes),
    }
    labels = ((_PRODUCT, offer.product), (_GKE, offer.accelerator), (_INSTANCE, offer.instance))
    selected = next(({key: value} for key, value in labels if value), {})
    is_family = family != "generic"
    kinds_with_gpus = sum(bool(each.gpus) for each in offers)
    if is_family:
        draft["platform.machine"] = Seen(family)
    elif selected and kinds_with_gpus > 1:
        draft["platform.node_selector"] = Seen(selected, "the cluster has other GPU nodes too")
    return draft | _of_nodes(nodes, is_family)


def _kubeconfig(context: str | None) -> tuple[str | None, str]:
    """Return the name and namespace of the context; no name inside a pod."""
    from kubernetes import config

    with suppress(config.ConfigException, OSError, ValueError, TypeError, KeyError):
        contexts, active = config.list_kube_config_contexts(os.environ.get("KUBECONFIG") or None)
        chosen = next((each for each in contexts if each["name"] == context), active)
        return str(chosen["name"]), str(chosen["context"].get("namespace") or "default")
    return context, "default"


def _offer(node: Any) -> _Offer:
    offered = node["status"].get("allocatable", {})
    gpus = 0
    for name in ("nvidia.com/gpu", "amd.com/gpu"):
        count = str(offered.get(name, "0"))
        if re.fullmatch(r"\d{1,4}", count):
            gpus = max(gpus, int(count))
    labels = node["metadata"].get("labels", {})
    return _Offer(
        gpus,
        product=str(labels.get(_PRODUCT, "")),
        accelerator=str(labels.get(_GKE, "")),
        instance=str(labels.get(_INSTANCE, "")),
    )


def _family(offer: _Offer) -> str:
    from seatrial.platforms.kubernetes.config import KubernetesPlatform
    from seatrial.platforms.kubernetes.machines import MACHINES

    names = get_args(KubernetesPlatform.model_fields["machine"].annotation)
    fits = (
        name
        for name in names
        if offer.accelerator and MACHINES[name].accelerator == offer.accelerator
    )
    return next((name for name in fits if MACHINES[name].gpus == offer.gpus), "generic")


def _image(nodes: Sequence[Any]) -> str | None:
    """Return an image of seatrial's that the nodes have."""
    for node in nodes:
        for image in node["status"].get("images") or ():
            for name in map(str, image.get("names") or ()):
                if "seatrial" in name and "@" not in name:
                    return name
    return None


def _submitted(api: "Api", choose: Choose, nodes: Sequence[Any]) -> Draft:
    """Return launcher, queue and topology."""
    from seatrial.platforms.kubernetes.api import UnknownKindError
    from seatrial.platforms.kubernetes.config import KubernetesPlatform
    from seatrial.platforms.kubernetes.kueue import LOCAL_QUEUE
    from seatrial.platforms.kubernetes.launchers import LAUNCHERS

    there = []
    for name in get_args(KubernetesPlatform.model_fields["launcher"].annotation):
        with suppress(UnknownKindError):
            api.knows(LAUNCHERS[name].kind)
            there.append(name)
    draft = {
        "platform.launcher": Seen(
            "jobset" if "jobset" in there else "job", f"the cluster has {', '.join(there)}"
        )
    }
    queues: list[str] = []
    with suppress(SeatrialError):  # Kueue is not there, or its queues may not be listed
        queues = sorted(str(queue["metadata"]["name"]) for queue in api.list(LOCAL_QUEUE))
    if not queues:
        return draft
    draft["platform.queue"] = Seen(
        choose("platform.queue", queues), f"there are {', '.join(queues[:8])}"
    )
    levels = sorted(
        {
            key
            for node in nodes
            for key in node["metadata"].get("labels", {})
            if _TOPOLOGY.match(key)
        }
    )
    if levels:
        note = f"labels of the nodes: {', '.join(levels[:8])}"
        draft["platform.topology"] = Seen({"preferred": levels[0]}, note, unset=True)
    return draft


def _of_nodes(nodes: Sequence[Any], is_family: bool) -> Draft:
    """Return the taints to tolerate, and the fabric's devices that every node offers."""
    from seatrial.platforms.kubernetes.pod import is_fabric

    draft = {}
    taints = {
        (taint["key"], taint.get("value") or "", taint["effect"])
        for node in nodes
        for taint in node["spec"].get("taints", ())
        if taint["effect"] != "PreferNoSchedule" and not _NOT_OF_A_SITE.match(taint["key"])
    }
    if taints:
        tolerations = [
            {"key": key, "operator": "Equal", "value": value, "effect": effect}
            if value
            else {"key": key, "operator": "Exists", "effect": effect}
            for key, value, effect in sorted(taints)
        ]
        draft["platform.tolerations"] = Seen(tolerations)
    offered = [node["status"].get("allocatable", {}) for node in nodes]
    devices = {
        name: min(int(each.get(name, 0)) for each in offered)
        for name in sorted(offered[0])
        if is_fabric(name)
        and all(re.fullmatch(r"\d{1,6}", str(each.get(name, "0"))) for each in offered)
    }
    resources = {name: count if count <= _NICS else 1 for name, count in devices.items() if count}
    if resources and not is_family:
        counted = [f"{count} {name}" for name, count in devices.items()]
        note = f"the nodes offer {', '.join(counted[:8])}"
        draft["platform.resources"] = Seen(resources, note)
    return draft


# --- Slurm


@dataclass(slots=True)
class _Partition:
    """A partition: usable nodes by (GPUs of a node, type of GPU)."""

    is_default: bool
    limit: str
    most: int
    nodes: dict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))

    @property
    def largest(self) -> tuple[int, str]:
        return max(self.nodes, key=self._all_gpus)

    def _all_gpus(self, gres: tuple[int, str]) -> tuple[int, int]:
        gpus, _ = gres
        count = self.nodes[gres]
        return gpus * count, count


def slurm(choose: Choose, site: Site) -> Draft:
    """Draft the largest group of equal nodes of a partition. Raises MissingError, LaunchError."""
    from seatrial.platforms.slurm import SlurmPlatform, seconds
    from seatrial.platforms.slurm.login import login_of

    if len(site.hosts) > 1:
        raise InputError("--host: Slurm needs one login node")
    host = site.hosts[0] if site.hosts else None
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
    nodes = min(nodes_up, partition.most, _MOST)
    draft = {
        "name": Seen(host.partition(".")[0] if host else "slurm"),
        "nodes": Seen(nodes, f"nodes of this kind that are up: {nodes_up}"),
        **hardware_fields(gpus, kind),
        **open_fields(nodes, None, None),
        "platform.partition": Seen(name, f"there are {', '.join(order[:8])}"),
    }
    if host:
        draft["platform.host"] = Seen(host)
    with suppress(ValueError):  # infinite
        if seconds(partition.limit) < seconds(SlurmPlatform(kind="slurm").time_limit):
            draft["platform.time_limit"] = Seen(partition.limit, "the partition's own")
    runtime = _container_runtime(login)
    draft["image"] = Seen(IMAGE, unset=True)
    draft["platform.runtime"] = Seen(
        runtime or "pyxis", "found here" if runtime else "", unset=True
    )
    return draft


def _container_runtime(login: "Login") -> str | None:
    """Return what starts containers where jobs are submitted: Pyxis, Apptainer or Singularity."""
    with suppress(SeatrialError):
        if "--container-image" in login.run(["srun", "--help"], timeout_s=20):
            return "pyxis"
    for name in ("apptainer", "singularity"):
        with suppress(SeatrialError):
            login.run(["sh", "-c", f"command -v {name}"], timeout_s=20)
            return name
    return None


def _partitions(lines: Sequence[str]) -> dict[str, _Partition]:
    """Parse the rows of sinfo; what is down, drained or no row is left out."""
    partitions: dict[str, _Partition] = {}
    for line in lines[:100_000]:
        cells = line.strip().split("|", 6)
        if len(cells) != 7:
            continue
        name, available, count, state, limit, sizes, gres = cells
        if available != "up" or not count.isdecimal() or not _UP.fullmatch(state):
            continue
        largest = sizes.rpartition("-")[2]
        most = int(largest) if largest.isdecimal() else _MOST
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
    """Draft a project's nodes, whose number and kind RunAI does not show.

    Raises MissingError, LaunchError.
    """
    from seatrial.platforms.runai import RunaiPlatform
    from seatrial.platforms.runai.platform import Client

    client = Client(RunaiPlatform(kind="runai", project="none"))

    def listed(kind: str) -> list[str]:
        output = client.run(["runai", kind, "list", "--json"])
        return list(_names(output))

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
    """Yield the names of a list in JSON, whose schema differs between versions; those that no field
    takes are left.
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
    """Return the draft with the usual GPUs of its hardware where their number was neither seen nor
    asked for.
    """
    hardware = draft.get("hardware", Seen(None)).value
    if not isinstance(hardware, str) or hardware == "cpu" or "gpus_per_node" in draft:
        return draft
    return {**draft, "gpus_per_node": Seen(usual_gpus(hardware) or 1, "as many as are usual")}
