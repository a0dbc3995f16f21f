"""Nodes of a Kubernetes cluster in and out of service: idle nodes by their pods, the gate by a
taint and a condition.

New and repaired nodes have the taint, which a machine image, Karpenter or an operator sets. A pass
removes it and sets the condition `SeatrialQualified`, which node-readiness-controller and others
read.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from seatrial.config.cluster import Cluster
from seatrial.config.qualify import Qualify
from seatrial.model.errors import InputError
from seatrial.platforms.kubernetes.api import LIMIT, NODE, POD, Api
from seatrial.platforms.kubernetes.config import KubernetesPlatform, Toleration
from seatrial.platforms.kubernetes.ending import not_ready
from seatrial.platforms.kubernetes.isolate import TAINT, Cordon
from seatrial.platforms.kubernetes.machines import gpu_resource
from seatrial.platforms.kubernetes.plan import RUN_ID, Object, conditions
from seatrial.platforms.kubernetes.pod import is_selected, node_selector, taints_of, untolerated
from seatrial.platforms.kubernetes.topology import LEVELS
from seatrial.platforms.service import ServiceNode, State, taken

# Default taint of nodes that wait for a test
GATE = "seatrial/gate"
CONDITION = "SeatrialQualified"
DEADLINE_S = 300.0  # after this time Kubernetes ends a test
_QUEUE_TIMEOUT_S = 60.0  # short, since the nodes were just idle
_START_TIMEOUT_S = 180.0
_HOSTNAME = "kubernetes.io/hostname"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"  # the taint of a cordoned node
# The Cluster Autoscaler may remove a node with such a pod, and adds no node for a pod with a
# priority below -10.
_EVICTABLE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
_OVER = ("Succeeded", "Failed")
_SYSTEM = "kube-system"


class KubernetesService:
    """The cluster, as a user who may list nodes and pods, patch nodes, and patch their status."""

    def __init__(self, cluster: Cluster) -> None:
        assert isinstance(cluster.platform, KubernetesPlatform)
        qualify = cluster.qualify or Qualify()
        self._cluster = cluster
        self._settings = cluster.platform
        self._priority_class = qualify.priority_class
        self._gate = qualify.gate or GATE
        self._api = Api(cluster.platform)
        self._nodes = Cordon(self._api)

    def nodes(self) -> list[ServiceNode]:
        """Return the nodes that the settings select, each with its user, or why it is out of
        service.
        """
        selected = node_selector(self._cluster, self._settings)
        users = self._users()
        chosen = []
        for node in self._api.list(NODE):
            if is_selected(node, selected, self._settings):
                user = users.get(node["metadata"]["name"], "")
                chosen.append(self._node(node, user))
        return chosen

    def _node(self, node: Object, user: str) -> ServiceNode:
        """Return the node and its state; `user` is the pod that uses it, or "".

        A node that is not Ready counts as busy: no test would start there, and it may recover.
        """
        name = node["metadata"]["name"]
        group = leaf(node["metadata"].get("labels") or {})
        keys = _keys(node)
        condition = conditions(node).get(CONDITION, {})
        has_failed = condition.get("status") == "False"
        why = ""
        if has_failed:
            why = str(condition.get("message") or "")
        if ill := not_ready(node):
            return ServiceNode(name, "busy", group, ill.sentence)
        if user:
            return ServiceNode(name, "busy", group, user)
        state: State = "idle"
        refusals = {taint["key"] for taint in untolerated(node, self._cluster, self._settings)}
        if TAINT in keys or node["spec"].get("unschedulable") or refusals - {self._gate}:
            state = "out"
        elif self._gate in keys:
            state = "gated"
        return ServiceNode(
            name,
            state,
            group,
            why,
            is_ours=TAINT in keys,
            has_failed=has_failed and state == "gated",
        )

    def _users(self) -> dict[str, str]:
        """Return the pod that uses or is nominated for each node, ignoring our own pods and those
        that do not count.
        """
        users: dict[str, str] = {}
        for pod in self._api.list_everywhere(POD):
            metadata = pod["metadata"]
            status = pod.get("status") or {}
            node = pod["spec"].get("nodeName") or status.get("nominatedNodeName")
            is_ours = RUN_ID in (metadata.get("labels") or {})
            is_over = status.get("phase") in _OVER
            if not node or is_ours or is_over or not self._counts(pod):
                continue
            users.setdefault(node, f"pod {metadata['namespace']}/{metadata['name']}")
        return users

    def _counts(self, pod: Object) -> bool:
        """Return whether the pod makes a node busy.

        With GPUs, only pods that request some; without, all pods except those of daemons and of the
        system.
        """
        if self._cluster.gpus:
            resource = gpu_resource(self._cluster)
            resources = [each.get("resources") or {} for each in pod["spec"].get("containers", ())]
            limits = [each.get("limits") or {} for each in resources]
            return any(str(each.get(resource, "0")) not in ("0", "") for each in limits)
        owners = pod["metadata"].get("ownerReferences") or []
        is_daemon = any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)
        return not is_daemon and pod["metadata"]["namespace"] != _SYSTEM

    def take(self, names: Sequence[str]) -> Cluster:
        """Return the cluster limited to these nodes, whose pods tolerate the gate and give way to
        others.
        """
        settings = self._settings
        gates = []
        for key in (self._gate, TAINT, _UNSCHEDULABLE):
            gates.append(Toleration(key=key, operator="Exists"))
        return taken(
            self._cluster,
            names,
            target_nodes=tuple(names),
            avoid_nodes=(),
            launcher="job",
            topology=None,
            priority_class=self._priority_class,
            tolerations=(*settings.tolerations, *gates),
            annotations={**settings.annotations, **_EVICTABLE},
            queue_timeout_s=_QUEUE_TIMEOUT_S,
            start_timeout_s=_START_TIMEOUT_S,
            deadline_s=DEADLINE_S,
        )

    def put_out(self, name: str, run_id: str, code: str) -> None:
        """Isolate a node, or leave it at the gate, and set its condition to failed."""
        if self._gate not in _keys(self._nodes.find(name)):
            self._nodes.isolate(name, run_id, code)
        self._set_condition(name, "False", code, f"{code} in run {run_id}")

    def let_in(self, name: str) -> None:
        """Set the condition to passed and remove the taints.

        Raises InputError for a node without these taints.
        """
        keys = _keys(self._nodes.find(name))
        if not keys & {self._gate, TAINT}:
            raise InputError(
                f"node {name}: has neither taint {self._gate} nor {TAINT}, so it does not wait"
            )
        self._set_condition(name, "True", "Passed", "passed its test")
        if self._gate in keys:
            node = self._nodes.find(name)  # the condition has changed the resource version
            others = [taint for taint in taints_of(node) if taint["key"] != self._gate]
            self._nodes.patch(node, {"taints": others})
        if TAINT in keys:
            self._nodes.release(name)

    def _set_condition(self, name: str, status: str, code: str, message: str) -> None:
        """Set the node's condition, as of now.

        `code` becomes its reason in camel case: `image-pull` becomes ImagePull.
        """
        from kubernetes import client

        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        reason = "".join(map(str.capitalize, code.replace("_", "-").split("-")))
        times = {"lastHeartbeatTime": at, "lastTransitionTime": at}
        condition = {
            "type": CONDITION,
            "status": status,
            "reason": reason,
            "message": message,
            **times,
        }
        core = client.CoreV1Api(self._api.client)
        with self._api.explained(f"patch the status of Node {name}"):
            # A strategic merge patch merges conditions by type; a merge patch would replace the
            # kubelet's.
            form = "application/strategic-merge-patch+json"
            core.patch_node_status(
                name, {"status": {"conditions": [condition]}}, _content_type=form, **LIMIT
            )


def leaf(labels: dict[str, str]) -> str:
    """Return the label value of the narrowest topology level above the node; empty without labels.

    Nodes with the same value count as behind one switch.
    """
    for level in reversed(LEVELS):
        if level != _HOSTNAME and labels.get(level):
            return labels[level]
    return ""


def _keys(node: Object) -> set[str]:
    """Return the keys of the node's taints, whatever their effect."""
    return {taint["key"] for taint in taints_of(node)}


service = KubernetesService
