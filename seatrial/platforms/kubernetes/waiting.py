"""Why the pods are not there yet, or never will be. Pure: objects as the API server shows them in, words out."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from seatrial.model import reason as joining
from seatrial.model.reason import Reason, caused
from seatrial.platforms.kubernetes.conditions import conditions, holding
from seatrial.platforms.kubernetes.plan import Object
from seatrial.platforms.kubernetes.queue import Queued, waits_for
from seatrial.text.lines import first_line, one_line

# What a container waits for that does not come by itself: the kubelet tries for ever.
_NEVER = {
    "ErrImageNeverPull": partial(
        Reason.of, "image-pull", problem="the image is not on the node, and image_pull_policy is Never"
    ),
    "InvalidImageName": partial(Reason.of, "image-pull", problem="the image's name is not legal"),
    "CreateContainerConfigError": partial(
        Reason.of, "container-start", problem="the container's configuration cannot be made"
    ),
    "CrashLoopBackOff": partial(Reason.of, "container-restarts", problem="the container ends again and again"),
}
_NOT_PULLED = partial(Reason.of, "image-pull", problem="the image cannot be pulled")
# What may come right when the kubelet tries again, as a pull that a registry throttles.
_AGAIN = {
    "ErrImagePull": _NOT_PULLED,
    "ImagePullBackOff": _NOT_PULLED,
    "RegistryUnavailable": _NOT_PULLED,
    "ImageInspectError": partial(Reason.of, "image-pull", problem="the image cannot be read"),
    "CreateContainerError": partial(Reason.of, "container-start", problem="the container cannot be created"),
    "RunContainerError": partial(Reason.of, "container-start", problem="the container cannot be started"),
}
_AGAIN_S = 60.0  # by when it has come right, if ever
_FINAL = re.compile(  # words that say that it will not, and those of a registry that is only busy
    r"\b(?:not found|manifest unknown|unauthorized|denied|forbidden|invalid|no match(?:ing manifest)? for)\b", re.I
)
_BUSY = re.compile(r"\b429\b|too ?many ?requests|quota exceeded", re.I)
_NAMES = re.compile(r'"[^"]*"')  # an image may be called anything
_NOT_MOUNTED = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")  # events of a pod; the kubelet tries again
_NOT_ADMITTED, _NOT_QUEUED = "its pods are not admitted", "Kueue does not queue it"
# Events of whoever makes pods, or what makes them, when the API server refuses it, and of Kueue; they all try again.
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
    """What keeps the pods from being made; `since`: when it was first said, in seconds."""

    words: str
    since: float


@dataclass(slots=True)
class RunState:
    """What was seen of a run so far: its pods by name, its parent, and what events complain of, Kueue's Workload.

    `unmounted`: by pod, why a volume is not there yet.
    """

    pods: dict[str, Object] = field(default_factory=dict)
    unmounted: dict[str, str] = field(default_factory=dict)
    parent: Object | None = None
    complaint: Complaint | None = None
    workload: Object | None = None
    managed: bool = False  # Kueue has had a Workload of it, which it may make anew
    deleted: bool = False

    def take_pod(self, change: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        if change == "DELETED":
            self.pods.pop(name, None)
        else:
            self.pods[name] = pod
            self.complaint = None

    def take_pods(self, pods: Iterable[Object]) -> None:
        """All pods there are."""
        self.pods = {}
        for pod in pods:
            self.take_pod("LISTED", pod)

    def take_parent(self, change: str, parent: Object) -> None:
        self.parent = parent
        self.deleted = change == "DELETED"

    def take_workload(self, change: str, workload: Object) -> None:
        self.workload = None if change == "DELETED" else workload
        self.managed = True
        if self._needs_no_pods():
            self.complaint = None

    def take_event(self, event: Object, now: float) -> None:
        if complaint := _COMPLAINTS.get(event.get("reason", "")):
            if not self._needs_no_pods():  # else it is an old one, which a watch that is begun anew lists again
                since = self.complaint.since if self.complaint else now
                self.complaint = Complaint(f"{complaint}: {event.get('message', '')}", since)
        elif event.get("reason") in _NOT_MOUNTED:
            self.unmounted[event["involvedObject"]["name"]] = one_line(event.get("message"))

    def _needs_no_pods(self) -> bool:
        """Whether it has some, or Kueue keeps it waiting."""
        return bool(self.pods or (self.workload and waits_for(self.workload)))


def ready(pods: Iterable[Object]) -> list[Object]:
    """The pods whose sshd answers, and that are here to stay."""
    return [pod for pod in pods if holding(pod, "Ready") and not _leaving(pod)]


def is_up(pod: Object) -> bool:
    """Whether somebody may log in: it runs and has an address, though its sshd need not answer yet."""
    status = pod.get("status", {})
    return bool(status.get("phase") == "Running" and status.get("podIP"))


def placed(pods: Iterable[Object]) -> list[Object]:
    """The pods that have a node, and are here to stay."""
    return [pod for pod in pods if pod["spec"].get("nodeName") and not _leaving(pod)]


def _leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@dataclass(frozen=True, slots=True)
class PodProblem:
    """What keeps a pod from ever being ready; `reason` names pod and node."""

    pod: str
    reason: str


def troubled(pods: Iterable[Object], before: Mapping[str, float], now: float) -> dict[str, float]:
    """Since when (s) each pod, by name, has had what may come right by itself; `before`: what this last gave."""
    names = [pod["metadata"]["name"] for pod in pods if _trouble(pod)]
    return {name: before.get(name, now) for name in names}


def problem(pods: Iterable[Object], since: Mapping[str, float], now: float) -> PodProblem | None:
    """The first pod that will never be ready, and why; None while there is hope. Those that leave do not count.

    `since` as `troubled` gives it, at `now`.
    """
    for pod in pods:
        name = pod["metadata"]["name"]
        long = now - since.get(name, now) >= _AGAIN_S
        if not _leaving(pod) and (reason := _pod_problem(pod) or (_trouble(pod) if long else None)):
            return PodProblem(name, joining.placed(f"pod {name}{_on(pod)}", reason))
    return None


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _trouble(pod: Object) -> str | None:
    """What the kubelet tries again."""
    waits = [container.get("state", {}).get("waiting") or {} for container in _containers(pod)]
    return next((_waiting_reason(_AGAIN, each) for each in waits if each.get("reason") in _AGAIN), None)


def _waiting_reason(reasons: Mapping[str, Callable[..., Reason]], waiting: Object) -> str:
    name = waiting["reason"]
    return reasons[name](waiting=name, message=first_line(waiting.get("message")))


def _is_final(message: str | None) -> bool:
    text = _NAMES.sub("", message or "")
    return bool(_FINAL.search(text)) and not _BUSY.search(text)


def _pod_problem(pod: Object) -> str | None:
    status = pod.get("status", {})
    own = status.get("containerStatuses", ())
    for container in _containers(pod):
        state = container.get("state", {})
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason") in _NEVER:
            return _waiting_reason(_NEVER, waiting)
        if waiting.get("reason") in _AGAIN and _is_final(waiting.get("message")):
            return _waiting_reason(_AGAIN, waiting)
        if ended and (ended.get("exitCode") or container in own):
            hint = "" if ended.get("exitCode") else ": has the image the entry point of images/common?"
            return Reason.of(
                "container-exited",
                name=container["name"],
                exit_code=ended.get("exitCode"),
                cause=_why(ended),
                hint=hint,
            )
    if status.get("phase") == "Failed":
        ended = f"{status.get('reason') or 'failed'}: {first_line(status.get('message'))}"
        return Reason.of("pod-failed", how=ended)
    return None


def story(
    pods: Iterable[Object], total: int, queued: Queued | None = None, unmounted: Mapping[str, str] | None = None
) -> str:
    """How far it has come, in one line, with what most of the others wait for; `unmounted` as in `RunState`."""
    pods = list(pods)
    if queued and not placed(pods):
        return queued.reason
    if len(placed(pods)) < total:
        wait = _waiting(_most(_unschedulable(pod) for pod in pods))
        return Reason.of("pods-unscheduled", placed=len(placed(pods)), requested=total, wait=wait)
    cause = _most(map(_trouble, pods)) or _most(_starting(pod, unmounted or {}) for pod in pods)
    reason = Reason.of("nodes-not-ready", ready=len(ready(pods)), requested=total, wait=_waiting(cause))
    return caused(reason, cause)


def _most(reasons: Iterable[str | None]) -> str | None:
    counted = Counter(reason for reason in reasons if reason).most_common(1)
    return counted[0][0] if counted else None


def _waiting(cause: str | None) -> str:
    return f"; waiting: {cause}" if cause else ""


def _unschedulable(pod: Object) -> str | None:
    scheduled = conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") != "False":
        return None
    # What the scheduler thinks of preemption comes behind, and helps nobody.
    return first_line(scheduled.get("message")).split(" preemption:")[0] or scheduled.get("reason")


def _starting(pod: Object, unmounted: Mapping[str, str]) -> str | None:
    if holding(pod, "Ready"):
        return None
    for container in pod.get("status", {}).get("containerStatuses", ()):
        if waiting := container.get("state", {}).get("waiting"):
            if why := unmounted.get(pod["metadata"]["name"]):
                return why
            return ": ".join(filter(None, (waiting.get("reason"), first_line(waiting.get("message")))))
    return Reason.of("sshd-not-ready")


def _on(pod: Object) -> str:
    node = pod["spec"].get("nodeName")
    return f" on {node}" if node else ""


def _why(ended: Object) -> str:
    reason = ended.get("message") or ended.get("reason")
    return f": {first_line(reason)}" if reason and reason not in ("Error", "Completed") else ""
