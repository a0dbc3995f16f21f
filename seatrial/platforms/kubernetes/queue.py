"""Why Kueue has not admitted a run yet, or never will. Pure: a Workload as the API server shows it in, words out.

The words of Kueue's conditions are those of release 0.19 (pkg/scheduler, apis/kueue/v1beta2); with its feature gate
UnadmittedWorkloadsObservability off, which is the default, only the message tells a short wait from one for ever.
"""

import re
from dataclasses import dataclass

from seatrial.platforms.kubernetes.launchers import Kind
from seatrial.platforms.kubernetes.plan import Object

WORKLOAD = Kind("kueue.x-k8s.io/v1beta1", "Workload", needs="Kueue (github.com/kubernetes-sigs/kueue)")
LOCAL_QUEUE = Kind("kueue.x-k8s.io/v1beta1", "LocalQueue", needs="Kueue (github.com/kubernetes-sigs/kueue)")
JOB_UID = "kueue.x-k8s.io/job-uid"  # label of a Workload: whose it is
UNMANAGED_S = 30.0  # Kueue makes the Workload within a second where it manages the object

_MORE_NEEDED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
_TOO_MUCH = re.compile(r"insufficient quota for (\S+) in flavor (\S+?),? .*maximum capacity")
_NO_QUEUE = re.compile(r"(?:Local|Cluster)Queue (\S+) doesn't exist")
_NEVER = ("ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured")


@dataclass(frozen=True, slots=True)
class Queued:
    """What a Workload waits for; `hopeless`: it will never be admitted as it is."""

    reason: str
    hopeless: bool = False


def waits_for(workload: Object) -> Queued | None:
    """What the Workload waits for; None once it is admitted."""
    status = workload.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
    if workload["spec"].get("active") is False:
        return Queued(f"Kueue has deactivated it: {_said(conditions.get('Evicted'))}", hopeless=True)
    if _holds(conditions, "Admitted"):
        return None
    if _holds(conditions, "QuotaReserved"):
        return Queued(f"queued: {_checks(status)}")
    reserved = conditions.get("QuotaReserved", {})
    if _holds(conditions, "Evicted") and not reserved.get("message"):
        return Queued(f"queued again after it was evicted: {_said(conditions['Evicted'])}")
    return _unreserved(reserved)


def _unreserved(condition: Object) -> Queued:
    message = " ".join(str(condition.get("message", "")).split())
    # The reasons of all flavors stand in one message: one that has only to wait is enough.
    if more := _MORE_NEEDED.search(message):
        resource, flavor, count = more.groups()
        return Queued(f"queued: {count} more {resource} needed in flavor {flavor}")
    if _TOO_MUCH.search(message) or _NO_QUEUE.search(message) or condition.get("reason") in _NEVER:
        return Queued(f"will never be admitted: {message}", hopeless=True)
    return Queued(f"queued: {message}" if message else "queued: Kueue has not looked at it yet")


def _checks(status: Object) -> str:
    """Quota is there; what else holds it up."""
    pending = [check for check in status.get("admissionChecks", ()) if check.get("state") != "Ready"]
    if not pending:
        return "quota is reserved, not admitted yet"
    told = [": ".join(filter(None, (check["name"], check.get("message") or check.get("state")))) for check in pending]
    return f"quota is reserved; waiting for admission check {', '.join(told)}"


def unmanaged(kind: str) -> Queued:
    """Kueue makes the Workload at once where it manages such objects at all."""
    why = f"Kueue made no Workload of the {kind} within {UNMANAGED_S:g} s"
    return Queued(f"{why}: is its integration with {kind} on, and is the namespace managed?", hopeless=True)


def preempted(workload: Object) -> str | None:
    """Why Kueue has taken the nodes away again, by its own words; None when it has not."""
    conditions = {condition["type"]: condition for condition in workload.get("status", {}).get("conditions", ())}
    return f"Kueue evicted it: {_said(conditions['Evicted'])}" if _holds(conditions, "Evicted") else None


def _holds(conditions: dict[str, Object], kind: str) -> bool:
    return bool(conditions.get(kind, {}).get("status") == "True")


def _said(condition: Object | None) -> str:
    if not condition:
        return "no reason is given"
    return f"{condition.get('reason')}: {' '.join(str(condition.get('message', '')).split())}"
