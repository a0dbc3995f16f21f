"""Hosts without a scheduler: their only user names those to test, and takes them in and out of
service.
"""

from collections.abc import Sequence

from seatrial.config.cluster import Cluster
from seatrial.model.errors import InputError
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.platforms.service import ServiceNode, taken

DEADLINE_S = 300  # after this time hosts end a test on their own


class HostService:
    """The hosts of a cluster file as a scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        assert isinstance(cluster.platform, BaremetalPlatform)
        self._cluster = cluster
        self._settings = cluster.platform

    def nodes(self) -> list[ServiceNode]:
        return [ServiceNode(host, "named") for host in self._settings.hosts]

    def take(self, names: Sequence[str]) -> Cluster:
        return taken(self._cluster, names, **self._settings.only(names), deadline_s=DEADLINE_S)

    def put_out(self, name: str, run_id: str, code: str) -> None:
        raise InputError(
            "has no scheduler that would keep it out of service; keep jobs away from it"
        )

    def let_in(self, name: str) -> None:
        raise InputError(f"node {name}: has no scheduler, so it does not wait")


service = HostService
