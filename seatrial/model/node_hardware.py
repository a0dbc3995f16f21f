"""What a node is made of, as far as its speed depends on it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """What a node says of itself; "" and None where it does not tell.

    `gpu_clock_mhz` is the highest SM clock. `ids` are digests of its serials; nodes of one host share some.
    """

    gpu_model: str = ""
    gpu_clock_mhz: int | None = None
    cpu_model: str = ""
    driver: str = ""
    ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """From an entry of `nodes` in run.json, where every value may be of any type."""
        clock = node.get("gpu_clock_mhz")
        texts = {key: value for key in ("gpu_model", "cpu_model", "driver") if isinstance(value := node.get(key), str)}
        ids = listed if isinstance(listed := node.get("hardware_ids"), list | tuple) else ()
        own = frozenset(text for text in ids if isinstance(text, str))
        return cls(gpu_clock_mhz=clock if type(clock) is int else None, ids=own, **texts)

    @property
    def model(self) -> str:
        """The GPUs' model, or the processors' where there are no GPUs."""
        return self.gpu_model or self.cpu_model

    def replaces(self, earlier: "NodeHardware") -> bool:
        """Whether this is other hardware than the `earlier` one, as far as both tell."""
        return bool(self.model and earlier.model) and self.model != earlier.model


def hardware_by_node(nodes: Iterable[Mapping[str, Any]]) -> dict[str, NodeHardware]:
    """By name, of the `nodes` in run.json."""
    return {name: NodeHardware.of(node) for node in nodes if isinstance(name := node.get("name"), str)}
