"""What brings the nodes of `rack` up, in the module that seatrial looks for beside the settings."""

from seatrial.config.cluster import Cluster
from seatrial.platforms import Platform
from seatrial.platforms.baremetal import platform as baremetal


def platform(cluster: Cluster) -> Platform:
    """The platform of a cluster file."""
    return baremetal.platform(cluster)
