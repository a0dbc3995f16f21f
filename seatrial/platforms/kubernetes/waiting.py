"""Explanations of pods that are not ready and of runs that Kueue has not admitted. Pure.

Objects are as the API server shows them. The messages of Kueue's conditions are those of release
0.19 (pkg/scheduler, apis/kueue/v1beta2). Its feature gate UnadmittedWorkloadsObservability, off in
that release and on after it, gives reasons that distinguish a short wait from an endless one;
without it only the message does.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seatrial.causes import cause_in
from seatrial.model import reason as joining
from seatrial.model.reason import Reason, caused, uncoded
from seatrial.platforms.kubernetes.plan import Kind, Object, conditions, true_condition
from seatrial.text.lines import first_line, one_line

_NEEDS = "Kueue (github.com/kubernetes-sigs/kueue)"
# Before release 0.15 there was only the latter
_V1BETA2 = "kueue.x-k8s.io/v1beta2"
_V1BETA1 = "kueue.x-k8s.io/v1beta1"
WORKLOAD = Kind(_V1BETA2, "Workload", needs=_NEEDS, older=_V1BETA1)
LOCAL_QUEUE = Kind(_V1BETA2, "LocalQueue", needs=_NEEDS, older=_V1BETA1)
JOB_UID = "kueue.x-k8s.io/job-uid"  # label of a Workload: whose it is
UNMANAGED_S = 30.0  # Kueue makes the Workload within a second where it manages the object

_NEVER_ADMITTED = ("ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured")
# Where the words tell: reasons without the feature gate, and one that is given also to who only
# lost to another. Every other reason says that it has to wait.
_MAYBE = ("Pending", "Inadmissible", "TopologyPlacementFailed", "")
# As of a ResourceClaimTemplate that is not there yet: Kueue looks again
_RETRIED = "Internal error: "

_POD_SET = re.compile(r"couldn't assign flavors to pod set \S+: ")
_MORE_NEEDED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
# A level has no domains also while the nodes that have it are cordoned, not Ready or not there yet.
_NO_PLACE = re.compile(
    r'topology "[^"]*" (?:allows|doesn\'t allow) to fit|no topology domains at level'
)
_FLAVOR_LOST = re.compile(  # each names the flavor that is out of the question
    r"insufficient quota for \S+ in flavor ([^\s,]+),? [^>]*> maximum capacity"
    r"|untolerated taint .*? in flavor ([^\s,]+)"
    r"|flavor (\S+) (?:doesn't match node affinity|not found)"
    r'|Flavor "([^"]+)" (?:does not support|does not contain|supports only)'
)
_LOST = re.compile(
    r"(?:Local|Cluster)Queue \S+ (?:doesn't exist|is terminating or missing|not found)"
    r"|resource \S+ unavailable in ClusterQueue"
    r"|workload namespace doesn't match ClusterQueue selector"
    r"|must not exceed its limits|LimitRange"
)
_CLAIMS_REFUSED = re.compile(
    r"DeviceClass \S+ is not mapped"
    r"|resource claims not supported|does not support use of resource claims"
    r"|AllocationMode 'All' is not supported"
    r"|uses DRA resources but the \S+ feature gate is not enabled"
)
_LET_CLAIMS_IN = (
    ": let Kueue count the claims (its feature gate KueueDRAIntegration, once "
    "DynamicResourceAllocation, and the "
    "DeviceClass under resources.deviceClassMappings of its configuration), or leave out `queue`"
)
_Waits = Mapping[str, tuple[str, str]]  # code and problem by the kubelet's reason
# Waits that do not end without a change; the kubelet tries for ever.
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
# Problems that may pass when the kubelet tries again, such as a pull that a registry throttles.
_AGAIN: _Waits = {
    "ErrImagePull": ("image-pull", "the image cannot be pulled"),
    "ImagePullBackOff": ("image-pull", "the image cannot be pulled"),
    "RegistryUnavailable": ("image-pull", "the image cannot be pulled"),
    "ImageInspectError": ("image-pull", "the image cannot be read"),
    "CreateContainerError": ("container-start", "the container cannot be created"),
    "RunContainerError": ("container-start", "the container cannot be started"),
}
_MAX_MESSAGE = 1000  # characters; what a runtime's hook says comes last
_AGAIN_S = 60.0  # by when it has come right, if ever
_FINAL = re.compile(  # words that say that it will not, and those of a registry that is only busy
    (
        r"\b(?:not found|manifest unknown|unauthorized|denied|forbidden|invalid|no "
        r"match(?:ing manifest)? for)\b"
    ),
    re.I,
)
_BUSY = re.compile(r"\b429\b|too ?many ?requests|quota exceeded", re.I)
_NAMES = re.compile(r'"[^"]*"')  # an image may be called anything
# Events of a pod without a container yet; the kubelet tries again.
_NOT_MOUNTED = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
_NOT_ADMITTED = "its pods are not admitted"
_NOT_QUEUED = "Kueue does not queue it"
# Events of pod-creating controllers that the API server refuses, and of Kueue; they all try again.
_COMPLAINTS = {
    "FailedCreate": _NOT_ADMITTED,  # a Job
    "FailedCreatePod": _NOT_ADMITTED,  # Kubeflow's training operator
    "JobCreationFailed": _NOT_ADMITTED,  # JobSet
    "MPIJobFailed": _NOT_ADMITTED,  # Kubeflow's MPI operator
    "TrainJobResourcesCreationFailed": _NOT_ADMITTED,  # Kubeflow Trainer
    "WorkloadPriorityClassNotFound": _NOT_QUEUED,
}


@dataclass(frozen=True, slots=True)
class Queued:
    """State of a Workload that is not admitted; `hopeless`: it never will be."""

    reason: Reason
    hopeless: bool = False


def is_of(workload: Object, uid: str) -> bool:
    """Return whether it is the Workload of the object with that uid, by its label, if it has one,
    or its owner.
    """
    metadata = workload["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", ())}
    return uid in owners or metadata.get("labels", {}).get(JOB_UID) == uid


def waits_for(workload: Object) -> Queued | None:
    """Explain the wait of a Workload; None once it is admitted."""
    by_type = conditions(workload)
    if workload["spec"].get("active") is False:
        words = _condition_text(by_type.get("Evicted"))
        return Queued(
            Reason.of("workload-deactivated", did="has deactivated it", words=words), hopeless=True
        )
    if true_condition(workload, "Finished"):
        words = _condition_text(by_type["Finished"])
        return Queued(
            Reason.of("workload-deactivated", did="takes it for finished", words=words),
            hopeless=True,
        )
    reserved = by_type.get("QuotaReserved", {})
    # No condition of the quota since the eviction: it is still held, or was just released.
    quota_words = ("", by_type.get("Evicted", {}).get("message"))
    is_old = reserved.get("status") == "True" or reserved.get("message", "") in quota_words
    if true_condition(workload, "Evicted") and is_old:
        return Queued(_evicted("queued again after it was evicted", by_type["Evicted"]))
    if true_condition(workload, "Admitted"):
        return None
    if true_condition(workload, "QuotaReserved"):
        return Queued(_pending_checks(workload["status"]))
    return _unreserved(reserved)


def _unreserved(condition: Object) -> Queued:
    message = one_line(condition.get("message"))
    reason = str(condition.get("reason", ""))
    # One pod set that has no flavor left is enough to be without hope, one flavor that is only full
    # to have some.
    lost = reason in _NEVER_ADMITTED or (
        reason in _MAYBE and any(map(_is_lost, _POD_SET.split(message)))
    )
    if lost and _RETRIED not in message:
        hint = _LET_CLAIMS_IN if _CLAIMS_REFUSED.search(message) else ""
        return Queued(Reason.of("never-admitted", message=message, hint=hint), hopeless=True)
    lost_flavors = _lost_flavors(message)
    waits = {
        (resource, flavor): more
        for resource, flavor, more in _MORE_NEEDED.findall(message)
        if flavor not in lost_flavors
    }
    if waits:
        (resource, flavor), more = next(iter(waits.items()))  # the first that may become free
        return Queued(
            Reason.of("queued", checks=f"{more} more {resource} needed in flavor {flavor}")
        )
    return Queued(
        Reason.of("queued", checks=message)
        if message
        else Reason.of("queue-not-looked-at", what="queued")
    )


def _is_lost(of_pod_set: str) -> bool:
    """Return whether the message about a pod set, or about the whole Workload, leaves no flavor to
    wait for.
    """
    if _LOST.search(of_pod_set) or _CLAIMS_REFUSED.search(of_pod_set):
        return True
    lost = _lost_flavors(of_pod_set)
    full = {flavor for _, flavor, _ in _MORE_NEEDED.findall(of_pod_set)}
    return bool(lost) and not full - lost and not _NO_PLACE.search(of_pod_set)


def _lost_flavors(message: str) -> set[str]:
    return {flavor for groups in _FLAVOR_LOST.findall(message) for flavor in groups if flavor}


def _pending_checks(status: Object) -> Reason:
    """Return the admission checks that are not Ready."""
    pending = [
        check for check in status.get("admissionChecks", ()) if check.get("state") != "Ready"
    ]
    if not pending:
        return Reason.of("queued", checks="quota is reserved, not admitted yet")
    states = [
        ": ".join(filter(None, (check["name"], check.get("message") or check.get("state"))))
        for check in pending
    ]
    return joining.placed("queued", Reason.of("admission-check-pending", words=", ".join(states)))


def unmanaged(kind: str, priority: str | None) -> Queued:
    """Return the state of a run for which Kueue makes no Workload.

    It makes one at once if it manages such objects at all, and knows the class of its priority.
    """
    asked = f"is its integration with {kind} on, is the namespace managed"
    asked += f", is there a {priority}?" if priority else "?"
    return Queued(
        Reason.of("no-workload", kind=kind, unmanaged_s=f"{UNMANAGED_S:g}", asked=asked),
        hopeless=True,
    )


def preempted(workload: Object) -> Reason | None:
    """Return Kueue's message of an eviction; None without one."""
    evicted = true_condition(workload, "Evicted")
    return _evicted("Kueue evicted it", evicted) if evicted else None


def _evicted(event: str, condition: Object) -> Reason:
    code = "evicted-pods-not-ready" if condition.get("reason") == "PodsReadyTimeout" else "evicted"
    return Reason.of(code, event=event, words=_condition_text(condition))


def _condition_text(condition: Object | None) -> str:
    if not condition:
        return "no reason is given"
    return f"{condition.get('reason')}: {one_line(condition.get('message'))}"


@dataclass(frozen=True, slots=True)
class Complaint:
    """A refusal to create pods; `since` is the time of its first event, in seconds."""

    text: str
    since: float


@dataclass(slots=True)
class SeenObjects:
    """The pods of a run by name, its parent, its Workload in Kueue, and complaints, as seen so far.

    `unmounted`: by pod, why a volume or its sandbox is not there yet.
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
        """Replace all pods."""
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
            # Else it is an old one, which a watch that is begun anew lists again
            if not self._needs_no_pods():
                since = self.complaint.since if self.complaint else now
                self.complaint = Complaint(f"{complaint}: {event.get('message', '')}", since)
        elif event.get("reason") in _NOT_MOUNTED:
            self.unmounted[event["involvedObject"]["name"]] = one_line(event.get("message"))

    def _needs_no_pods(self) -> bool:
        """Return whether it has some, or Kueue keeps it waiting."""
        return bool(self.pods or (self.workload and waits_for(self.workload)))


def ready(pods: Iterable[Object]) -> list[Object]:
    """Return the pods whose sshd answers, and that are here to stay."""
    return [pod for pod in pods if true_condition(pod, "Ready") and not _leaving(pod)]


def is_up(pod: Object) -> bool:
    """Return whether people can log in: it runs and has an address, though its sshd need not answer
    yet.
    """
    status = pod.get("status", {})
    return bool(status.get("phase") == "Running" and status.get("podIP"))


def placed(pods: Iterable[Object]) -> list[Object]:
    """Return the pods that have a node, and are here to stay."""
    return [pod for pod in pods if pod["spec"].get("nodeName") and not _leaving(pod)]


def _leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@dataclass(frozen=True, slots=True)
class PodProblem:
    """A pod that will never be ready; `reason` names pod and node."""

    pod: str
    reason: Reason


def problem_starts(
    pods: Iterable[Object], before: Mapping[str, float], now: float
) -> dict[str, float]:
    """Return times (s) since when each pod, by name, has had a problem that may pass; `before` is
    the last result.
    """
    names = [pod["metadata"]["name"] for pod in pods if _trouble(pod)]
    return {name: before.get(name, now) for name in names}


def problem(pods: Iterable[Object], since: Mapping[str, float], now: float) -> PodProblem | None:
    """Return the first pod that will never be ready, if any, without pods that are being deleted.

    `since` as `problem_starts` gives it, at `now`.
    """
    for pod in pods:
        name = pod["metadata"]["name"]
        long = now - since.get(name, now) >= _AGAIN_S
        if not _leaving(pod) and (reason := _pod_problem(pod) or (_trouble(pod) if long else None)):
            node = pod["spec"].get("nodeName")
            return PodProblem(
                name, joining.placed(f"pod {name} on {node}" if node else f"pod {name}", reason)
            )
    return None


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _trouble(pod: Object) -> Reason | None:
    """Return the error that the kubelet is retrying."""
    waits = [container.get("state", {}).get("waiting") or {} for container in _containers(pod)]
    return next(
        (_waiting_reason(_AGAIN, each) for each in waits if each.get("reason") in _AGAIN), None
    )


def _waiting_reason(waits: _Waits, waiting: Object) -> Reason:
    name = waiting["reason"]
    message = waiting.get("message")
    code, problem = waits[name]
    cause = cause_in(message or "")
    words = cause.evidence if cause else one_line(message)[:_MAX_MESSAGE]
    reason = Reason.of(code, problem=problem, waiting=name, message=words)
    return Reason(cause.code, {"evidence": cause.evidence}, reason.sentence) if cause else reason


def _is_final(message: str | None) -> bool:
    text = _NAMES.sub("", message or "")
    return bool(_FINAL.search(text)) and not _BUSY.search(text)


def _pod_problem(pod: Object) -> Reason | None:
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
    """Return the progress in one line, with what most of the others wait for; `unmounted` as in
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
    counted = Counter(reason for reason in reasons if reason).most_common(1)
    return counted[0][0] if counted else None


def _waiting(cause: Reason | None) -> str:
    return f"; waiting: {cause}" if cause else ""


def _unschedulable(pod: Object) -> Reason | None:
    scheduled = conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") != "False":
        return None
    # Details of preemption follow, and are of no use here.
    return uncoded(
        first_line(scheduled.get("message")).split(" preemption:")[0]
        or scheduled.get("reason")
        or ""
    )


def _starting(pod: Object, unmounted: Mapping[str, str]) -> Reason | None:
    if true_condition(pod, "Ready"):
        return None
    for container in pod.get("status", {}).get("containerStatuses", ()):
        if waiting := container.get("state", {}).get("waiting"):
            words = ": ".join(
                filter(
                    None, (waiting.get("reason"), one_line(waiting.get("message"))[:_MAX_MESSAGE])
                )
            )
            return uncoded(unmounted.get(pod["metadata"]["name"]) or words)
    return Reason.of("sshd-not-ready")
