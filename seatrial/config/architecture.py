"""The architecture of nodes and images. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.catalog import known_hardware
from seatrial.config.cluster import Cluster
from seatrial.model.reason import Reason
from seatrial.text.words import some_of

Facts = Mapping[str, Mapping[str, Any]]  # by node, as seatrial/remote/probes/facts.py prints them


def architecture_named(machine: str) -> str:
    """Convert the kernel's name of an architecture (x86_64) to that of images (amd64)."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def node_architecture(cluster: Cluster, here: str) -> str | None:
    """Return the nodes' architecture, None if unknown; `here` is the kernel's name of this
    machine's.
    """
    name = cluster.hardware.name
    if decided := cluster.platform.architecture(name, architecture_named(here)):
        return decided
    if name.startswith(("GB200", "GB300", "GH200")):  # with Grace, NVIDIA's own CPU
        return "arm64"
    return "amd64" if name in known_hardware() and name != "cpu" else None


def wrong_architecture(
    reference: str, architectures: Sequence[str], cluster: Cluster, here: str
) -> Reason | None:
    """Return why the image cannot run on the nodes; None if it can or that is unknown."""
    nodes = node_architecture(cluster, here)
    if not architectures or nodes is None or nodes in architectures:
        return None
    return Reason.of(
        "image-architecture",
        reference=reference,
        architectures=" and ".join(architectures),
        hardware=cluster.hardware.name,
        nodes=nodes,
    )


def foreign_nodes(facts: Facts, cluster: Cluster, here: str) -> Reason | None:
    """Return which nodes have another architecture than the cluster file says; None if none
    have.
    """
    expected = node_architecture(cluster, here)
    architectures = {
        name: architecture_named(fact.get("architecture") or "") for name, fact in facts.items()
    }
    odd = [
        name
        for name, architecture in architectures.items()
        if architecture and architecture != expected
    ]
    if expected is None or not odd:
        return None
    return Reason.of(
        "node-architecture",
        odd=some_of(odd),
        value=architectures[odd[0]],
        hardware=cluster.hardware.name,
        expected=expected,
    )
