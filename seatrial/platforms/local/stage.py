"""The state of a local cluster that simulates one at work: a file of this user for each cluster."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.model.errors import InputError
from seatrial.system.private import closed_folder, private_opener
from seatrial.system.state_home import state_home

_MOST_BYTES = 1 << 20


class Stage(BaseModel):
    """The state of a simulated cluster.

    `jobs` are the nodes of each job. `gated` are nodes at the gate with their failure, "" for none.
    `out` are nodes out of service with the reason. `given` is the job that each run gave way to.
    """

    model_config = ConfigDict(extra="forbid")

    jobs: dict[str, list[str]] = Field(default_factory=dict, max_length=1000)
    gated: dict[str, str] = Field(default_factory=dict, max_length=1000)
    out: dict[str, str] = Field(default_factory=dict, max_length=1000)
    given: dict[str, str] = Field(default_factory=dict, max_length=1000)

    def job_on(self, node: str) -> str | None:
        """Return the job that has the node."""
        return next((job for job, nodes in self.jobs.items() if node in nodes), None)


def read(cluster: str) -> Stage:
    """Return the state of the cluster; empty if there is no file."""
    with opened(cluster) as (stage, _):
        return stage


@contextmanager
def opened(cluster: str) -> Iterator[tuple[Stage, Callable[[], None]]]:
    """Yield the state, locked within the context, and a function that saves it."""
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
