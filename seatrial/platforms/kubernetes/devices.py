"""What nodes offer and pods ask for besides GPUs: devices of the fabric, such as RDMA interfaces. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.machines import gpu_resource, machine
from seatrial.platforms.kubernetes.plan import Object

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

# Words in the names of such resources: rdma/hca_shared_devices_a and rdma/ib of NVIDIA's shared device plugin,
# nvidia.com/mlnxnics and nvidia.com/hostdev of its network operator, vpc.amazonaws.com/efa, openshift.io/sriov_ib.
_FABRIC_WORDS = frozenset({"rdma", "hca", "ib", "infiniband", "roce", "mlnxnics", "hostdev", "efa", "sriov"})
_MAX_NAMED = 4


def limits(cluster: "Cluster", settings: KubernetesPlatform) -> dict[str, str]:
    """The limits of a node's container, which are its requests as well: GPUs, and what the cluster file asks for."""
    gpus = {gpu_resource(cluster): str(cluster.gpus)} if cluster.gpus else {}
    return {**gpus, **{name: str(quantity) for name, quantity in settings.resources.items()}}


def is_fabric(resource: str) -> bool:
    """Whether a resource is, by its name, a device that nodes reach each other by."""
    return "/" in resource and bool(_FABRIC_WORDS & set(re.split(r"[^a-z0-9]+", resource.lower())))


def not_requested(nodes: Iterable[Object], cluster: "Cluster", settings: KubernetesPlatform) -> str | None:
    """The devices of the fabric that `nodes` offer and a run of GPUs does without; None where it lacks none.

    Google's machines have their RDMA by networks or claims of the machine family.
    """
    if cluster.nodes < 2 or not cluster.gpus or machine(settings.machine).accelerator:
        return None
    offered: dict[str, int] = {}
    for node in nodes:
        for resource, count in _devices(node["status"].get("allocatable", {})).items():
            offered[resource] = max(offered.get(resource, 0), count)
    if not offered or offered.keys() & settings.resources.keys():
        return None
    devices = ", ".join(f"{name} ({count:,} per node)" for name, count in sorted(offered.items())[:_MAX_NAMED])
    return Reason.of("fabric-device-not-requested", devices=devices)


def _devices(allocatable: Mapping[str, str]) -> dict[str, int]:
    """The devices of the fabric that a node has left to give; their counts are whole numbers."""
    return {
        name: int(count) for name, count in allocatable.items() if is_fabric(name) and count.isdigit() and int(count)
    }
