"""Nodes of Slurm out of service and back: drained, with a reason that names the run."""

import shlex
from typing import TYPE_CHECKING

from seatrial.model.errors import InputError
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.platforms.slurm.gate import reason_of, state_change
from seatrial.platforms.slurm.login import Login, login_of

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

OWN = "seatrial run "  # prefix of our drain reasons


class Drain:
    """Drain and resume nodes on the login node, as a user with the right to do so."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def command(self, node: str, run_id: str, why: str) -> str:
        return shlex.join(state_change(node, "drain", f"{OWN}{run_id}: {why}"))

    def isolate(self, node: str, run_id: str, why: str) -> bool:
        """Drain the node; return false if it is out of service already."""
        if reason_of(self._login, node):
            return False
        self._login.run(state_change(node, "drain", f"{OWN}{run_id}: {why}"))
        return True

    def release(self, node: str) -> None:
        reason = reason_of(self._login, node)
        if not reason.startswith(OWN):
            raise InputError(
                f"node {node}: seatrial has not isolated it; Slurm's reason is "
                f"{reason[:200] or 'none'!r}"
            )
        self._login.run(state_change(node, "resume"))


def isolator(cluster: "Cluster") -> Drain:
    """Return the isolator of the cluster's nodes."""
    assert isinstance(cluster.platform, SlurmPlatform)
    return Drain(login_of(cluster.platform))
