"""One run: a cluster, a suite, an id that names everything it makes, and the folder it writes to."""

from dataclasses import dataclass
from pathlib import Path

from seatrial.cluster import Cluster
from seatrial.suite import Suite


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
