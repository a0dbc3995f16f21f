"""Whether a node that does not answer was taken away on purpose: then it is not the node's fault."""

from collections.abc import Sequence

from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason, caused
from seatrial.platforms.kubernetes import queue
from seatrial.platforms.kubernetes.api import POD, Api
from seatrial.platforms.kubernetes.conditions import holding
from seatrial.platforms.kubernetes.health import health
from seatrial.platforms.kubernetes.launchers import Launcher, failed
from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object, selector
from seatrial.platforms.kubernetes.pod_termination import first_to_end


def blameless_reason(api: Api, plan: KubernetesPlan, launcher: Launcher, pod: str, node: str) -> str | None:
    """Why the pod went although its node is well: preempted, evicted, deleted, out of time. None: blame the node."""
    try:
        parent = api.find(launcher.kind, plan.name)
        workload = _workload(api, plan, parent) if parent else None
        live_pod = api.find(POD, pod)
        others = api.list(POD, selector(plan.run.run_id)) if _was_deleted(live_pod) else []
        return _blameless_reason(live_pod, pod, parent, workload, others, node_is_well=_is_well(api, node))
    except SeatrialError:
        return None  # nobody can say


def _blameless_reason(
    pod: Object | None,
    name: str,
    parent: Object | None,
    workload: Object | None,
    others: Sequence[Object] = (),
    *,
    node_is_well: bool,
) -> str | None:
    """As `blameless_reason`; `others` are what is left of the run's pods. Pure."""
    if deadline := _condition(parent, "Failed", "DeadlineExceeded"):
        return Reason.of("deadline-exceeded", deadline=deadline)
    if not node_is_well:  # Kubernetes and Kueue take pods away from nodes that fail, too
        return None
    if workload and (evicted := queue.preempted(workload)):
        return evicted
    if disrupted := _condition(pod, "DisruptionTarget"):
        return Reason.of("pod-preempted", name=name, disrupted=disrupted)
    if not _was_deleted(pod):
        return None
    first = first_to_end(others)  # where one pod ends, its controller deletes the others
    return caused(Reason.of("pod-deleted", name=name, why_deleted=_why_deleted(parent, first)), first)


def _was_deleted(pod: Object | None) -> bool:
    return pod is None or "deletionTimestamp" in pod["metadata"]


def _why_deleted(parent: Object | None, first: str | None) -> str:
    if first:
        return f"because {first}"
    if parent is None:
        return "while the run used it, with what the run had submitted"
    why = failed(parent)
    return f"while the run used it{f': {why}' if why else ''}"


def _condition(manifest: Object | None, kind: str, reason: str | None = None) -> str | None:
    condition = holding(manifest, kind)
    if condition is None or reason not in (None, condition.get("reason")):
        return None
    return f"{condition.get('reason')}: {condition.get('message')}"


def _workload(api: Api, plan: KubernetesPlan, parent: Object) -> Object | None:
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
