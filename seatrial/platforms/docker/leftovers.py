"""What runs that nobody tends have left on a Docker host, by its labels, and their keys on this machine."""

import time
from collections.abc import Mapping
from pathlib import Path

from seatrial.model.errors import InputError
from seatrial.platforms import Leftover
from seatrial.platforms import state as states
from seatrial.platforms.docker.config import DockerPlatform
from seatrial.platforms.docker.daemon import Daemon
from seatrial.platforms.docker.plan import EXPIRES, MADE, OWNER, RUN_ID
from seatrial.platforms.state import this_owner

KIND = "docker"  # of the folders of runs on this machine
_GRACE_S = 60  # a run that begins has its folder before its containers; one that ends has lost it last

Labels = Mapping[str, str]


def leftovers(daemon: Daemon, settings: DockerPlatform) -> list[Leftover]:
    """One for each such run."""
    labels_by_run = _labels_by_run(daemon)
    objects = [
        Leftover(run_id, max(0.0, time.time() - _seconds(labels, MADE, time.time())), "containers and network")
        for run_id, labels in labels_by_run.items()
        if is_abandoned(run_id, labels)
    ]
    return objects + states.leftovers(
        KIND, "its keys on this machine", lambda folder: folder.name not in labels_by_run and _is_of(folder, settings)
    )


def _labels_by_run(daemon: Daemon) -> dict[str, Labels]:
    """Of everything that has our labels. Anybody may have written them."""
    every: list[Labels] = [container.labels for container in daemon.containers()]
    every += [network.attrs.get("Labels") or {} for network in daemon.networks()]
    return {labels[RUN_ID]: labels for labels in every if _is_run_id(labels.get(RUN_ID, ""))}


def _is_run_id(text: str) -> bool:
    try:
        states.run_folder(text, KIND)
    except InputError:
        return False
    return True


def is_abandoned(run_id: str, labels: Labels) -> bool:
    """Whether nobody tends the run, as far as its labels and this machine can tell."""
    now = time.time()
    if labels.get(OWNER) == this_owner(KIND):
        folder = states.run_folder(run_id, KIND)
        return states.is_abandoned(folder) if folder.exists() else now - _seconds(labels, MADE, now) > _GRACE_S
    return now > _seconds(labels, EXPIRES, now)


def _seconds(labels: Labels, name: str, otherwise: float) -> float:
    """Of the epoch, as a label has it."""
    text = labels.get(name, "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 12 else otherwise


def _is_of(folder: Path, settings: DockerPlatform) -> bool:
    """Whether it is of a run on this Docker host, or of one that never came as far as saying so."""
    try:
        other = states.recall(folder).platform
    except InputError:
        return True
    return isinstance(other, DockerPlatform) and (other.host, other.context) == (settings.host, settings.context)
