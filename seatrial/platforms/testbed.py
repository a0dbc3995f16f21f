"""A cluster file as a testbed: what is the same on every platform is filled in here, and here alone."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from seatrial.config.cluster import Cluster
from seatrial.model.testbed import Dial, Node, Testbed


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
