"""Why Kueue has not admitted a run yet, or never will. Pure: a Workload as the API server shows it in, words out.

The words of Kueue's conditions are those of release 0.19 (pkg/scheduler, apis/kueue/v1beta2). Its feature gate
UnadmittedWorkloadsObservability, off in that release and on after it, gives reasons that tell a short wait from one for
ever; without it only the message does.
"""

import re
from dataclasses import dataclass

from seatrial.model.reason import Reason, placed
from seatrial.platforms.kubernetes.conditions import conditions, holding
from seatrial.platforms.kubernetes.launchers import Kind
from seatrial.platforms.kubernetes.plan import Object
from seatrial.text.lines import one_line

_NEEDS = "Kueue (github.com/kubernetes-sigs/kueue)"
_V1BETA2, _V1BETA1 = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"  # before release 0.15 there was only the latter
WORKLOAD = Kind(_V1BETA2, "Workload", needs=_NEEDS, older=_V1BETA1)
LOCAL_QUEUE = Kind(_V1BETA2, "LocalQueue", needs=_NEEDS, older=_V1BETA1)
JOB_UID = "kueue.x-k8s.io/job-uid"  # label of a Workload: whose it is
UNMANAGED_S = 30.0  # Kueue makes the Workload within a second where it manages the object

_NEVER = ("ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured")
# Where the words tell: reasons without the feature gate, and one that is given also to who only lost to another.
# Every other reason says that it has to wait.
_MAYBE = ("Pending", "Inadmissible", "TopologyPlacementFailed", "")
_RETRIED = "Internal error: "  # as of a ResourceClaimTemplate that is not there yet: Kueue looks again

_POD_SET = re.compile(r"couldn't assign flavors to pod set \S+: ")
_MORE_NEEDED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
# A level has no domains also while the nodes that have it are cordoned, not Ready or not there yet.
_NO_PLACE = re.compile(r'topology "[^"]*" (?:allows|doesn\'t allow) to fit|no topology domains at level')
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
    ": let Kueue count the claims (its feature gate KueueDRAIntegration, once DynamicResourceAllocation, and the "
    "DeviceClass under resources.deviceClassMappings of its configuration), or leave out `queue`"
)


@dataclass(frozen=True, slots=True)
class Queued:
    """What a Workload waits for; `hopeless`: it will never be admitted as it is."""

    reason: str
    hopeless: bool = False


def is_of(workload: Object, uid: str) -> bool:
    """Whether it is the Workload of the object with that uid. Its label is not always there, its owner is."""
    metadata = workload["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", ())}
    return uid in owners or metadata.get("labels", {}).get(JOB_UID) == uid


def waits_for(workload: Object) -> Queued | None:
    """What the Workload waits for; None once it is admitted."""
    status = workload.get("status", {})
    known = conditions(workload)
    if workload["spec"].get("active") is False:
        return Queued(
            Reason.of("workload-deactivated", did="has deactivated it", words=_condition_text(known.get("Evicted"))),
            hopeless=True,
        )
    if holding(workload, "Finished"):
        return Queued(
            Reason.of("workload-deactivated", did="takes it for finished", words=_condition_text(known["Finished"])),
            hopeless=True,
        )
    reserved = known.get("QuotaReserved", {})
    if holding(workload, "Evicted") and _is_old(reserved, known["Evicted"]):
        return Queued(
            Reason.of("evicted", event="queued again after it was evicted", words=_condition_text(known["Evicted"]))
        )
    if holding(workload, "Admitted"):
        return None
    if holding(workload, "QuotaReserved"):
        return Queued(_checks(status))
    return _unreserved(reserved)


def _is_old(reserved: Object, evicted: Object) -> bool:
    """Whether nothing was said of the quota since the eviction: it is still held, or was just let go."""
    return reserved.get("status") == "True" or reserved.get("message", "") in ("", evicted.get("message"))


def _unreserved(condition: Object) -> Queued:
    message, reason = one_line(condition.get("message")), str(condition.get("reason", ""))
    # One pod set that has no flavor left is enough to be without hope, one flavor that is only full to have some.
    lost = reason in _NEVER or (reason in _MAYBE and any(map(_is_lost, _POD_SET.split(message))))
    if lost and _RETRIED not in message:
        hint = _LET_CLAIMS_IN if _CLAIMS_REFUSED.search(message) else ""
        return Queued(Reason.of("never-admitted", message=message, hint=hint), hopeless=True)
    if more := _more_needed(message):
        return Queued(more)
    return Queued(Reason.of("queued", checks=message) if message else Reason.of("queue-not-looked-at", what="queued"))


def _is_lost(of_pod_set: str) -> bool:
    """Whether what is said of a pod set, or of the whole Workload, leaves no flavor to wait for."""
    if _LOST.search(of_pod_set) or _CLAIMS_REFUSED.search(of_pod_set):
        return True
    lost = _lost_flavors(of_pod_set)
    full = {flavor for _, flavor, _ in _MORE_NEEDED.findall(of_pod_set)}
    return bool(lost) and not full - lost and not _NO_PLACE.search(of_pod_set)


def _more_needed(message: str) -> str | None:
    """What is missing in the first flavor that has only to be waited for, with the pod sets before it counted in."""
    lost = _lost_flavors(message)
    waits = {(resource, flavor): more for resource, flavor, more in _MORE_NEEDED.findall(message) if flavor not in lost}
    if not waits:
        return None
    (resource, flavor), more = next(iter(waits.items()))
    return Reason.of("queued", checks=f"{more} more {resource} needed in flavor {flavor}")


def _lost_flavors(message: str) -> set[str]:
    return {flavor for groups in _FLAVOR_LOST.findall(message) for flavor in groups if flavor}


def _checks(status: Object) -> str:
    """Quota is there; what else holds it up."""
    pending = [check for check in status.get("admissionChecks", ()) if check.get("state") != "Ready"]
    if not pending:
        return Reason.of("queued", checks="quota is reserved, not admitted yet")
    states = [": ".join(filter(None, (check["name"], check.get("message") or check.get("state")))) for check in pending]
    return placed("queued", Reason.of("admission-check-pending", words=", ".join(states)))


def unmanaged(kind: str, priority: str | None) -> Queued:
    """Kueue makes the Workload at once where it manages such objects at all, and knows the class of its priority."""
    asked = f"is its integration with {kind} on, is the namespace managed"
    asked += f", is there a {priority}?" if priority else "?"
    return Queued(Reason.of("no-workload", kind=kind, unmanaged_s=f"{UNMANAGED_S:g}", asked=asked), hopeless=True)


def preempted(workload: Object) -> str | None:
    """Why Kueue has taken the nodes away again, by its own words; None when it has not."""
    evicted = holding(workload, "Evicted")
    return Reason.of("evicted", event="Kueue evicted it", words=_condition_text(evicted)) if evicted else None


def _condition_text(condition: Object | None) -> str:
    if not condition:
        return "no reason is given"
    return f"{condition.get('reason')}: {one_line(condition.get('message'))}"
