"""Make a testbed from a cluster file: what is the same on every platform."""

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
    """Return a run of the cluster that is never started, for what depends on no suite."""
    return Run(run_id, cluster, load_suite("quick"), Path("doctor"))


def node_of(
    cluster: Cluster, name: str, address: str, host_key: str, port: int | None = None
) -> Node:
    """Return a node as the cluster file describes it, at the address and port its peers reach it
    at.

    `ssh_port` when None.
    """
    return Node(name, address, port or cluster.ssh_port, cluster.slots, host_key, cluster.gpus)


def nodes_of(cluster: Cluster, state: PlatformState) -> list[Node]:
    """Return the nodes of a run, as its state has them."""
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
    """Return the testbed of a run; `own` are the fields of it that only the platform knows.

    MPI settings and environment of the cluster file win over the platform's.
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

    Some silent nodes are a finding for connectivity. `none_yet` is called while all are silent, and
    may raise.
    """
    deadline = time.monotonic() + timeout_s
    silent = list(testbed.nodes)
    patience_s = 0.1  # short at first: TCP itself tries again only after a second
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
    """Return the folder on the node, private to its user, and removed when sshd ends."""
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

    It makes `folder`, a full path in an existing folder. `listen` is the address that sshd listens
    on; every one when None.
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
    # The entry point of images uses them too
    functions = (IMAGES / "common/bin/seatrial-functions").read_text()
    script = Path(__file__).with_name("sshd").joinpath("node.sh").read_text()
    return assignments + functions.removeprefix("#!/bin/sh\n") + script


def write_ports(testbed: Testbed, usual: int, folder: str | None = None) -> None:
    """Write the ports and users of its peers to every node, for ssh: MPI's daemons start each other
    from node to node.

    A node that cannot be reached is found by connectivity. `folder` is that of the run's sshd on
    the nodes; the one above `workdir` when None.
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
    """Return the configuration of ssh: one block per node that differs; empty if none does."""
    users = {testbed.user_of(node) for node in testbed.nodes}
    blocks = []
    for node in testbed.nodes:
        options = [f"  Port {node.port}"] if node.port != usual else []
        options += [f"  User {testbed.user_of(node)}"] if len(users) > 1 else []
        if options:
            blocks.append("\n".join([f"Host {node.name} {node.address}", *options, ""]))
    return "".join(blocks)
