"""Make a testbed from a cluster file: what is the same on every platform."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from seatrial.config.cluster import Cluster
from seatrial.model.testbed import Dial, Node, Testbed
from seatrial.remote.ssh import answers, fan_out, on_each

log = logging.getLogger("seatrial.launch")


def node_of(cluster: Cluster, name: str, address: str, host_key: str, port: int | None = None) -> Node:
    """A node as the cluster file describes it, at the address and port its peers reach it at; `ssh_port` when None."""
    return Node(name, address, port or cluster.ssh_port, cluster.slots, host_key, cluster.gpus)


def testbed_of(
    cluster: Cluster,
    run_id: str,
    nodes: Iterable[Node],
    *,
    user: str,
    key_file: Path,
    dial: Dial,
    workdir: str,
    network: str | None,
    env: Mapping[str, str] | None = None,
    python: str = "python3",
    blameless_reason: Callable[[Node], str | None] | None = None,
) -> Testbed:
    """The testbed of a run. What the cluster file says of MPI and the ranks' environment wins over the platform's."""
    testbed = Testbed(
        run_id=run_id,
        nodes=tuple(nodes),
        user=user,
        key_file=key_file,
        dial=dial,
        workdir=workdir,
        python=python,
        mpirun=cluster.mpi.mpirun,
        mpirun_args=cluster.mpi.args,
        network=cluster.mpi.interface or network,
        env=tuple({**(env or {}), **cluster.env}.items()),
    )
    return replace(testbed, blameless_reason=blameless_reason) if blameless_reason else testbed


def wait_for_sshd(
    testbed: Testbed, timeout_s: float, none_yet: Callable[[], None] = lambda: None, pause_s: float = 0.05
) -> bool:
    """Wait until every sshd answers, or time is up; return false if none does.

    Some silent nodes are a finding for connectivity. `none_yet` is called while all are silent, and may raise.
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
