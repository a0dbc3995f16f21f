"""sshd on nodes that are not started by an image of ours: its script, and the ports that nodes got."""

import logging
import shlex
from functools import cache
from pathlib import Path, PurePosixPath

from seatrial.model.errors import RemoteError
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.command import run_command
from seatrial.remote.keys import KeyPair
from seatrial.remote.ssh import connected, on_each

MADE_LATER = KeyPair("<made for each run>", "<made for each run>")


def default_folder(run_id: str) -> str:
    """The folder on the node, private to its user, and removed when sshd ends."""
    return f"/tmp/seatrial-{run_id}"


def node_script(
    run_id: str, port: int, run_key: KeyPair, host_key: KeyPair, folder: str | None = None, listen: str | None = None
) -> str:
    """The script for the standard input of `sh -s` on each node. It makes `folder`, a full path in an existing folder.

    `listen` is the address that sshd listens on; every one when None.
    """
    values = {
        "FOLDER": folder or default_folder(run_id),
        "PORT": str(port),
        "USER_KEY": run_key.public,
        "RUN_KEY": run_key.private.strip(),
        "HOST_KEY": host_key.private.strip(),
        "HOST_KEY_PUBLIC": host_key.public,
        **({"LISTEN": listen} if listen else {}),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()) + _node_program()


@cache
def _node_program() -> str:
    """The script with the functions that the entry point of images uses too."""
    functions, script = (Path(__file__).with_name(name).read_text() for name in ("functions.sh", "node.sh"))
    return functions.removeprefix("#!/bin/sh\n") + script


log = logging.getLogger("seatrial.launch")

_TIMEOUT_S = 30.0


def write_ports(testbed: Testbed, usual: int, folder: str | None = None) -> None:
    """Write the ports and users of its peers to every node, for ssh: MPI's tree of daemons goes from node to node.

    A node that cannot be reached is found by connectivity. `folder` is that of the run's sshd on the nodes; the one
    above `workdir` when None.
    """
    text = ports_config(testbed, usual).encode()
    if not text:
        return
    log.info("nodes have ports other than %d, or users of their own: each is told those of the others", usual)
    file = PurePosixPath(folder or PurePosixPath(testbed.workdir).parent, "ports")
    command = f"umask 077 && cat > {shlex.quote(str(file))}"

    def write(node: Node) -> None:
        with connected(testbed, node, _TIMEOUT_S) as transport:
            run_command(transport, command, stdin=text, timeout_s=_TIMEOUT_S)

    for name, answer in on_each(testbed.nodes, write).items():
        if isinstance(answer, RemoteError):
            log.warning("%s: cannot be told its peers' ports: %s", name, answer)


def ports_config(testbed: Testbed, usual: int) -> str:
    """The configuration of ssh: one block per node that differs; empty if none does."""
    users = {testbed.user_of(node) for node in testbed.nodes}
    blocks = []
    for node in testbed.nodes:
        options = [f"  Port {node.port}"] if node.port != usual else []
        options += [f"  User {testbed.user_of(node)}"] if len(users) > 1 else []
        if options:
            blocks.append("\n".join([f"Host {node.name} {node.address}", *options, ""]))
    return "".join(blocks)
