"""Explanations of pods that are not ready. Pure.

Objects are as the API server shows them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seatrial.causes import cause_in
from seatrial.model import reason as joining
from seatrial.model.reason import Reason, caused, uncoded
from seatrial.platforms.kubernetes.kueue import Queued, waits_for
from seatrial.platforms.kubernetes.plan import Object, conditions, true_condition
from seatrial.text.lines import first_line, one_line

_Waits = Mapping[str, tuple[str, str]]  # (code, problem) by the kubelet's reason
# Reasons that never pass without a change, although the kubelet retries forever.
_NEVER_STARTS: _Waits = {
    "ErrImageNeverPull": (
        "image-pull",
        "the image is not on the node, and image_pull_policy is Never",
    ),
    "InvalidImageName": ("image-pull", "the image's name is not legal"),
    "CreateContainerConfigError": (
        "container-start",
        "the container's configuration cannot be made",
    ),
    "CrashLoopBackOff": ("container-start", "the container ends again and again"),
}
# Reasons that may pass when the kubelet retries, such as a throttled pull.
_AGAIN: _Waits = {
    "ErrImagePull": ("image-pull", "the image cannot be pulled"),
    "ImagePullBackOff": ("image-pull", "the image cannot be pulled"),
    "RegistryUnavailable": ("image-pull", "the image cannot be pulled"),
    "ImageInspectError": ("image-pull", "the image cannot be read"),
    "CreateContainerError": ("container-start", "the container cannot be created"),
    "RunContainerError": ("container-start", "the container cannot be started"),
}
_MAX_MESSAGE = 1000  # characters; the message of a runtime's hook comes last
_AGAIN_S = 60.0  # after this time, a problem that may pass counts as permanent
_FINAL = re.compile(  # messages of permanent errors; those of a busy registry are in _BUSY
    (
        r"\b(?:not found|manifest unknown|unauthorized|denied|forbidden|invalid|no "
        r"match(?:ing manifest)? for)\b"
    ),
    re.I,
)
_BUSY = re.compile(r"\b429\b|too ?many ?requests|quota exceeded", re.I)
_NAMES = re.compile(r'"[^"]*"')  # quoted names may contain any words
# Events of a pod without a container yet; the kubelet retries.
_NOT_MOUNTED = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
_NOT_ADMITTED = "its pods are not admitted"
_NOT_QUEUED = "Kueue does not queue it"
# Events of controllers whose pods the API server refuses, and of Kueue; all of them retry.
_COMPLAINTS = {
    "FailedCreate": _NOT_ADMITTED,  # a Job
    "FailedCreatePod": _NOT_ADMITTED,  # Kubeflow's training operator
    "JobCreationFailed": _NOT_ADMITTED,  # JobSet
    "MPIJobFailed": _NOT_ADMITTED,  # Kubeflow's MPI operator
    "TrainJobResourcesCreationFailed": _NOT_ADMITTED,  # Kubeflow Trainer
    "WorkloadPriorityClassNotFound": _NOT_QUEUED,
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """A refusal to create pods; `since` is the time of its first event in seconds
    (time.monotonic).
    """

    text: str
    since: float


@dataclass(slots=True)
class SeenObjects:
    """The objects of a run as seen so far: pods by name, parent, Workload in Kueue, and complaint.

    `unmounted`: why a pod's volume or sandbox does not exist yet, by pod name.
    """

    pods: dict[str, Object] = field(default_factory=dict)
    unmounted: dict[str, str] = field(default_factory=dict)
    parent: Object | None = None
    complaint: Complaint | None = None
    workload: Object | None = None
    managed: bool = False  # Kueue has had a Workload for the run, and may recreate it
    deleted: bool = False

    def take_pod(self, change: str, pod: Object) -> None:
        """Add, replace or remove a pod; an existing pod ends a complaint."""
        name = pod["metadata"]["name"]
        if change == "DELETED":
            self.pods.pop(name, None)
        else:
            self.pods[name] = pod
            self.complaint = None

    def take_pods(self, pods: Iterable[Object]) -> None:
        """Replace all pods."""
        self.pods = {}
        for pod in pods:
            self.take_pod("LISTED", pod)

    def take_parent(self, change: str, parent: Object) -> None:
        """Store the launcher's object, and whether its last event was its deletion."""
        self.parent = parent
        self.deleted = change == "DELETED"

    def take_workload(self, change: str, workload: Object) -> None:
        """Store the Workload; while it is queued, no pods are expected, so a complaint ends."""
        self.workload = None if change == "DELETED" else workload
        self.managed = True
        if self._needs_no_pods():
            self.complaint = None

    def take_event(self, event: Object, now: float) -> None:
        """Store a refusal to create pods, or why a pod's volume or sandbox does not exist, at the
        time `now`.
        """
        if complaint := _COMPLAINTS.get(event.get("reason", "")):
            # Otherwise it is an old event, which a restarted watch lists again
            if not self._needs_no_pods():
                since = self.complaint.since if self.complaint else now
                self.complaint = Complaint(f"{complaint}: {event.get('message', '')}", since)
        elif event.get("reason") in _NOT_MOUNTED:
            self.unmounted[event["involvedObject"]["name"]] = one_line(event.get("message"))

    def _needs_no_pods(self) -> bool:
        """Return whether the run has pods, or is queued in Kueue."""
        return bool(self.pods or (self.workload and waits_for(self.workload)))


def ready(pods: Iterable[Object]) -> list[Object]:
    """Return the pods whose sshd answers and that are not being deleted."""
    return [pod for pod in pods if true_condition(pod, "Ready") and not _leaving(pod)]


def is_up(pod: Object) -> bool:
    """Return whether people can log in: the pod runs and has an address, though its sshd may not
    answer yet.
    """
    status = pod.get("status", {})
    return bool(status.get("phase") == "Running" and status.get("podIP"))


def placed(pods: Iterable[Object]) -> list[Object]:
    """Return the pods that have a node and are not being deleted."""
    return [pod for pod in pods if pod["spec"].get("nodeName") and not _leaving(pod)]


def _leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def problem_starts(
    pods: Iterable[Object], before: Mapping[str, float], now: float
) -> dict[str, float]:
    """Return the times (s) since when pods have a problem that may pass, by name; `before` is the
    previous result.
    """
    names = [pod["metadata"]["name"] for pod in pods if _trouble(pod)]
    return {name: before.get(name, now) for name in names}


def problem(
    pods: Iterable[Object], since: Mapping[str, float], now: float
) -> tuple[str, Reason] | None:
    """Return the first pod that will never be ready, and a reason that names pod and node; None if
    there is none.

    Pods that are being deleted are ignored. `since` is the result of `problem_starts` at `now`.
    """
    for pod in pods:
        name = pod["metadata"]["name"]
        long = now - since.get(name, now) >= _AGAIN_S
        if not _leaving(pod) and (reason := _pod_problem(pod) or (_trouble(pod) if long else None)):
            node = pod["spec"].get("nodeName")
            return name, joining.placed(f"pod {name} on {node}" if node else f"pod {name}", reason)
    return None


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _trouble(pod: Object) -> Reason | None:
    """Return the first error that the kubelet is retrying; None if there is none."""
    waits = [container.get("state", {}).get("waiting") or {} for container in _containers(pod)]
    for each in waits:
        if each.get("reason") in _AGAIN:
            return _waiting_reason(_AGAIN, each)
    return None


def _waiting_reason(waits: _Waits, waiting: Object) -> Reason:
    """Return the reason of a waiting container, with the cause in its message, if there is one."""
    name = waiting["reason"]
    message = waiting.get("message")
    code, problem = waits[name]
    cause = cause_in(message or "")
    words = cause.evidence if cause else one_line(message)[:_MAX_MESSAGE]
    reason = Reason.of(code, problem=problem, waiting=name, message=words)
    if cause:
        return Reason(cause.code, {"evidence": cause.evidence}, reason.sentence)
    return reason


def _is_final(message: str | None) -> bool:
    """Return whether a message says that a retry would fail too, ignoring quoted names."""
    text = _NAMES.sub("", message or "")
    return bool(_FINAL.search(text)) and not _BUSY.search(text)


def _pod_problem(pod: Object) -> Reason | None:
    """Return why a pod will never be ready, judged on its own; None if it may be.

    Init containers may exit with 0, other containers must not exit.
    """
    status = pod.get("status", {})
    own = status.get("containerStatuses", ())
    for container in _containers(pod):
        state = container.get("state", {})
        waiting = state.get("waiting") or {}
        ended = state.get("terminated")
        if waiting.get("reason") in _NEVER_STARTS:
            return _waiting_reason(_NEVER_STARTS, waiting)
        if waiting.get("reason") in _AGAIN and _is_final(waiting.get("message")):
            return _waiting_reason(_AGAIN, waiting)
        if ended and (ended.get("exitCode") or container in own):
            status_code = ended.get("exitCode")
            why = ended.get("message") or ended.get("reason")
            cause = f": {first_line(why)}" if why and why not in ("Error", "Completed") else ""
            return Reason.of(
                "container-exited",
                what=f"container {container['name']}",
                exit_code=status_code,
                cause=cause,
            )
    if status.get("phase") == "Failed":
        ended = f"{status.get('reason') or 'failed'}: {first_line(status.get('message'))}"
        return Reason.of("pod-failed", how=ended)
    return None


def describe_progress(
    pods: Iterable[Object],
    total: int,
    queued: Queued | None = None,
    unmounted: Mapping[str, str] | None = None,
) -> Reason:
    """Return the progress in one line, with the most frequent reason for waiting; `unmounted` as in
    `SeenObjects`.
    """
    pods = list(pods)
    if queued and not placed(pods):
        return queued.reason
    if len(placed(pods)) < total:
        wait = _waiting(_most(_unschedulable(pod) for pod in pods))
        return Reason.of("pods-unscheduled", placed=len(placed(pods)), requested=total, wait=wait)
    cause = _most(map(_trouble, pods)) or _most(_starting(pod, unmounted or {}) for pod in pods)
    return caused(
        Reason.of("nodes-not-ready", ready=len(ready(pods)), requested=total, wait=_waiting(cause)),
        cause,
    )


def _most(reasons: Iterable[Reason | None]) -> Reason | None:
    """Return the most frequent reason; None if there is none."""
    counted = Counter(reason for reason in reasons if reason).most_common(1)
    if counted:
        return counted[0][0]
    return None


def _waiting(cause: Reason | None) -> str:
    if cause:
        return f"; waiting: {cause}"
    return ""


def _unschedulable(pod: Object) -> Reason | None:
    """Return the scheduler's message for a pod without a node; None if it has one."""
    scheduled = conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") != "False":
        return None
    # Omit the details of preemption that follow.
    message = first_line(scheduled.get("message")).split(" preemption:")[0]
    return uncoded(message or scheduled.get("reason") or "")


def _starting(pod: Object, unmounted: Mapping[str, str]) -> Reason | None:
    """Return what a pod with a node is waiting for; None if it is ready."""
    if true_condition(pod, "Ready"):
        return None
    for container in pod.get("status", {}).get("containerStatuses", ()):
        if waiting := container.get("state", {}).get("waiting"):
            message = one_line(waiting.get("message"))[:_MAX_MESSAGE]
            words = ": ".join(filter(None, (waiting.get("reason"), message)))
            return uncoded(unmounted.get(pod["metadata"]["name"]) or words)
    return Reason.of("sshd-not-ready")
