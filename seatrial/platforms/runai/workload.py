"""A run as a RunAI workload: what is submitted, and what `runai describe` tells of it. Pure."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from seatrial.config.image import Prebuilt
from seatrial.config.run import Run
from seatrial.model.reason import Reason
from seatrial.platforms.runai.config import RunaiPlatform
from seatrial.text.printable import printable

# The schema is not published, and differs between versions: the first of these names that is there counts.
_PHASE = ("actualPhase", "phase", "status")
_WORDS = ("message", "reason")
_RUNNING = "Running"
_OVER = frozenset({"Failed", "Stopped", "Stopping", "Completed", "Deleting", "Terminating"})
_DEPTH, _WORDS_TOLD = 8, 3


class DescribedWorkload(BaseModel):
    """What RunAI says of it: `phase` one word, `words` why it is there, newest last."""

    phase: str = Field("Unknown", max_length=100)
    words: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        return self.phase == _RUNNING

    @property
    def is_over(self) -> bool:
        return self.phase in _OVER

    @property
    def shown(self) -> str:
        return "; ".join((self.phase, *self.words))


def workload_name(run_id: str) -> str:
    """By which a run's workload is found again."""
    return f"seatrial-{run_id}".lower()


def pod_names(settings: RunaiPlatform, run_id: str, nodes: int) -> list[str]:
    """The pods that are nodes, in the order of the hostfile: the launcher of MPI is none, PyTorch's master is one."""
    name = workload_name(run_id)
    if settings.framework == "mpi":
        return [f"{name}-worker-{i}" for i in range(nodes)]
    return [f"{name}-master-0", *(f"{name}-worker-{i}" for i in range(nodes - 1))]


def submit_argv(run: Run, settings: RunaiPlatform) -> list[str]:
    """Holds the nodes, and does nothing on them, until somebody deletes it or its time is over."""
    cluster, mpi = run.cluster, settings.framework == "mpi"
    workers = cluster.nodes if mpi else cluster.nodes - 1
    options = [
        f"--project={settings.project}",
        f"--image={_image(run)}",
        f"--workers={workers}",
        *([f"--gpu-devices-request={cluster.gpus}"] if cluster.gpus else []),
        *([f"--slots-per-worker={cluster.slots}"] if mpi else []),
        *([f"--node-pools={settings.node_pool}"] if settings.node_pool else []),
        *(["--large-shm"] if settings.large_shm else []),
        *(f"--capability={name}" for name in settings.capabilities),
        *(f"--extended-resource={name}={count}" for name, count in sorted(settings.extended_resources.items())),
        *settings.args,
    ]
    submit = ["runai", "training", settings.framework, "submit", workload_name(run.run_id), *options]
    return [*submit, "--command", "--", "sleep", str(settings.deadline_s)]


def _image(run: Run) -> str:
    """What the step `image` has built, else the reference of the cluster file."""
    image = run.cluster.image
    return run.image or (image.reference if isinstance(image, Prebuilt) else "<built for each run>")


def command_argv(settings: RunaiPlatform, verb: str, run_id: str, *options: str) -> list[str]:
    """Another command about the workload of a run."""
    named = ["runai", "training", settings.framework, verb, workload_name(run_id)]
    return [*named, f"--project={settings.project}", *options]


def exec_argv(settings: RunaiPlatform, run_id: str, pod: str, command: list[str], *options: str) -> list[str]:
    """A command in a pod, with this process's standard input and output."""
    return command_argv(settings, "exec", run_id, f"--pod={pod}", "--stdin", *options, "--", *command)


def read_workload(text: str) -> DescribedWorkload:
    """Of `describe --output json`; phase Unknown where the text is anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return DescribedWorkload(phase="Unknown", words=("runai describe printed no JSON",))
    phases = [value for key in _PHASE for value in _values(document, key)]
    words = dict.fromkeys(printable(value)[:300] for key in _WORDS for value in _values(document, key) if value)
    try:
        return DescribedWorkload(phase=phases[0] if phases else "Unknown", words=tuple(words)[-_WORDS_TOLD:])
    except ValidationError:
        return DescribedWorkload(phase="Unknown")


def _values(document: Any, key: str, depth: int = 0) -> Iterator[str]:
    """The texts under that key, those that are nearest to the top of each branch first."""
    if depth > _DEPTH:
        return
    if isinstance(document, dict):
        if isinstance(value := document.get(key), str):
            yield value
        children: list[Any] = list(document.values())
    else:
        children = document if isinstance(document, list) else []
    for child in children:
        yield from _values(child, key, depth + 1)


def ending(run_id: str, workload: DescribedWorkload | None) -> str | None:
    """Why the nodes of a run are gone; None while they should be there."""
    name = workload_name(run_id)
    if workload is None:
        return Reason.of("runai-workload-ended", workload=name, how="was deleted")
    return (
        Reason.of("runai-workload-ended", workload=name, how=f"ended: {workload.shown}") if workload.is_over else None
    )
