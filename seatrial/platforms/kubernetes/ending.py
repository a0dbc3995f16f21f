"""The end of a run on Kubernetes: deletion of its pods, why pods ended, and leftovers of abandoned
runs.

Only the owner can know whether a run's process lives: the same user in the same process tree of the
same machine. A run in a pod of its own namespace is judged by that pod. Any other run is abandoned
once its own time limit is over.
"""

import math
import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from seatrial.model.errors import InputError, LaunchError, MissingError, NodesError, SeatrialError
from seatrial.model.reason import Reason, caused
from seatrial.platforms import Leftover
from seatrial.platforms import state as states
from seatrial.platforms.kubernetes.api import NODE, POD, Api, UnknownKindError
from seatrial.platforms.kubernetes.bringup import Watches
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.kueue import WORKLOAD, is_of, preempted
from seatrial.platforms.kubernetes.launchers import Launcher, failed, kinds, needs
from seatrial.platforms.kubernetes.plan import (
    EXPIRES,
    KIND,
    OWNER,
    RUN_ID,
    TENDED_BY,
    Kind,
    KubernetesPlan,
    Object,
    conditions,
    selector,
    true_condition,
)

# Time without any deletion: the entry point exits at once on TERM, but hundreds of pods go one by
# one
GONE_S = 25.0


def wait_for_deletion(api: Api, run_id: str) -> None:
    """Wait until the deleted pods of a run are gone.

    Pods on nodes that are not Ready are removed by force: nothing is scheduled there, and the
        kubelet ends the containers when it is back.

    Raises:
        NodesError: nodes are silent; their pods were removed.
        LaunchError: pods are still ending although their nodes are Ready, or the state is unknown.
    """
    left = _wait_until_gone(api, run_id)
    try:
        ill = (
            {node: why for node, why in health(api).items() if why and node in left.values()}
            if left
            else {}
        )
    except MissingError:  # without the right to read nodes
        ill = {}
    for node in ill:
        api.delete_all(POD, selector(run_id), field_selector=f"spec.nodeName={node}", grace_s=0)
    if ill:
        raise NodesError(ill)
    if left:
        where = ", ".join(sorted(set(left.values())))
        some = ", ".join(sorted(left)[:4])
        raise LaunchError.of(
            "pods-do-not-end",
            pods=f"{len(left)} pods of {run_id} are still ending, and none went for "
            f"{GONE_S:g} s: {some}",
            where=where,
        )


def _wait_until_gone(api: Api, run_id: str) -> dict[str, str]:
    """Wait until no pods are left; return those that are left when time is up, each with
    its node.
    """
    deadline = time.monotonic() + GONE_S
    left: dict[str, str] | None = None
    with Watches(api) as watches:
        watches.add(POD, label_selector=selector(run_id))
        while (left is None or left) and time.monotonic() < deadline:
            change = watches.next(0.5)
            if change and change.change == "LISTED":
                left = dict(map(_name_and_node, change.object["items"]))
            elif change and left is not None and change.change == "DELETED":
                left.pop(change.object["metadata"]["name"], None)
                deadline = time.monotonic() + GONE_S
            elif change and left is not None:
                # Including a pod that a controller created at the last moment
                left.update([_name_and_node(change.object)])
    if left is None:
        raise LaunchError.of("teardown-unconfirmed", run_id=run_id)
    return left


def _name_and_node(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["name"], pod["spec"].get("nodeName") or "no node"


def health(api: Api) -> dict[str, Reason | None]:
    """Return why each node is not Ready, or None if it is, by node.

    Raises MissingError without the right to list nodes.
    """
    return {node["metadata"]["name"]: not_ready(node) for node in api.list(NODE)}


def not_ready(node: Object) -> Reason | None:
    """Return the message of a node that is not Ready, else None."""
    if true_condition(node, "Ready"):
        return None
    ready = conditions(node).get("Ready", {})
    since = ready.get("lastTransitionTime") or "ever"
    return Reason.of(
        "node-unfit",
        lack=f"NotReady since {since}: {ready.get('message') or 'the kubelet is silent'}",
    )


def termination_message(pod: Object | None, name: str) -> Reason | None:
    """Describe the end of a pod in one line; None while it runs.

    `pod` is None if the API server has none.
    """
    if pod is None:
        return Reason.of("pod-failed", how=f"pod {name} is gone")
    status = pod.get("status", {})
    if status.get("reason"):  # such as Evicted; containers only show that they were killed
        message = ": ".join(filter(None, (status["reason"], status.get("message"))))
        return Reason.of("pod-failed", how=f"pod {name}: {message}")
    if ended := _ended(pod):
        why = (
            f" ({ended['reason']})"
            if ended.get("reason") not in (None, "Error", "Completed")
            else ""
        )
        return Reason.of(
            "container-exited", what=f"pod {name}", exit_code=ended["exitCode"], cause=why
        )
    phase = str(status.get("phase"))
    return (
        Reason.of("pod-failed", how=f"pod {name} has {phase.lower()}")
        if phase in ("Failed", "Succeeded")
        else None
    )


def first_to_end(pods: Iterable[Object]) -> Reason | None:
    """Describe the first pod that ended without being deleted; None if there is none."""
    fates = []
    for pod in pods:
        how = termination_message(pod, pod["metadata"]["name"])
        if how and not _was_deleted(pod):
            # "~" sorts after every time
            fates.append((str((_ended(pod) or {}).get("finishedAt") or "~"), how))
    return min(fates)[1] if fates else None


def _ended(pod: Object) -> Object | None:
    """Return the terminated state of a container, of a failed one first."""
    states = [
        each.get("state", {}).get("terminated")
        for each in pod.get("status", {}).get("containerStatuses", ())
    ]
    ended: list[Object] = [state for state in states if state]
    return max(ended, key=lambda state: bool(state["exitCode"]), default=None)


def blameless_reason(
    api: Api, plan: KubernetesPlan, launcher: Launcher, pod: str, node: str
) -> Reason | None:
    """Explain a lost pod that is no fault of its node: preempted, evicted, deleted, out of time.

    None: the node is to blame.
    """
    try:
        parent = api.find(launcher.kind, plan.name)
        workload = _workload(api, plan, parent) if parent else None
        live_pod = api.find(POD, pod)
        others = api.list(POD, selector(plan.run.run_id)) if _was_deleted(live_pod) else []
        return _blameless_reason(
            live_pod, pod, parent, workload, others, node_is_well=_is_well(api, node)
        )
    except SeatrialError:
        return None  # unknown


def _blameless_reason(
    pod: Object | None,
    name: str,
    parent: Object | None,
    workload: Object | None,
    others: Sequence[Object] = (),
    *,
    node_is_well: bool,
) -> Reason | None:
    """Explain a lost pod as `blameless_reason` does; `others` are the remaining pods of the run.

    Pure.
    """
    if deadline := _condition(parent, "Failed", "DeadlineExceeded"):
        return Reason.of("deadline-exceeded", deadline=deadline)
    if not node_is_well:  # failing nodes lose their pods to Kubernetes and Kueue too
        return None
    if workload and (evicted := preempted(workload)):
        return evicted
    if disrupted := _condition(pod, "DisruptionTarget"):
        return Reason.of("pod-preempted", name=name, disrupted=disrupted)
    if not _was_deleted(pod):
        return None
    first = first_to_end(others)  # when one pod ends, its controller deletes the others
    return caused(
        Reason.of("pod-deleted", name=name, why_deleted=_why_deleted(parent, first)), first
    )


def _workload(api: Api, plan: KubernetesPlan, parent: Object) -> Object | None:
    workloads = api.list(WORKLOAD) if plan.settings.queue else []
    return next((each for each in workloads if is_of(each, parent["metadata"]["uid"])), None)


def _was_deleted(pod: Object | None) -> bool:
    return pod is None or "deletionTimestamp" in pod["metadata"]


def _why_deleted(parent: Object | None, first: Reason | None) -> str:
    if first:
        return f"because {first}"
    if parent is None:
        return "while the run used it, with what the run had submitted"
    why = failed(parent)
    return f"while the run used it{f': {why}' if why else ''}"


def _condition(manifest: Object | None, kind: str, reason: str | None = None) -> str | None:
    condition = true_condition(manifest, kind)
    if condition is None or reason not in (None, condition.get("reason")):
        return None
    return f"{condition.get('reason')}: {condition.get('message')}"


def _is_well(api: Api, node: str) -> bool:
    """Return whether the node is Ready; also true if nodes may not be listed, so that no node is
    blamed.
    """
    try:
        return health(api).get(node, "it is gone") is None
    except MissingError:
        return True


def leftovers(api: Api, launcher: Launcher) -> list[Leftover]:
    """Return the leftovers of abandoned runs.

    Raises SeatrialError where objects that every run makes cannot be listed.
    """
    object_by_run: dict[str, Object] = {}
    tended_by: dict[str, str] = {}
    for kind in kinds():
        for manifest in _list(api, launcher, kind):
            annotations = manifest["metadata"].get("annotations") or {}
            if OWNER not in annotations:  # created by a controller
                continue
            run_id = manifest["metadata"]["labels"][RUN_ID]
            object_by_run.setdefault(run_id, manifest)
            if TENDED_BY in annotations:
                tended_by[run_id] = annotations[TENDED_BY]
    pods = phases(api) if tended_by else {}
    # a pod that Succeeded has removed its nodes, or keeps them on purpose
    died = {run_id for run_id, pod in tended_by.items() if pods.get(pod, "Failed") == "Failed"}
    objects = [
        Leftover(run_id, age_s(manifest), f"objects in namespace {api.namespace}")
        for run_id, manifest in object_by_run.items()
        if run_id in died or is_abandoned(manifest, run_id)
    ]
    return objects + states.leftovers(
        KIND,
        "its keys on this machine",
        lambda folder: folder.name not in object_by_run and _is_of(folder, api),
    )


def _list(api: Api, launcher: Launcher, kind: Kind) -> list[Object]:
    try:
        return api.list(kind, selector())
    except UnknownKindError:
        return []
    except SeatrialError:  # kinds of other launchers may be forbidden or unavailable
        if needs(launcher, kind):
            with suppress(UnknownKindError):
                api.knows(kind)
                raise
        return []


def _is_of(folder: Path, api: Api) -> bool:
    """Return whether the folder's run is on this cluster, in this namespace."""
    try:
        other = states.recall(folder).platform
    except InputError:
        return False
    return isinstance(other, KubernetesPlatform) and (other.context, other.namespace) == (
        api.context,
        api.namespace,
    )


def own_pod(api: Api) -> str | None:
    """Return the pod that this process runs in, if it is in the namespace of the nodes."""
    name = socket.gethostname()
    in_cluster = not api.context and "KUBERNETES_SERVICE_HOST" in os.environ
    return name if in_cluster and name in phases(api) else None


def phases(api: Api) -> dict[str, str]:
    """Return the phases of the namespace's pods: Pending, Running, Succeeded, Failed, Unknown."""
    return {
        pod["metadata"]["name"]: pod.get("status", {}).get("phase", "Unknown")
        for pod in api.list(POD)
    }


def is_abandoned(manifest: Object, run_id: str) -> bool:
    """Return whether the process of the object's run is gone, as far as the object and this machine
    show.
    """
    annotations = manifest["metadata"].get("annotations") or {}
    try:
        expires = datetime.fromisoformat(annotations[EXPIRES]).timestamp()
    except (KeyError, ValueError):
        expires = math.inf  # not made by seatrial, or by a version with another format
    return states.is_object_abandoned(
        KIND, run_id, annotations.get(OWNER), age_s(manifest), expires
    )


def age_s(manifest: Object) -> float:
    """Return seconds since the object was created."""
    made = datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - made).total_seconds()
