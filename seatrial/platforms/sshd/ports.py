"""Tell every node the ports and users of its peers, where they differ: MPI's tree of daemons goes from node to node."""

import logging
import shlex
from pathlib import PurePosixPath

from seatrial.model.errors import RemoteError
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected, on_each

log = logging.getLogger("seatrial.launch")

_TIMEOUT_S = 30.0


def tell_ports(testbed: Testbed, usual: int, folder: str | None = None) -> None:
    """Write the part of ssh's configuration that names them. A node that cannot be told is found by connectivity.

    `folder` is that of the run's sshd on the nodes; the one above `workdir` when None.
    """
    text = ports_config(testbed, usual).encode()
    if not text:
        return
    log.info("nodes have ports other than %d, or users of their own: each is told those of the others", usual)
    file = PurePosixPath(folder or PurePosixPath(testbed.workdir).parent, "ports")
    command = f"umask 077 && cat > {shlex.quote(str(file))}"

    def tell(node: Node) -> None:
        with connected(testbed, node, _TIMEOUT_S) as transport:
            run_command(transport, command, stdin=text, timeout_s=_TIMEOUT_S)

    for name, answer in on_each(testbed.nodes, tell).items():
        if isinstance(answer, RemoteError):
            log.warning("%s: cannot be told its peers' ports: %s", name, answer)


def ports_config(testbed: Testbed, usual: int) -> str:
    """One block per node that differs, by its name and its address; empty where none does."""
    users = {testbed.user_of(node) for node in testbed.nodes}
    blocks = []
    for node in testbed.nodes:
        options = [f"  Port {node.port}"] if node.port != usual else []
        options += [f"  User {testbed.user_of(node)}"] if len(users) > 1 else []
        if options:
            blocks.append("\n".join([f"Host {node.name} {node.address}", *options, ""]))
    return "".join(blocks)
