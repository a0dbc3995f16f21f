"""Whose run an object belongs to, and whether anybody still tends it.

Only the owner can tell whether a run's process lives: the same user in the same process tree of the same machine. Of a
run in a pod of its own namespace everybody sees the pod. For the rest a run is abandoned once the time that it gave
itself is over.
"""

import os
import socket
from datetime import UTC, datetime

from seatrial.platforms import state as states
from seatrial.platforms.kubernetes import api as server
from seatrial.platforms.kubernetes.plan import EXPIRES, OWNER, Object
from seatrial.platforms.state import this_owner


def own_pod(api: "server.Api", context: str | None) -> str | None:
    """The pod that this process runs in, where it is one of the namespace that the nodes go to."""
    name = socket.gethostname()
    in_cluster = not context and "KUBERNETES_SERVICE_HOST" in os.environ
    return name if in_cluster and name in phases(api) else None


def phases(api: "server.Api") -> dict[str, str]:
    """Of the namespace's pods: Pending, Running, Succeeded, Failed, Unknown."""
    return {pod["metadata"]["name"]: pod.get("status", {}).get("phase", "Unknown") for pod in api.list(server.POD)}


def is_owned(manifest: Object) -> bool:
    """Whether it says whose it is. What controllers make of a run's objects has its labels, and does not."""
    return OWNER in (manifest["metadata"].get("annotations") or {})


def is_abandoned(manifest: Object, run_id: str, folder: str) -> bool:
    """Whether nobody tends the run that made `thing`, as far as the thing itself and this machine can tell."""
    annotations = manifest["metadata"].get("annotations") or {}
    if annotations.get(OWNER) == this_owner(folder):
        own = states.run_folder(run_id, folder)
        return states.is_abandoned(own) if own.exists() else age_s(manifest) > 60
    try:
        return datetime.now(UTC) > datetime.fromisoformat(annotations[EXPIRES])
    except (KeyError, ValueError):
        return False  # not by us, or by a version that says it otherwise


def age_s(manifest: Object) -> float:
    """Seconds since the API server made it."""
    made = datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - made).total_seconds()
