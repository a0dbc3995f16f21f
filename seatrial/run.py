"""One run: a cluster, a suite, an id that names everything it makes, and the folder it writes to."""

from dataclasses import dataclass
from pathlib import Path

from seatrial.cluster import Cluster
from seatrial.suite import Suite


@dataclass(frozen=True, slots=True)
class Run:
    """What one run was asked to do."""

    run_id: str
    cluster: Cluster
    suite: Suite
    out: Path

    @property
    def logs(self) -> Path:
        """Where the raw output of every remote command is kept."""
        return self.out / "logs"
