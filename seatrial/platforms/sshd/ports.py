"""Tell every node the ports of its peers, where they differ: MPI's tree of daemons goes from node to node."""

import logging
import shlex
from pathlib import PurePosixPath

from seatrial.model.errors import RemoteError
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected, on_each

log = logging.getLogger("seatrial.launch")

_TIMEOUT_S = 30.0


def tell_ports(testbed: Testbed, usual: int) -> None:
    """Write the part of ssh's configuration that names them. A node that cannot be told is found by connectivity."""
    others = [node for node in testbed.nodes if node.port != usual]
    if not others:
        return
    log.info("%d of %d nodes have another port than %d", len(others), len(testbed.nodes), usual)
    text = ports_config(others).encode()
    command = f"umask 077 && cat > {shlex.quote(str(PurePosixPath(testbed.workdir).with_name('ports')))}"

    def tell(node: Node) -> None:
        with connected(testbed, node, _TIMEOUT_S) as transport:
            run_command(transport, command, stdin=text, timeout_s=_TIMEOUT_S)

    for name, answer in on_each(testbed.nodes, tell).items():
        if isinstance(answer, RemoteError):
            log.warning("%s: cannot be told its peers' ports: %s", name, answer)


def ports_config(nodes: list[Node]) -> str:
    """One block per node, by its name and its address."""
    return "".join(f"Host {node.name} {node.address}\n  Port {node.port}\n" for node in nodes)
