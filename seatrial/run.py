"""One run: a cluster, a suite, an id that names everything it makes, and the folder it writes to."""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from seatrial.cluster import Cluster
from seatrial.errors import InputError
from seatrial.redact import Secrets
from seatrial.suite import Suite

RESULT = ("run.json", "measurements.csv", "report.html")  # the files that say what a run came to


@dataclass(frozen=True, slots=True)
class Run:
    """What one run was asked to do.

    `image` is what its nodes run, once the step `image` has built or found it: with its digest where they pull it.
    """

    run_id: str
    cluster: Cluster
    suite: Suite
    out: Path
    image: str | None = None

    @property
    def logs(self) -> Path:
        """Where the raw output of every remote command is kept."""
        return self.out / "logs"


def secrets_of(cluster: Cluster) -> Secrets:
    """Of this process' environment and of the cluster file."""
    names = (variable.name for variable in getattr(cluster.platform, "secret_env", ()))
    return Secrets.of({**os.environ, **cluster.env}, names)


def is_new(path: Path, started: datetime) -> bool:
    """Whether it is a file that was written since then: a folder may hold an earlier run's."""
    return path.is_file() and path.stat().st_mtime >= started.timestamp() - 1  # file systems round


def writable(folder: Path, option: str) -> Path:
    """The folder, made where it is not there. Raises InputError, which names the option that it was given by."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{option} {folder}: cannot be used as a folder: {error.strerror}; give another") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"{option} {folder}: is not writable; give another")
    return folder
