"""The hardware of a node that its speed depends on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """The hardware that a node reports; "" and None for what it does not report.

    `gpu_clock_mhz` is the highest SM clock. `ids` are digests of its serials; nodes of one host share some.
    """

    gpu_model: str = ""
    gpu_clock_mhz: int | None = None
    cpu_model: str = ""
    driver: str = ""
    ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """Read an entry of `nodes` in run.json, where every value may be of any type."""
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
        """Return whether the model differs from the earlier one; False if one is unknown."""
        return bool(self.model and earlier.model) and self.model != earlier.model


def hardware_by_node(nodes: Iterable[Mapping[str, Any]]) -> dict[str, NodeHardware]:
    """Hardware by node name, from `nodes` in run.json."""
    return {name: NodeHardware.of(node) for node in nodes if isinstance(name := node.get("name"), str)}
