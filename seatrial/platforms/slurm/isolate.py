"""Nodes of Slurm out of service and back: drained, with a reason that names the run."""

import re
import shlex
from typing import TYPE_CHECKING

from seatrial.model.errors import InputError
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.platforms.slurm.login import Login, login_of

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

OWN = "seatrial run "  # how our reasons begin
_ONE_NODE = re.compile(r"(?!all$)[a-z0-9][a-z0-9._-]*", re.IGNORECASE)  # scontrol takes lists, ranges and ALL as well


class Drain:
    """Drain and resume, on the login node, as a user whom Slurm lets do so."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def command(self, node: str, run_id: str, why: str) -> str:
        return shlex.join(_update(node, "drain", f"reason={OWN}{run_id}: {why}"))

    def isolate(self, node: str, run_id: str, why: str) -> bool:
        """Return false for a node that is out of service already."""
        if self._reason(node):
            return False
        self._login.run(_update(node, "drain", f"reason={OWN}{run_id}: {why}"))
        return True

    def release(self, node: str) -> None:
        reason = self._reason(node)
        if not reason.startswith(OWN):
            raise InputError(f"node {node}: seatrial has not isolated it; Slurm's reason is {reason[:200] or 'none'!r}")
        self._login.run(_update(node, "resume"))

    def _reason(self, node: str) -> str:
        """Why the node is out of service; empty while it is not."""
        if not _ONE_NODE.fullmatch(node):
            raise InputError(f"node {node!r}: must be the name of one node")
        printed = self._login.run(["sinfo", "--noheader", f"--nodes={node}", "--format=%E"]).strip()
        if not printed:
            raise InputError(f"node {node}: is no node of the cluster")
        return "" if printed == "none" else printed


def _update(node: str, state: str, *more: str) -> list[str]:
    return ["scontrol", "update", f"nodename={node}", f"state={state}", *more]


def isolator(cluster: "Cluster") -> Drain:
    """The isolation of nodes of that cluster."""
    assert isinstance(cluster.platform, SlurmPlatform)
    return Drain(login_of(cluster.platform))
