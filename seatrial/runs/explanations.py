"""All codes of reasons by area."""

from collections.abc import Mapping

from seatrial import builders, causes, checks, history, localize, model, platforms, qualify, readers, remote, runs
from seatrial.checks import collectives, connectivity, devices, training
from seatrial.checks import localize as localize_step
from seatrial.model.reason import Explanation
from seatrial.platforms import baremetal, docker, kubernetes, local, runai, slurm
from seatrial.readers import flight_recorder

AREAS: Mapping[str, Mapping[str, Explanation]] = {
    "The run": runs.REASONS,
    "Image": builders.REASONS,
    "Kubernetes": kubernetes.REASONS,
    "Slurm": slurm.REASONS,
    "Docker": docker.REASONS,
    "RunAI": runai.REASONS,
    "Bare metal": {**platforms.REASONS, **baremetal.REASONS},
    "Local nodes": local.REASONS,
    "Nodes": remote.REASONS,
    "Checks": checks.REASONS,
    "Connectivity": connectivity.REASONS,
    "Collectives": collectives.REASONS,
    "Logs": causes.REASONS,
    "Other tools": readers.REASONS,
    "Training": {**training.REASONS, **flight_recorder.REASONS},
    "Devices": devices.REASONS,
    "Qualification": qualify.REASONS,
    "Localisation": {**localize.REASONS, **localize_step.REASONS},
    "Numbers": model.REASONS,
    "History": history.REASONS,
}
CATALOG: Mapping[str, Explanation] = {code: entry for area in AREAS.values() for code, entry in area.items()}
_CURRENT = {former: code for code, entry in CATALOG.items() for former in entry.formerly}


def current(code: str) -> str:
    """The code that stands for `code` today, which an earlier version may have written."""
    return _CURRENT.get(code, code)
