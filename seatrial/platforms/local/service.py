"""Local nodes in and out of service, on the stage of `seatrial/platforms/local/stage.py`."""

from collections.abc import Sequence

from seatrial.config.cluster import Cluster
from seatrial.model.errors import InputError
from seatrial.platforms.local.stage import Stage, opened, read
from seatrial.platforms.service import ServiceNode, taken

_LEAF_NODES = 4  # consecutive nodes count as behind one leaf switch


class LocalService:
    """The stage as a scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def nodes(self) -> list[ServiceNode]:
        stage = read(self._cluster.name)
        return [self._node(stage, i, name) for i, name in enumerate(self._cluster.node_names())]

    def _node(self, stage: Stage, number: int, name: str) -> ServiceNode:
        group = f"leaf-{number // _LEAF_NODES}"
        if name in stage.out:
            return ServiceNode(name, "out", group, stage.out[name], is_ours=True)
        if name in stage.gated:
            failed = stage.gated[name]
            return ServiceNode(name, "gated", group, failed, has_failed=bool(failed))
        if job := stage.job_on(name):
            return ServiceNode(name, "busy", group, job)
        return ServiceNode(name, "idle", group)

    def take(self, names: Sequence[str]) -> Cluster:
        faults = tuple(fault for fault in self._cluster.faults if set(fault.nodes) <= set(names))
        return taken(self._cluster, names, names=tuple(names)).model_copy(update={"faults": faults})

    def put_out(self, name: str, run_id: str, code: str) -> None:
        with opened(self._cluster.name) as (stage, keep):
            place = stage.gated if name in stage.gated else stage.out
            place[name] = f"{code} in run {run_id}"
            keep()

    def let_in(self, name: str) -> None:
        with opened(self._cluster.name) as (stage, keep):
            if name not in stage.gated and name not in stage.out:
                raise InputError(f"node {name}: is in service")
            stage.gated.pop(name, None)
            stage.out.pop(name, None)
            keep()


service = LocalService
