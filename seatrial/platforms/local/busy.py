"""A local cluster that plays one at work: jobs that have nodes, nodes at the gate, and nodes out of service.

The stage is one file of this user's for each cluster. A job that starts on a node ends the test that has it, as a
scheduler with preemption does.

    python -m seatrial.platforms.local.busy CLUSTER job NAME NODE...      a job starts on the nodes
    python -m seatrial.platforms.local.busy CLUSTER end NAME              it ends
    python -m seatrial.platforms.local.busy CLUSTER gate NODE...          nodes come to the gate
    python -m seatrial.platforms.local.busy CLUSTER show
"""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.model.errors import InputError
from seatrial.platforms import state as states
from seatrial.system.private import closed_folder, private_opener
from seatrial.system.state_home import state_home

_MOST_BYTES = 1 << 20
_MOST_GIVEN = 100  # runs that gave way, the last ones


class Stage(BaseModel):
    """The nodes of each job, those at the gate with what they failed, those that are out with the reason.

    `given` has the job that each run gave way to.
    """

    model_config = ConfigDict(extra="forbid")

    jobs: dict[str, list[str]] = Field(default_factory=dict, max_length=1000)
    gated: dict[str, str] = Field(default_factory=dict, max_length=1000)
    out: dict[str, str] = Field(default_factory=dict, max_length=1000)
    given: dict[str, str] = Field(default_factory=dict, max_length=1000)

    def job_on(self, node: str) -> str | None:
        """The job that has the node."""
        return next((job for job, nodes in self.jobs.items() if node in nodes), None)


def read(cluster: str) -> Stage:
    """The stage of the cluster; empty where nothing plays."""
    with opened(cluster) as (stage, _):
        return stage


@contextmanager
def opened(cluster: str) -> Iterator[tuple[Stage, Callable[[], None]]]:
    """The stage, locked until the end of the block, and a function that writes it to the file."""
    path = closed_folder(state_home() / "busy") / f"{cluster}.json"
    file = private_opener(str(path), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = os.pread(file, _MOST_BYTES, 0)
        try:
            stage = Stage.model_validate_json(text) if text else Stage()
        except ValidationError as error:
            raise InputError(f"{path}: is not what was written; remove it") from error

        def keep() -> None:
            written = stage.model_dump_json(indent=1).encode()
            os.ftruncate(file, 0)
            os.pwrite(file, written, 0)

        yield stage, keep
    finally:
        os.close(file)


def start_job(cluster: str, job: str, nodes: Sequence[str]) -> list[str]:
    """Start a job on the nodes; the runs that have them are ended and returned. Raises InputError for a busy node."""
    with opened(cluster) as (stage, keep):
        for node in nodes:
            if other := stage.job_on(node) or stage.out.get(node) or (node in stage.gated and "it is at the gate"):
                raise InputError(f"{node}: is not free: {other}")
        ended = runs_on(cluster, nodes)
        for run_id in ended:
            stage.given[run_id] = job
        stage.given = dict(list(stage.given.items())[-_MOST_GIVEN:])
        stage.jobs[job] = list(nodes)
        keep()
    from seatrial.platforms.local.platform import PLATFORM  # which asks the stage itself

    for run_id in ended:
        PLATFORM.teardown(run_id)
    return ended


def end_job(cluster: str, job: str) -> None:
    """End a job; its nodes are idle again."""
    with opened(cluster) as (stage, keep):
        stage.jobs.pop(job, None)
        keep()


def to_gate(cluster: str, nodes: Sequence[str]) -> None:
    """Put nodes to the gate, as new or repaired ones."""
    with opened(cluster) as (stage, keep):
        for node in nodes:
            stage.gated[node] = ""
            stage.out.pop(node, None)
        keep()


def runs_on(cluster: str, nodes: Sequence[str]) -> list[str]:
    """The runs of this user that have taken one of the nodes."""
    found = []
    for folder in states.folders("local"):
        try:
            described = states.recall(folder)
        except InputError:  # it only just begins or ends
            continue
        if described.name == cluster and set(nodes) & set(described.node_names()):
            found.append(folder.name)
    return found


def main(arguments: Sequence[str]) -> int:
    """Change the stage as a person asks; see the module."""
    match list(arguments):
        case [cluster, "job", name, *nodes] if nodes:
            for run_id in start_job(cluster, name, nodes):
                sys.stdout.write(f"run {run_id} gave way\n")
        case [cluster, "end", name]:
            end_job(cluster, name)
        case [cluster, "gate", *nodes] if nodes:
            to_gate(cluster, nodes)
        case [cluster, "show"]:
            sys.stdout.write(f"{read(cluster).model_dump_json(indent=1)}\n")
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
