"""What became of a pod that does not run any more. Pure."""

from collections.abc import Iterable

from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.plan import Object


def termination_message(pod: Object | None, name: str) -> str | None:
    """How the pod ended, in one line that names it; None while it runs. `pod` is None where the API server has none."""
    if pod is None:
        return Reason.of("pod-failed", how=f"pod {name} is gone")
    status = pod.get("status", {})
    if status.get("reason"):  # such as Evicted; the containers only show that they were killed
        message = ": ".join(filter(None, (status["reason"], status.get("message"))))
        return Reason.of("pod-failed", how=f"pod {name}: {message}")
    if ended := _ended(pod):
        why = f" ({ended['reason']})" if ended.get("reason") not in (None, "Error", "Completed") else ""
        return Reason.of("pod-exited", name=name, exit_code=ended["exitCode"], cause=why)
    phase = str(status.get("phase"))
    return Reason.of("pod-failed", how=f"pod {name} has {phase.lower()}") if phase in ("Failed", "Succeeded") else None


def first_to_end(pods: Iterable[Object]) -> str | None:
    """How the first of the pods that ended by themselves did so; None where all that ended had been deleted."""
    by_themselves = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    fates = [
        (str((_ended(pod) or {}).get("finishedAt") or "~"), termination_message(pod, pod["metadata"]["name"]))
        for pod in by_themselves
    ]
    return min(((when, how) for when, how in fates if how), default=(None, None))[1]


def _ended(pod: Object) -> Object | None:
    """How a container of the pod ended: the one that failed, where one did."""
    states = [each.get("state", {}).get("terminated") for each in pod.get("status", {}).get("containerStatuses", ())]
    ended: list[Object] = [state for state in states if state]
    return max(ended, key=lambda state: bool(state["exitCode"]), default=None)
