"""Local nodes in and out of service, according to the file of
`seatrial/platforms/local/stage.py`.
"""

from collections.abc import Sequence

from seatrial.config.cluster import Cluster
from seatrial.model.errors import InputError
from seatrial.platforms.local.stage import opened, read
from seatrial.platforms.service import ServiceNode, State, taken

_LEAF_NODES = 4  # consecutive nodes count as behind one leaf switch


class LocalService:
    """The simulated cluster of stage.py as a scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def nodes(self) -> list[ServiceNode]:
        stage = read(self._cluster.name)
        nodes = []
        for number, name in enumerate(self._cluster.node_names()):
            state: State = "idle"
            why = ""
            if name in stage.out:
                state = "out"
                why = stage.out[name]
            elif name in stage.gated:
                state = "gated"
                why = stage.gated[name]
            elif job := stage.job_on(name):
                state = "busy"
                why = job
            node = ServiceNode(
                name,
                state,
                group=f"leaf-{number // _LEAF_NODES}",
                why=why,
                is_ours=state == "out",
                has_failed=state == "gated" and bool(why),
            )
            nodes.append(node)
        return nodes

    def take(self, names: Sequence[str]) -> Cluster:
        """Return the cluster limited to these nodes, with the faults that concern no other node."""
        chosen = set(names)
        faults = [fault for fault in self._cluster.faults if chosen.issuperset(fault.nodes)]
        own = taken(self._cluster, names, names=tuple(names))
        return own.model_copy(update={"faults": tuple(faults)})

    def put_out(self, name: str, run_id: str, code: str) -> None:
        """Record the failure of a node: a node at the gate stays there, any other goes out of
        service.
        """
        with opened(self._cluster.name) as (stage, keep):
            reasons = stage.gated if name in stage.gated else stage.out
            reasons[name] = f"{code} in run {run_id}"
            keep()

    def let_in(self, name: str) -> None:
        """Put a node into service. Raises InputError if it already is."""
        with opened(self._cluster.name) as (stage, keep):
            if name not in {*stage.gated, *stage.out}:
                raise InputError(f"node {name}: is in service")
            stage.gated.pop(name, None)
            stage.out.pop(name, None)
            keep()


service = LocalService
