"""Nodes as network namespaces on this machine, each with its own real sshd: reasons and settings."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from seatrial.config.cluster import Cluster, PlatformSettings
from seatrial.model.reason import Explanation, register

REASONS = {
    "local-network-failed": Explanation(
        "the local network did not come up: {problem}",
        "The local platform could not create its network namespaces or its bridge.",
        "Read the kernel's message at the end of the line, then run `seatrial doctor`.",
    ),
    "local-program-missing": Explanation(
        "{program} is missing: install {package}",
        "The local platform needs a program that this machine does not have.",
        "Install the package that the line names; in a checkout `make setup` does.",
    ),
    "local-namespaces-forbidden": Explanation(
        "this machine cannot create network namespaces ({problem}): {remedy}",
        "The kernel or the container does not let this user create network namespaces.",
        "Follow the end of the line: run as root, set the `sysctl`, or give the container the capabilities.",
    ),
    "local-machine-too-small": Explanation(
        "this machine cannot carry {nodes} local nodes: {needed} {resource} are needed, {available} are free: {remedy}",
        "All local nodes share one machine, and it has too little for so many. No node is at fault.",
        "Run the command at the end of the line as root, or use fewer nodes.",
    ),
    "local-fault-failed": Explanation(
        "a fault did not begin after its check: {fault}",
        "The commands of a fault with `after` failed, or their node is down.",
        "Read `logs/nodes/NODE.log`.",
    ),
    "local-sshd-silent": Explanation(
        "no node's sshd answers on port {port}; {node} says: {problem}",
        "sshd does not start in the local nodes.",
        "Read `logs/nodes/NODE.log`.",
    ),
}

register(REASONS)

MAX_NODES = 512  # a Linux bridge takes 1023 ports; past this one machine shows nothing that fewer nodes do not


class LocalPlatform(PlatformSettings):
    """Network namespaces on this machine, each with its own real sshd."""

    kind: Literal["local"] = Field(description="this machine")
    names: tuple[Annotated[str, Field(pattern=r"^node-(0|[1-9]\d{0,3})$")], ...] = Field(
        (), description="names of the nodes, as many as there are; node-0, node-1 and so on when unset"
    )

    uses_host_software: ClassVar[bool] = True
    injects_faults: ClassVar[bool] = True
    qualifies: ClassVar[bool] = True
    stands_alone: ClassVar[bool] = True

    def node_names(self, count: int) -> list[str]:
        return list(self.names) or super().node_names(count)

    def architecture(self, hardware: str, here: str) -> str | None:
        return here if hardware == "cpu" else None

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if cluster.nodes > MAX_NODES:
            yield f"nodes: the local platform takes at most {MAX_NODES}, is {cluster.nodes}"
        if self.names and len(set(self.names)) != cluster.nodes:
            yield f"platform.names: must be {cluster.nodes} different ones, as many as nodes, is {len(self.names)}"
        yield from super().problems(cluster)
