"""Nodes in and out of service on a cluster at work: the contract of platforms for `seatrial
qualify`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from seatrial.model.errors import InputError

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

# idle: no job uses the node or is planned on it. gated: it waits for a test. out: an operator or
# seatrial took it out of service. named: no scheduler manages it, and a command named it as free.
# busy: anything else.
State = Literal["idle", "gated", "out", "named", "busy"]


@dataclass(frozen=True, slots=True)
class ServiceNode:
    """A node and its state in the scheduler.

    `group` is its leaf switch, block or rack, or empty. `why` is the scheduler's reason if the node
    is not in service. `is_ours`: seatrial has taken it out of service. `has_failed`: it has failed
    a test while it waited at the gate.
    """

    name: str
    state: State
    group: str = ""
    why: str = ""
    is_ours: bool = False
    has_failed: bool = False


class Scheduler(Protocol):
    """The scheduler of a cluster at work, as a pass needs it."""

    def nodes(self) -> list[ServiceNode]:
        """List the nodes of the cluster that tests may have, whatever their state."""

    def put_out(self, name: str, run_id: str, code: str) -> None:
        """Keep a node at the gate, or take one out of service, because of failure `code` in the
        run.
        """

    def let_in(self, name: str) -> None:
        """Put a node into service that waits at the gate, or that seatrial took out.

        Raises InputError for any other node.
        """


class NodeService(Scheduler, Protocol):
    """A scheduler that can also run tests on its nodes."""

    def take(self, names: Sequence[str]) -> "Cluster":
        """Return the cluster limited to those nodes, for a test that gives way to any other job.

        Pure.
        """


def taken(cluster: "Cluster", names: Sequence[str], /, **changed: object) -> "Cluster":
    """Return the cluster limited to those nodes; `changed` are settings of its platform to
    change.
    """
    own = {
        "nodes": len(names),
        "platform": cluster.platform.model_copy(update=changed),
        "keep": "never",
        "isolate": None,
    }
    return cluster.model_copy(update=own)


def node_service(cluster: "Cluster") -> NodeService:
    """Return the scheduler of the cluster.

    Raises InputError if seatrial knows none for its platform.
    """
    if not cluster.platform.qualifies:
        raise InputError(
            f"platform {cluster.platform.kind}: has no nodes at work; legal: kubernetes, "
            "slurm, baremetal, local"
        )
    service: NodeService = cluster.platform.own_module("service").service(cluster)
    return service
