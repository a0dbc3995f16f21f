"""Nodes of Kubernetes out of service and back: cordoned, with a taint that names the run."""

import shlex
from typing import TYPE_CHECKING

from seatrial.model.errors import InputError
from seatrial.platforms.kubernetes.api import NODE, Api
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.plan import Object
from seatrial.platforms.kubernetes.pod import taints_of

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

TAINT = "seatrial/suspect"


class Cordon:
    """Cordon and taint by the API; `command` does the same by kubectl."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def command(self, node: str, run_id: str, why: str) -> str:
        context = self._api.context
        kubectl = ["kubectl", *(["--context", context] if context else [])]
        taint = [*kubectl, "taint", "node", node, f"{TAINT}={run_id}:NoSchedule"]
        return f"{shlex.join([*kubectl, 'cordon', node])} && {shlex.join(taint)}"

    def isolate(self, node: str, run_id: str, why: str) -> bool:
        """Cordon and taint the node; return false if it is cordoned already."""
        node_object = self.find(node)
        if node_object["spec"].get("unschedulable"):
            return False
        taint = {"key": TAINT, "value": run_id, "effect": "NoSchedule"}
        self.patch(node_object, {"unschedulable": True, "taints": [*taints_of(node_object), taint]})
        return True

    def release(self, node: str) -> None:
        node_object = self.find(node)
        others = [taint for taint in taints_of(node_object) if taint["key"] != TAINT]
        if len(others) == len(taints_of(node_object)):
            raise InputError(f"node {node}: has no taint {TAINT}, so seatrial has not isolated it")
        self.patch(node_object, {"unschedulable": None, "taints": others})

    def find(self, name: str) -> Object:
        node_object = self._api.find(NODE, name)
        if node_object is None:
            raise InputError(f"node {name}: is no node of the cluster")
        return node_object

    def patch(self, node: Object, spec: Object) -> None:
        """Change the node's spec; fails if somebody else changed it, since its list of taints is
        replaced.
        """
        name = node["metadata"]["name"]
        unchanged = {"resourceVersion": node["metadata"]["resourceVersion"]}
        self._api.patch(f"patch Node {name}", NODE, name, {"metadata": unchanged, "spec": spec})


def isolator(cluster: "Cluster") -> Cordon:
    """Return the isolator of the cluster's nodes."""
    assert isinstance(cluster.platform, KubernetesPlatform)
    return Cordon(Api(cluster.platform))
