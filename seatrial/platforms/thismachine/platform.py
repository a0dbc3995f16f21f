"""The platform this-machine: bare metal without a login."""

import re
import shlex
import socket
import sys
from typing import TYPE_CHECKING

from seatrial.config.run import Run
from seatrial.platforms import Rendered
from seatrial.platforms.baremetal.bringup import node_folder
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import Hosts
from seatrial.platforms.baremetal.platform import Baremetal
from seatrial.platforms.sshd import MADE_LATER, node_script
from seatrial.platforms.thismachine.config import ThisMachinePlatform

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

KIND = "this-machine"
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


class OwnMachine(Hosts):
    """The one host that needs no login."""

    listen = "127.0.0.1"

    def _login(self, host: str) -> list[str]:
        return []

    def options(self, host: str) -> dict[str, str]:
        return {"hostname": self.listen}


class ThisMachine(Baremetal):
    """One node: this machine, which runs one more sshd for the time of the run, on the loopback address."""

    kind = KIND
    hosts_type = OwnMachine

    def render(self, run: Run) -> Rendered:
        folder = node_folder(self._settings, run.run_id)
        return Rendered(
            {
                "commands": f"{shlex.quote(self._settings.python)} -I -S -\n",
                "node.sh": node_script(
                    run.run_id, run.cluster.ssh_port, MADE_LATER, MADE_LATER, folder, OwnMachine.listen
                ),
            }
        )


def platform(cluster: "Cluster") -> ThisMachine:
    """The platform that the cluster file describes."""
    settings = cluster.platform
    assert isinstance(settings, ThisMachinePlatform)
    fields = {"hosts": [_own_name()], "folder": settings.folder, "python": settings.python or sys.executable}
    return ThisMachine(cluster, BaremetalPlatform.model_validate({"kind": "baremetal", **fields}))


def _own_name() -> str:
    """The host's name without its domain, where a node may be called so."""
    name = socket.gethostname().partition(".")[0]
    return name if _HOST_NAME.fullmatch(name) else KIND
