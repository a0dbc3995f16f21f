"""What runs that nobody tends have left: their objects on the cluster, and their keys on this machine."""

from pathlib import Path

from seatrial.model.errors import InputError, SeatrialError
from seatrial.platforms import Leftover
from seatrial.platforms import state as states
from seatrial.platforms.kubernetes import ownership
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.launchers import Kind, Launcher
from seatrial.platforms.kubernetes.objects import kinds, needs
from seatrial.platforms.kubernetes.plan import RUN_ID, TENDED_BY, Object, selector
from seatrial.platforms.kubernetes.refusals import UnknownKindError


def leftovers(api: Api, settings: KubernetesPlatform, launcher: Launcher, name: str) -> list[Leftover]:
    """One for each such run. `name` is that of the state folders (`states.root_folder`).

    Raises SeatrialError where what every run makes cannot be looked at.
    """
    object_by_run: dict[str, Object] = {}
    tended_by: dict[str, str] = {}
    for kind in kinds():
        for manifest in filter(ownership.is_owned, _list(api, launcher, kind)):
            object_by_run.setdefault(manifest["metadata"]["labels"][RUN_ID], manifest)
            if pod := manifest["metadata"]["annotations"].get(TENDED_BY):
                tended_by[manifest["metadata"]["labels"][RUN_ID]] = pod
    pods = ownership.phases(api) if tended_by else {}
    # one that Succeeded has taken its nodes down, or keeps them on purpose
    died = {run_id for run_id, pod in tended_by.items() if pods.get(pod, "Failed") == "Failed"}
    objects = [
        Leftover(run_id, ownership.age_s(manifest), f"objects in namespace {settings.namespace}")
        for run_id, manifest in object_by_run.items()
        if run_id in died or ownership.is_abandoned(manifest, run_id, name)
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
