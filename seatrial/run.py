"""One run: a cluster, a suite, an id that names everything it makes, and the folder it writes to."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seatrial.cluster import Cluster
from seatrial.suite import Suite

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u: an id is read aloud and typed


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


def new_run_id() -> str:
    """A sortable id that is unique on this machine and legal in every name: 20261121-0922-k3f9a."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M")
    return f"{stamp}-{''.join(secrets.choice(_LETTERS) for _ in range(5))}"
