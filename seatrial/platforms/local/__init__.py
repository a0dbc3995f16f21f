"""Nodes as network namespaces on this machine, each with its own host name, hosts file and real sshd."""

from typing import TYPE_CHECKING

from seatrial.platforms.local.platform import Local

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

PLATFORM = Local()


def platform(cluster: "Cluster | None" = None) -> Local:
    """The same for every cluster: it needs no settings, and one process has one set of keepers."""
    return PLATFORM
