"""Explanations of runs that Kueue has not admitted. Pure.

The messages of Kueue's conditions are those of release 0.19 (pkg/scheduler, apis/kueue/v1beta2).
Its feature gate UnadmittedWorkloadsObservability, off in that release and on after it, gives
reasons that distinguish a short wait from an endless one; without it only the message does.
"""

import re
from dataclasses import dataclass

from seatrial.model import reason as joining
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.plan import Kind, Object, conditions, true_condition
from seatrial.text.lines import one_line

_NEEDS = "Kueue (github.com/kubernetes-sigs/kueue)"
# Releases before 0.15 serve v1beta1 only
_V1BETA2 = "kueue.x-k8s.io/v1beta2"
_V1BETA1 = "kueue.x-k8s.io/v1beta1"
WORKLOAD = Kind(_V1BETA2, "Workload", needs=_NEEDS, older=_V1BETA1)
LOCAL_QUEUE = Kind(_V1BETA2, "LocalQueue", needs=_NEEDS, older=_V1BETA1)
JOB_UID = "kueue.x-k8s.io/job-uid"  # label of a Workload: the uid of its object
UNMANAGED_S = 30.0  # Kueue creates the Workload within a second if it manages the object
_NEVER_ADMITTED = ("ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured")
# Reasons whose message decides: those without the feature gate, and one that is also given if
# another Workload was chosen first. Every other reason means that it has to wait.
_MAYBE = ("Pending", "Inadmissible", "TopologyPlacementFailed", "")
# For example a ResourceClaimTemplate that does not exist yet: Kueue retries
_RETRIED = "Internal error: "
_POD_SET = re.compile(r"couldn't assign flavors to pod set \S+: ")
_MORE_NEEDED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
# A level also lacks domains while its nodes are cordoned, not Ready or not yet created.
_NO_PLACE = re.compile(
    r'topology "[^"]*" (?:allows|doesn\'t allow) to fit|no topology domains at level'
)
_FLAVOR_LOST = re.compile(  # each names a flavor that is excluded
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


@dataclass(frozen=True, slots=True)
class Queued:
    """State of a Workload that is not admitted; `hopeless`: it never will be."""

    reason: Reason
    hopeless: bool = False


def is_of(workload: Object, uid: str) -> bool:
    """Return whether the Workload belongs to the object with that uid, by its label or owner."""
    metadata = workload["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", ())}
    return uid in owners or metadata.get("labels", {}).get(JOB_UID) == uid


def waits_for(workload: Object) -> Queued | None:
    """Explain why a Workload waits; None once it is admitted."""
    by_type = conditions(workload)
    ended = None
    if workload["spec"].get("active") is False:
        ended = ("has deactivated it", "Evicted")
    elif true_condition(workload, "Finished"):
        ended = ("takes it for finished", "Finished")
    if ended:
        did, condition = ended
        words = _condition_text(by_type.get(condition))
        return Queued(Reason.of("workload-deactivated", did=did, words=words), hopeless=True)
    reserved = by_type.get("QuotaReserved", {})
    # The quota has no condition since the eviction: it is still held, or was just released.
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
    # A pod set is hopeless if no flavor is left; a flavor that is only full leaves hope.
    lost = reason in _NEVER_ADMITTED or (
        reason in _MAYBE and any(map(_is_lost, _POD_SET.split(message)))
    )
    if lost and _RETRIED not in message:
        return Queued(
            Reason.of(
                "never-admitted",
                message=message,
                hint=_LET_CLAIMS_IN if _CLAIMS_REFUSED.search(message) else "",
            ),
            hopeless=True,
        )
    lost_flavors = _lost_flavors(message)
    waits = {
        (resource, flavor): more
        for resource, flavor, more in _MORE_NEEDED.findall(message)
        if flavor not in lost_flavors
    }
    if waits:
        (resource, flavor), more = next(iter(waits.items()))  # the first quota that may become free
        return Queued(
            Reason.of("queued", checks=f"{more} more {resource} needed in flavor {flavor}")
        )
    return Queued(
        Reason.of("queued", checks=message)
        if message
        else Reason.of("queue-not-looked-at", what="queued")
    )


def _is_lost(of_pod_set: str) -> bool:
    """Return whether the message about a pod set, or the whole Workload, excludes all flavors."""
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
    """Return the state of a run for which Kueue creates no Workload.

    Kueue does so at once if it manages such objects, and knows the priority class.
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
