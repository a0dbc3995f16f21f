"""The current state of a cluster at work, from its scheduler and the history."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from seatrial.config.cluster import Cluster
from seatrial.config.qualify import Qualify
from seatrial.platforms.service import Scheduler, ServiceNode
from seatrial.qualify.coverage import Coverage, coverage
from seatrial.qualify.evidence import Evidence

if TYPE_CHECKING:
    from seatrial.history.store import Store

# Age up to which tests count; older ones say nothing about a node today
REMEMBERED = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Standing:
    """The nodes, the results of earlier tests, and the coverage."""

    nodes: list[ServiceNode]
    evidence: Evidence
    coverage: Coverage


def standing(
    cluster: Cluster, settings: Qualify, service: Scheduler, store: "Store", at: datetime
) -> Standing:
    """Ask the scheduler and the history. Raises SeatrialError where one of them does not answer."""
    nodes = service.nodes()
    evidence = Evidence.of(store.node_tests(cluster.name, at - REMEMBERED), at)
    measured = store.measured(cluster.name, "gpu") if cluster.gpus else {}
    return Standing(nodes, evidence, coverage(nodes, evidence, settings, cluster.gpus, measured))
