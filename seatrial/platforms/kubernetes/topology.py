"""The order of the nodes in the hostfile, with their names, addresses and groups. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from seatrial.platforms.kubernetes.plan import Object

# Labels from the widest to the narrowest level; without any, nodes keep the order of the pods.
LEVELS = (
    "topology.kubernetes.io/zone",
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    "network.topology.nvidia.com/accelerator",
    "network.topology.nvidia.com/block",
    # From NVIDIA's GPU feature discovery: the nodes that NVLink connects (NVL72)
    "nvidia.com/gpu.clique",
    "kubernetes.io/hostname",
)


def topology_key(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the topology of a node, as a sort key; levels without a label come first."""
    return tuple(labels.get(level, "") for level in LEVELS)


def topology_groups(labels_by_node: Mapping[str, Mapping[str, str]]) -> dict[str, frozenset[str]]:
    """Return the nodes of each zone, block and so on; the name is the path of label values from the
    widest level.
    """
    members = defaultdict[str, set[str]](set)
    for node, labels in labels_by_node.items():
        for end, level in enumerate(LEVELS[:-1], start=1):  # all levels but the hostname
            if labels.get(level):
                name = "/".join(filter(None, topology_key(labels)[:end]))
                members[name].add(node)
    return {name: frozenset(nodes) for name, nodes in members.items()}


def ordered(
    pods: Iterable[Object], labels_by_node: Mapping[str, Mapping[str, str]]
) -> list[Object]:
    """Return the pods in the order of the hostfile, the head first.

    Pods of nodes without labels are in the order of their indices.
    """

    def place(pod: Object) -> tuple[object, ...]:
        labels = labels_by_node.get(pod["spec"].get("nodeName", ""), {})
        return topology_key(labels), _index(pod)

    return sorted(pods, key=place)


def names(pods: Sequence[Object]) -> list[str]:
    """Return the names of the Kubernetes nodes, by which people cordon them.

    If pods share a node, the names of the pods.
    """
    hosts = [pod["spec"].get("nodeName") for pod in pods]
    is_shared = None in hosts or len(set(hosts)) < len(hosts)
    if is_shared:
        return [pod["metadata"]["name"] for pod in pods]
    return list(map(str, hosts))


def address(pod: Object, *, by_name: bool) -> str:
    """Return the address of a pod for its peers: its IP address, or its name in the cluster's DNS.

    `by_name` asks for the name, which a pod has before it has an address.
    """
    if not by_name:
        return str(pod["status"]["podIP"])
    host = [pod["spec"].get(part) for part in ("hostname", "subdomain")]
    # Pods of a PyTorchJob have neither; each has a Service with the pod's name instead.
    own = host if all(host) else [pod["metadata"]["name"]]
    return ".".join((*own, pod["metadata"]["namespace"], "svc"))


def _index(pod: Object) -> tuple[bool, int]:
    """Return a sort key: the index in a Job, or of a Kubeflow replica with the master before
    workers; equal for pods without one.
    """
    labels = pod["metadata"].get("labels", {})
    worker = labels.get("training.kubeflow.org/replica-type") == "worker"
    in_job = labels.get("batch.kubernetes.io/job-completion-index")
    index = in_job or labels.get("training.kubeflow.org/replica-index") or 0
    return worker, int(index)
