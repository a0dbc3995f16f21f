"""Make a testbed from a cluster file; common to all platforms."""

import logging
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import RemoteError
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms.state import PlatformState
from seatrial.remote.command import run_command
from seatrial.remote.ssh import KeyPair, answers, connected, fan_out, on_each
from seatrial.system.shipped import IMAGES

log = logging.getLogger("seatrial.launch")
MADE_LATER = KeyPair("<made for each run>", "<made for each run>")
_WRITE_TIMEOUT_S = 30.0


def trial_run(cluster: Cluster, run_id: str = "doctor") -> Run:
    """Return a run that is never started, for functions that do not depend on the suite."""
    return Run(run_id, cluster, load_suite("quick"), Path("doctor"))


def node_of(
    cluster: Cluster, name: str, address: str, host_key: str, port: int | None = None
) -> Node:
    """Return a node as the cluster file describes it, with the address and port for its peers.

    `port` defaults to `ssh_port`.
    """
    return Node(name, address, port or cluster.ssh_port, cluster.slots, host_key, cluster.gpus)


def nodes_of(cluster: Cluster, state: PlatformState) -> list[Node]:
    """Return the nodes in the state of a run."""
    return [node_of(cluster, at.name, at.address, state.host_key, at.port) for at in state.nodes]


def testbed_of(
    cluster: Cluster,
    run_id: str,
    nodes: Iterable[Node],
    *,
    network: str | None = None,
    env: Mapping[str, str] = {},
    **own: Any,
) -> Testbed:
    """Return the testbed of a run; `own` are fields that only the platform knows.

    MPI settings and environment of the cluster file override the platform's.
    """
    return Testbed(
        run_id=run_id,
        nodes=tuple(nodes),
        mpirun=cluster.mpi.mpirun,
        mpirun_args=cluster.mpi.args,
        network=cluster.mpi.interface or network,
        env=tuple({**env, **cluster.env}.items()),
        nccl_tests=cluster.nccl_tests or "",
        **own,
    )


def wait_for_sshd(
    testbed: Testbed,
    timeout_s: float,
    none_yet: Callable[[], object] = lambda: None,
    pause_s: float = 0.05,
) -> bool:
    """Wait until every sshd answers, or time is up; return false if none does.

    If only some nodes are silent, connectivity reports them. `none_yet` is called while all are
    silent, and may raise.
    """
    deadline = time.monotonic() + timeout_s
    silent = list(testbed.nodes)
    patience_s = 0.1  # short at first, since TCP retries only after a second
    while silent and time.monotonic() < deadline:
        up = on_each(silent, partial(answers, testbed, timeout_s=patience_s), fan_out(testbed))
        silent = [node for node in silent if not up[node.name]]
        if len(silent) == len(testbed.nodes):
            none_yet()
        time.sleep(pause_s if silent else 0)
        patience_s = min(2 * patience_s, 2.0)
    if len(silent) == len(testbed.nodes):
        return False
    for node in silent:
        log.warning("%s: sshd does not answer on port %d", node.name, node.port)
    return True


def default_folder(run_id: str) -> str:
    """Return a folder on the node that is private to its user and removed when sshd ends."""
    return f"/tmp/seatrial-{run_id}"


def node_script(
    run_id: str,
    port: int,
    run_key: KeyPair,
    host_key: KeyPair,
    folder: str | None = None,
    listen: str | None = None,
) -> str:
    """Return the script for the standard input of `sh -s` on each node.

    It creates `folder`, a full path whose parent exists. `listen` is the address that sshd listens
    on; all addresses when None.
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
    assignments = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    # Shared with the entry point of images
    functions = (IMAGES / "common/bin/seatrial-functions").read_text()
    script = Path(__file__).with_name("sshd").joinpath("node.sh").read_text()
    return assignments + functions.removeprefix("#!/bin/sh\n") + script


def write_ports(testbed: Testbed, usual: int, folder: str | None = None) -> None:
    """Write an ssh configuration with the ports and users of all nodes to every node, since MPI's
    daemons start each other from node to node.

    A node that cannot be reached is left to connectivity. `folder` is the folder of sshd on the
    nodes; by default the parent of `workdir`.
    """
    text = ports_config(testbed, usual).encode()
    if not text:
        return
    log.info(
        (
            "nodes have ports other than %d, or users of their own: writing an ssh "
            "configuration to each"
        ),
        usual,
    )
    file = PurePosixPath(folder or PurePosixPath(testbed.workdir).parent, "ports")
    command = f"umask 077 && cat > {shlex.quote(str(file))}"

    def write(node: Node) -> None:
        with connected(testbed, node, _WRITE_TIMEOUT_S) as transport:
            run_command(transport, command, stdin=text, timeout_s=_WRITE_TIMEOUT_S)

    for name, answer in on_each(testbed.nodes, write).items():
        if isinstance(answer, RemoteError):
            log.warning(
                "%s: the ssh configuration of its peers cannot be written: %s", name, answer
            )


def ports_config(testbed: Testbed, usual: int) -> str:
    """Return the ssh configuration: a block for each node that differs from the usual port and
    user; empty if none does.
    """
    users = {testbed.user_of(node) for node in testbed.nodes}
    blocks = []
    for node in testbed.nodes:
        options = [f"  Port {node.port}"] if node.port != usual else []
        options += [f"  User {testbed.user_of(node)}"] if len(users) > 1 else []
        if options:
            blocks.append("\n".join([f"Host {node.name} {node.address}", *options, ""]))
    return "".join(blocks)
