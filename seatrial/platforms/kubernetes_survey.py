"""The draft of a cluster file for a Kubernetes cluster."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from seatrial.model.errors import InputError, SeatrialError
from seatrial.platforms.drafts import (
    MOST_NODES,
    Choose,
    Draft,
    Seen,
    Site,
    hardware_fields,
    open_fields,
)

if TYPE_CHECKING:
    from seatrial.platforms.kubernetes.api import Api

_PRODUCT = "nvidia.com/gpu.product"
_AMD_PRODUCT = "amd.com/gpu.product-name"
_GKE = "cloud.google.com/gke-accelerator"
_INSTANCE = "node.kubernetes.io/instance-type"
# NICs of a p5, the most of any machine; a plugin offers a shared device at least 63 times
_NICS = 32
_NOT_OF_A_SITE = re.compile(
    r"(nvidia|amd)\.com/gpu|node\.kubernetes\.io/|kubernetes\.io/arch|cloud\.google\.com/impend"
)
_CONTROL = "node-role.kubernetes.io/control-plane"
_TOPOLOGY = re.compile(
    r"(cloud\.google\.com/gce-topology|topology\.k8s\.aws/|network\.topology\.nvidia\.com/)"
)
_FABRICS = {  # from the clouds' lists of machine types
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


@dataclass(frozen=True, slots=True)
class _Offer:
    """What nodes of one kind have in common: GPUs per node, and label values that name them, "" if
    a node lacks the label.
    """

    gpus: int
    product: str
    amd_product: str
    accelerator: str
    instance: str


def kubernetes(choose: Choose, site: Site) -> Draft:
    """Draft the largest group of equal GPU nodes in the kubeconfig's context.

    Raises MissingError or LaunchError if the cluster does not answer, and InputError if no node can
    take pods.
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
    offers = _offers(ready)
    if not offers:
        raise InputError(
            f"kubernetes: none of the nodes of {current or 'the cluster'} is ready for pods"
        )
    offer, alike = max(offers.items(), key=_all_gpus)
    nodes = alike[:MOST_NODES]
    family = _family(offer)
    fabric = _FABRICS.get(family) or _FABRICS.get(offer.instance)
    draft = {
        "name": Seen(current or "kubernetes"),
        "nodes": Seen(len(nodes), f"ready nodes of this kind: {len(nodes)} of {len(ready)}"),
        **hardware_fields(offer.gpus, offer.product or offer.amd_product or offer.accelerator),
        **open_fields(len(nodes), fabric, _image(nodes)),
    }
    if current:  # inside a pod there is no context
        draft["platform.context"] = Seen(current)
    draft["platform.namespace"] = Seen(settings.namespace)
    draft |= _submitted(api, choose, nodes)
    selected = _label(offer)
    is_family = family != "generic"
    kinds_with_gpus = sum(bool(each.gpus) for each in offers)
    if is_family:
        draft["platform.machine"] = Seen(family)
    elif selected and kinds_with_gpus > 1:
        draft["platform.node_selector"] = Seen(selected, "the cluster has other GPU nodes too")
    return draft | _of_nodes(nodes, is_family)


def _kubeconfig(context: str | None) -> tuple[str | None, str]:
    """Return the name and the namespace of the context; the name is None inside a pod, without a
    kubeconfig.
    """
    from kubernetes import config

    with suppress(config.ConfigException, OSError, ValueError, TypeError, KeyError):
        contexts, active = config.list_kube_config_contexts(os.environ.get("KUBECONFIG") or None)
        chosen = next((each for each in contexts if each["name"] == context), active)
        return str(chosen["name"]), str(chosen["context"].get("namespace") or "default")
    return context, "default"


def _offers(nodes: Sequence[Any]) -> dict[_Offer, list[Any]]:
    """Return the nodes by what they offer, except those of the control plane without GPUs."""
    offers: dict[_Offer, list[Any]] = defaultdict(list)
    for node in nodes:
        offer = _offer(node)
        keys = [taint["key"] for taint in node["spec"].get("taints", ())]
        if _CONTROL not in keys or offer.gpus:
            offers[offer].append(node)
    return offers


def _all_gpus(group: tuple[_Offer, list[Any]]) -> tuple[int, int]:
    """Return a sort key by size: the number of GPUs in the group, then of nodes."""
    offer, nodes = group
    return offer.gpus * len(nodes), len(nodes)


def _offer(node: Any) -> _Offer:
    """Return what a node offers; a GPU count that is not a number counts as 0."""
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
        amd_product=str(labels.get(_AMD_PRODUCT, "")),
        accelerator=str(labels.get(_GKE, "")),
        instance=str(labels.get(_INSTANCE, "")),
    )


def _label(offer: _Offer) -> dict[str, str]:
    """Return the most specific label that selects the nodes, or {}."""
    labels = (
        (_PRODUCT, offer.product),
        (_AMD_PRODUCT, offer.amd_product),
        (_GKE, offer.accelerator),
        (_INSTANCE, offer.instance),
    )
    for key, value in labels:
        if value:
            return {key: value}
    return {}


def _family(offer: _Offer) -> str:
    """Return the machine family with that accelerator and number of GPUs; "generic" without one."""
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
    """Return a seatrial image, by tag, that the nodes have already pulled; None if there
    is none.
    """
    for node in nodes:
        for image in node["status"].get("images") or ():
            for name in map(str, image.get("names") or ()):
                if "seatrial" in name and "@" not in name:
                    return name
    return None


def _submitted(api: "Api", choose: Choose, nodes: Sequence[Any]) -> Draft:
    """Return the fields for launcher, queue and topology, depending on what the cluster serves.

    `choose` picks one of the queues. Without a queue there is no topology.
    """
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
    with suppress(SeatrialError):  # without Kueue, or without the right to list queues
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
    """Return the fields for tolerations, and for fabric devices that every node offers.

    Taints that are common at all sites are left out. Of shared devices, which are offered more
    often than a node has NICs, one is requested.
    """
    from seatrial.platforms.kubernetes.pod import is_fabric

    draft = {}
    taints = {
        (taint["key"], taint.get("value") or "", taint["effect"])
        for node in nodes
        for taint in node["spec"].get("taints", ())
        if taint["effect"] != "PreferNoSchedule" and not _NOT_OF_A_SITE.match(taint["key"])
    }
    if taints:
        tolerations = []
        for key, value, effect in sorted(taints):
            toleration = {"key": key, "operator": "Exists", "effect": effect}
            if value:
                toleration = {"key": key, "operator": "Equal", "value": value, "effect": effect}
            tolerations.append(toleration)
        draft["platform.tolerations"] = Seen(tolerations)
    offered = [node["status"].get("allocatable", {}) for node in nodes]
    devices = {}
    for name in sorted(filter(is_fabric, offered[0])):
        counts = [str(each.get(name, "0")) for each in offered]
        if all(re.fullmatch(r"\d{1,6}", count) for count in counts):
            devices[name] = min(map(int, counts))
    resources = {name: count if count <= _NICS else 1 for name, count in devices.items() if count}
    if resources and not is_family:
        counted = [f"{count} {name}" for name, count in devices.items()]
        note = f"the nodes offer {', '.join(counted[:8])}"
        draft["platform.resources"] = Seen(resources, note)
    return draft
