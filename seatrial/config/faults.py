"""The faults of a cluster file: what the local platform breaks on purpose."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from seatrial.config.yamlfile import ByteSize, Strict, matching

After = Annotated[
    Literal["connectivity"] | None,
    Field(description="begins after this check; unset: with the launch"),
]
Loss = Annotated[
    str,
    AfterValidator(
        matching(
            r"(?=.*[1-9])\d{1,2}(\.\d+)?%",
            "a share of packets above 0% and below 100%, such as 5%",
        )
    ),
]


def _legal_rate(value: str) -> str:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", value)
    bits = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    if not match or not 8e3 <= float(match[1]) * bits[match[2]] <= 1e12:
        raise ValueError(
            f"must be a rate as tc writes it, from 8kbit to 1000gbit, such as 200mbit, is {value!r}"
        )
    return value


Rate = Annotated[str, AfterValidator(_legal_rate)]


class _Fault(Strict):
    """What faults have in common: fields that do something, of which some can begin later."""

    effects: ClassVar[tuple[str, ...]]
    begins_later: ClassVar[tuple[str, ...]]

    after: After = None
    minute: float = Field(
        0, ge=0, le=60 * 24 * 31, description="begins at this minute of a campaign"
    )

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        chosen = self.chosen
        if not chosen:
            raise ValueError(f"a fault needs one of {', '.join(self.effects)}")
        if self.after and (fixed := [name for name in chosen if name not in self.begins_later]):
            raise ValueError(f"after is for {', '.join(self.begins_later)}, not for {fixed[0]}")
        return self

    @property
    def chosen(self) -> list[str]:
        """The effects that are set."""
        return [name for name in self.effects if getattr(self, name) is not None]


class NodeFault(_Fault):
    """Break one node on purpose."""

    effects = (
        *("rate", "sshd", "host_key", "cpu_share", "memory", "computes"),
        *("sleeps_at", "loses_loader_at", "replays_wrong", "checkpoint_s"),
    )
    begins_later = ("rate", "sshd", "cpu_share")

    node: str = Field(description="node-0 to node-N")
    rate: Rate | None = Field(
        None, description="what its link carries at most, 8kbit to 1000gbit: 200mbit"
    )
    sshd: Literal["stopped"] | None = Field(
        None, description="its sshd does not answer; with `after`, its processes end too"
    )
    host_key: Literal["wrong"] | None = Field(
        None, description="it answers with another host key than the run's"
    )
    cpu_share: float | None = Field(
        None, ge=0.01, lt=1, description="share of this machine's processors that it gets"
    )
    memory: ByteSize | None = Field(
        None, description="address space of each of its processes at most: 256M"
    )
    computes: Literal["wrong", "unstable"] | None = Field(
        None, description="what `devices` computes is wrong, in the same way or another"
    )
    sleeps_at: int | None = Field(
        None, ge=0, description="the step of `model: llama` before which its first rank sleeps"
    )
    loses_loader_at: int | None = Field(
        None, ge=0, description="the step of `model: llama` at which its data ends"
    )
    replays_wrong: Literal["once", "always"] | None = Field(
        None, description="its first rank computes wrongly in replays of `model: llama`"
    )
    checkpoint_s: float | None = Field(
        None, gt=0, le=3600, description="how many seconds longer each of its checkpoints takes"
    )
    device: str | None = Field(
        None,
        pattern=r"^(cpu|gpu-[0-9]{1,4})$",
        description="cpu or gpu-N, which computes so; unset: all",
    )

    @model_validator(mode="after")
    def _device_computes(self) -> Self:
        if self.device and not self.computes:
            raise ValueError("device is for computes: wrong and computes: unstable")
        return self

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


class LinkFault(_Fault):
    """Cut or slow the path between two nodes, in both directions."""

    effects = ("state", "rate", "loss")
    begins_later = effects

    link: tuple[str, str] = Field(description="its two ends, such as [node-0, node-3]")
    state: Literal["down"] | None = Field(None, description="nothing passes")
    rate: Rate | None = Field(None, description="what it carries at most: 50mbit")
    loss: Loss | None = Field(None, description="the share of packets that are lost: 5%")

    @model_validator(mode="after")
    def _two_ends(self) -> Self:
        if self.link[0] == self.link[1]:
            raise ValueError("a link needs two different nodes")
        if self.state and len(self.chosen) > 1:
            raise ValueError("state: down leaves nothing for rate and loss")
        return self

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.link


class SwitchFault(_Fault):
    """Put some nodes behind a switch with one slow uplink to all others."""

    effects = ("uplink",)
    begins_later = effects

    switch: tuple[str, ...] = Field(
        min_length=1, description="the nodes behind it, such as [node-2, node-3]"
    )
    uplink: Rate = Field(description="what they share to and from all others, at most: 100mbit")

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.switch


def _kind_of(fault: object) -> str:
    """Return the field that no other kind of fault has."""
    for name, kind in (("link", LinkFault), ("switch", SwitchFault)):
        if isinstance(fault, kind) or (isinstance(fault, dict) and name in fault):
            return name
    return "node"


# Told apart by their field, so that an error is about one kind of fault only.
Fault = Annotated[
    Annotated[NodeFault, Tag("node")]
    | Annotated[LinkFault, Tag("link")]
    | Annotated[SwitchFault, Tag("switch")],
    Discriminator(_kind_of),
]


def fault_problems(faults: tuple[Fault, ...], nodes: list[str]) -> Iterator[str]:
    """Yield what is wrong with the faults together, in a cluster of those nodes."""
    for fault in faults:
        for name in fault.nodes:
            if name not in nodes:
                yield f"unknown node {name!r}; legal: {nodes[0]} to {nodes[-1]}"
    switches = [fault.switch for fault in faults if isinstance(fault, SwitchFault)]
    for behind in switches:
        if len(behind) >= len(nodes):
            yield "switch: some nodes must stay outside of it"
    if twice := _twice(chain.from_iterable(switches)):
        yield f"{twice} is behind a switch twice"
    effects = [
        (*sorted(f.nodes), name)
        for f in faults
        for name in f.chosen
        if not isinstance(f, SwitchFault)
    ]
    if twice := _twice(effects):
        yield f"{twice[-1]} of {'--'.join(twice[:-1])} is set twice"


def _twice(values: Iterable[Any]) -> Any:
    """Return the first value that repeats an earlier one; None without one."""
    values = list(values)
    return next((value for i, value in enumerate(values) if value in values[:i]), None)
