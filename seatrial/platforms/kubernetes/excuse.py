"""Whether a node that does not answer was taken away on purpose: then it is not the node's fault."""

from seatrial.errors import MissingError, SeatrialError
from seatrial.platforms.kubernetes import queue
from seatrial.platforms.kubernetes.api import POD, Api
from seatrial.platforms.kubernetes.health import health
from seatrial.platforms.kubernetes.launchers import Launcher
from seatrial.platforms.kubernetes.plan import Object, Plan


def excuse(api: Api, plan: Plan, launcher: Launcher, pod: str, node: str) -> str | None:
    """Why the pod went although its node is well: preempted, evicted, deleted, out of time. None: blame the node."""
    try:
        parent = api.find(launcher.kind, plan.name)
        workload = _workload(api, plan, parent) if parent else None
        return _excuse(api.find(POD, pod), pod, parent, workload, node_is_well=_is_well(api, node))
    except SeatrialError:
        return None  # nobody can say


def _excuse(
    pod: Object | None, name: str, parent: Object | None, workload: Object | None, *, node_is_well: bool
) -> str | None:
    """As `excuse`. Pure."""
    if deadline := _condition(parent, "Failed", "DeadlineExceeded"):
        return f"the run was over its time: {deadline}"
    if not node_is_well:  # Kubernetes and Kueue take pods away from nodes that fail, too
        return None
    if workload and (evicted := queue.preempted(workload)):
        return evicted
    if disrupted := _condition(pod, "DisruptionTarget"):
        return f"pod {name} was taken away: {disrupted}"
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} was deleted while the run used it{'' if parent else ', with what the run had submitted'}"
    return None


def _condition(thing: Object | None, kind: str, reason: str | None = None) -> str | None:
    for condition in (thing or {}).get("status", {}).get("conditions", ()):
        if condition["type"] == kind and condition["status"] == "True" and reason in (None, condition.get("reason")):
            return f"{condition.get('reason')}: {condition.get('message')}"
    return None


def _workload(api: Api, plan: Plan, parent: Object) -> Object | None:
    if not plan.settings.queue:
        return None
    uid = parent["metadata"]["uid"]
    return next((each for each in api.list(queue.WORKLOAD) if queue.is_of(each, uid)), None)


def _is_well(api: Api, node: str) -> bool:
    """Whether the node is there and Ready. Who may not look at nodes does not blame one for a pod that was deleted."""
    try:
        return health(api).get(node, "it is gone") is None
    except MissingError:
        return True
