"""The hostfile's nodes: their order, in which neighbours in the network are neighbours in the ring, and names. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from seatrial.platforms.kubernetes.plan import Object

# From the widest to the narrowest; clusters that have none of them keep the order of the pods.
LEVELS = (
    "topology.kubernetes.io/zone",
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    "network.topology.nvidia.com/accelerator",
    "network.topology.nvidia.com/block",
    "kubernetes.io/hostname",
)


def place(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Where a node is, as something to sort by."""
    return tuple(labels.get(level, "") for level in LEVELS)


def ordered(pods: Iterable[Object], places: Mapping[str, Mapping[str, str]]) -> list[Object]:
    """The pods as the hostfile has their nodes, the head first. `places` are the labels of every node, by name."""
    return sorted(pods, key=lambda pod: (place(places.get(pod["spec"].get("nodeName", ""), {})), _index(pod)))


def names(pods: Sequence[Object]) -> list[str]:
    """Nodes are called as Kubernetes calls them, because that is whom one cordons; pods that share one, as the pod."""
    hosts = [pod["spec"].get("nodeName") for pod in pods]
    shared = None in hosts or len(set(hosts)) < len(hosts)
    return [pod["metadata"]["name"] for pod in pods] if shared else [str(host) for host in hosts]


def address(pod: Object, *, by_name: bool) -> str:
    """Where its peers reach a pod: its IP address, or its name in the cluster's DNS."""
    if not by_name:
        return str(pod["status"]["podIP"])
    host = [pod["spec"].get(part) for part in ("hostname", "subdomain")]
    # The pods of a PyTorchJob have none; each has a Service instead, which is called as the pod.
    own = host if all(host) else [pod["metadata"]["name"]]
    return ".".join((*own, pod["metadata"]["namespace"], "svc"))


_INDEX = "batch.kubernetes.io/job-completion-index"


def _index(pod: Object) -> tuple[bool, int]:
    """A Job's index, or a Kubeflow replica's: the master, then the workers."""
    labels = pod["metadata"].get("labels", {})
    worker = labels.get("training.kubeflow.org/replica-type") == "worker"
    return worker, int(labels.get(_INDEX) or labels.get("training.kubeflow.org/replica-index") or 0)
