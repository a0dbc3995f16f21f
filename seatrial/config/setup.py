"""The facts of a cluster file that references are keyed by."""

from seatrial.config.cluster import Cluster
from seatrial.model.setup import Setup


def setup_of(cluster: Cluster) -> Setup:
    """The facts as the cluster file gives them."""
    hardware = cluster.hardware
    return Setup(
        hardware.name,
        cluster.nodes,
        cluster.gpus,
        cluster.slots,
        cluster.fabric,
        hardware.gpu_link_gb_s,
        hardware.node_link_gb_s,
    )
