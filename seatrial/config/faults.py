"""What a cluster file may break on purpose on the local platform: nodes, and the links between them."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from seatrial.config.yamlfile import Strict
from seatrial.model.sizes import ByteSize

_RATE = re.compile(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)")
_NODE_FAULTS = ("rate", "sshd", "host_key", "cpu_share", "memory", "computes")
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def _legal_rate(value: str) -> str:
    match = _RATE.fullmatch(value)
    if not match or not 8e3 <= float(match[1]) * _BITS[match[2]] <= 1e12:
        raise ValueError(f"must be a rate as tc writes it, from 8kbit to 1000gbit, such as 200mbit, is {value!r}")
    return value


class NodeFault(Strict):
    """Break one node on purpose: its link, its sshd, its host key, its processors, its memory, or what it computes."""

    node: str = Field(description="node-0 to node-N")
    rate: Annotated[str, AfterValidator(_legal_rate)] | None = Field(
        None, description="what its link carries at most, as tc writes it, from 8kbit to 1000gbit: 200mbit"
    )
    sshd: Literal["stopped"] | None = Field(None, description="its sshd does not answer")
    host_key: Literal["wrong"] | None = Field(None, description="it answers with another host key than the run's")
    cpu_share: float | None = Field(
        None, ge=0.01, lt=1, description="share of this machine's processors that its processes get, all together"
    )
    memory: ByteSize | None = Field(
        None, description="address space in bytes that each of its processes gets at most: 256M"
    )
    computes: Literal["wrong", "unstable"] | None = Field(
        None, description="what the probe `devices` computes is `wrong` the same way each time, or another each time"
    )
    device: str | None = Field(
        None, pattern=r"^(cpu|gpu-[0-9]{1,4})$", description="cpu or gpu-N, which computes so; unset: all of the node"
    )

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not any(getattr(self, name) for name in _NODE_FAULTS):
            raise ValueError(f"a fault needs one of {', '.join(_NODE_FAULTS)}")
        if self.device and not self.computes:
            raise ValueError("device is for computes: wrong and computes: unstable")
        return self

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


class LinkFault(Strict):
    """Cut the path between two nodes; both stay reachable from everywhere else."""

    link: tuple[str, str] = Field(description="its two ends, such as [node-0, node-3]")
    state: Literal["down"] = Field(description="nothing passes in either direction")

    @model_validator(mode="after")
    def _two_ends(self) -> Self:
        if self.link[0] == self.link[1]:
            raise ValueError("a link needs two different nodes")
        return self

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.link


def _fault_kind(fault: object) -> str:
    return "link" if isinstance(fault, LinkFault) or (isinstance(fault, dict) and "link" in fault) else "node"


# Told apart by their field, so that an error speaks of one kind of fault alone.
Fault = Annotated[
    Annotated[NodeFault, Tag("node")] | Annotated[LinkFault, Tag("link")],
    Discriminator(_fault_kind),
]
