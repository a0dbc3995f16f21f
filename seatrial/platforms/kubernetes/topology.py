"""The order of nodes in the hostfile: neighbours in the network are neighbours in the ring. Pure."""

from collections.abc import Mapping

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
