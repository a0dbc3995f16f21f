"""What runs that nobody tends have left: their objects on the cluster, and their keys on this machine."""

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from seatrial.model.errors import InputError, SeatrialError
from seatrial.platforms import Leftover
from seatrial.platforms import state as states
from seatrial.platforms.kubernetes.api import POD, Api, UnknownKindError
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.launchers import Launcher, kinds, needs
from seatrial.platforms.kubernetes.plan import EXPIRES, OWNER, RUN_ID, TENDED_BY, Kind, Object, selector
from seatrial.platforms.state import this_owner


def leftovers(api: Api, settings: KubernetesPlatform, launcher: Launcher, name: str) -> list[Leftover]:
    """One for each such run. `name` is that of the state folders (`states.root_folder`).

    Raises SeatrialError where what every run makes cannot be looked at.
    """
    object_by_run: dict[str, Object] = {}
    tended_by: dict[str, str] = {}
    for kind in kinds():
        for manifest in filter(is_owned, _list(api, launcher, kind)):
            object_by_run.setdefault(manifest["metadata"]["labels"][RUN_ID], manifest)
            if pod := manifest["metadata"]["annotations"].get(TENDED_BY):
                tended_by[manifest["metadata"]["labels"][RUN_ID]] = pod
    pods = phases(api) if tended_by else {}
    # one that Succeeded has taken its nodes down, or keeps them on purpose
    died = {run_id for run_id, pod in tended_by.items() if pods.get(pod, "Failed") == "Failed"}
    objects = [
        Leftover(run_id, age_s(manifest), f"objects in namespace {settings.namespace}")
        for run_id, manifest in object_by_run.items()
        if run_id in died or is_abandoned(manifest, run_id, name)
    ]
    return objects + states.leftovers(
        name, "its keys on this machine", lambda folder: folder.name not in object_by_run and _is_of(folder, settings)
    )


def _list(api: Api, launcher: Launcher, kind: Kind) -> list[Object]:
    try:
        return api.list(kind, selector())
    except UnknownKindError:
        return []
    except SeatrialError:  # what other launchers make need not be allowed, or be served just now
        if needs(launcher, kind) and _is_known(api, kind):
            raise
        return []


def _is_known(api: Api, kind: Kind) -> bool:
    try:
        api.knows(kind)
    except UnknownKindError:
        return False
    return True


def _is_of(folder: Path, settings: KubernetesPlatform) -> bool:
    """Whether it is of a run on this cluster, in this namespace."""
    try:
        other = states.recall(folder).platform
    except InputError:
        return False
    return isinstance(other, KubernetesPlatform) and (other.context, other.namespace) == (
        settings.context,
        settings.namespace,
    )


def own_pod(api: Api, context: str | None) -> str | None:
    """The pod that this process runs in, where it is one of the namespace that the nodes go to."""
    name = socket.gethostname()
    in_cluster = not context and "KUBERNETES_SERVICE_HOST" in os.environ
    return name if in_cluster and name in phases(api) else None


def phases(api: Api) -> dict[str, str]:
    """Of the namespace's pods: Pending, Running, Succeeded, Failed, Unknown."""
    return {pod["metadata"]["name"]: pod.get("status", {}).get("phase", "Unknown") for pod in api.list(POD)}


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
