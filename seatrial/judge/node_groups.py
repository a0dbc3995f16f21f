"""Which nodes are alike by what they say of themselves. Pure. The rules: docs/verdicts.md."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from seatrial.model.measurement import Subject
from seatrial.model.reason import Reason
from seatrial.model.setup import Hardware
from seatrial.text.words import some_of

_MOST = 2 / 3  # of the nodes that share a fact: so many are slow if it is the cause


class Variant(NamedTuple):
    """The driver and the GPU clock of a node."""

    driver: str
    clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class NodeGroups:
    """The name of each node's group, "" where all nodes are alike; and by which facts the groups
    differ.

    `facts_by_node` are the driver and the clock of each node, as they are shown.
    """

    name_by_node: Mapping[str, str] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    facts_by_node: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, subject: Subject) -> tuple[str, ...]:
        """Return the groups that the subject is part of: one, and of a link those of both ends."""
        names = {self.name_by_node.get(node, "") for node in subject.nodes}
        return tuple(sorted(names))

    def name_of(self, nodes: Iterable[str]) -> str:
        """Return the name of the group that has these nodes and no others; "" if there is none."""
        some = set(nodes)
        names = {self.name_by_node.get(node, "") for node in some}
        if len(names) == 1:
            name = names.pop()
            members = {node for node, its in self.name_by_node.items() if its == name}
            if some == members:
                return name
        return self._shared_by(some)

    def _shared_by(self, some: set[str]) -> str:
        """Return the fact that all of these nodes share, and few or no others of the run; ""
        without one.
        """
        if not some:
            return ""
        facts = [set(self.facts_by_node.get(node, ())) for node in some]
        shared = set.intersection(*facts)
        for fact in sorted(shared):
            holders = sum(fact in its for its in self.facts_by_node.values())
            tells_apart = holders < len(self.facts_by_node)
            if tells_apart and len(some) >= _MOST * holders:
                return fact
        return ""

    @property
    def reason(self) -> Reason:
        """The groups: "2 groups by GPU model: 58 x H100, 6 x A100"; empty if all nodes are
        alike.
        """
        sizes = Counter(self.name_by_node.values()).most_common()
        if len(sizes) < 2:
            return Reason()
        members = [f"{count:,} x {_short(name)}" for name, count in sizes]
        differences = " and ".join(self.differences)
        return Reason.of(
            "node-groups", count=len(sizes), differences=differences, groups=some_of(members)
        )


def _short(name: str) -> str:
    """Return a name without what is longer than a line takes."""
    if len(name) > 60:
        return f"{name[:60]}..."
    return name


def group_nodes(hardware: Hardware) -> NodeGroups:
    """Group nodes that are alike.

    Nodes of another model are another group, however few. Nodes of another driver or clock are a
    group if there are enough of them; a few stay with the others of their model, because a wrong
    driver or clock is a fault and no kind of node. Nodes without a known model are compared with
    the commonest one.
    """
    if not hardware:
        return NodeGroups()
    variants_of = _variants(hardware)
    enough = max(3, ceil(0.05 * len(hardware)))
    name_by_node = dict[str, str]()
    differences = set[str]()
    for model, variants in variants_of.items():
        counted = _counted(variants, enough)
        differing = _differing(counted.values())
        differences.update(differing)
        for node, variant in counted.items():
            name_by_node[node] = _name(model, variant, differing)
    if len(variants_of) > 1:
        has_gpus = any(h.gpu_model for h in hardware.values())
        differences.add("GPU model" if has_gpus else "CPU model")
    names = set(name_by_node.values())
    if len(names) < 2:
        name_by_node = dict.fromkeys(hardware, "")
        differences.clear()
    return NodeGroups(
        name_by_node=name_by_node,
        differences=tuple(sorted(differences, key=str.casefold)),
        facts_by_node=_facts(hardware),
    )


def _variants(hardware: Hardware) -> dict[str, dict[str, Variant]]:
    """Return the variant of each node, by the model that it counts as."""
    models = Counter(h.model for h in hardware.values() if h.model)
    if not models:
        models[""] = 1
    commonest = models.most_common(1)[0][0]
    variants_of: dict[str, dict[str, Variant]] = {model: {} for model in models}
    for node, h in hardware.items():
        model = h.model or commonest
        variants_of[model][node] = Variant(h.driver, h.gpu_clock_mhz)
    return variants_of


def _counted(variants: Mapping[str, Variant], enough: int) -> dict[str, Variant]:
    """Return what each node of a model counts as: its variant, or the usual one where too few nodes
    have its own.
    """
    sizes = Counter(variants.values())
    usual = sizes.most_common(1)[0][0]
    counted = dict(variants)
    for node, variant in variants.items():
        if sizes[variant] < enough:
            counted[node] = usual
    return counted


def _facts(hardware: Hardware) -> dict[str, list[str]]:
    """Return the driver and the clock of each node, where they are known."""
    facts: dict[str, list[str]] = {}
    for node, its in hardware.items():
        known = list[str]()
        if its.driver:
            known.append(f"driver {its.driver}")
        if its.gpu_clock_mhz:
            known.append(f"{its.gpu_clock_mhz} MHz")
        facts[node] = known
    return facts


def _differing(variants: Collection[Variant]) -> list[str]:
    """Return what the variants differ in."""
    drivers = {variant.driver for variant in variants}
    clocks = {variant.clock_mhz for variant in variants}
    differing = []
    if len(drivers) > 1:
        differing.append("driver")
    if len(clocks) > 1:
        differing.append("GPU clock")
    return differing


def _name(model: str, variant: Variant, differing: Sequence[str]) -> str:
    """Name a group by its model, and by the facts that its nodes differ in from others."""
    parts = []
    if model:
        parts.append(model)
    if "driver" in differing:
        parts.append(f"driver {variant.driver or 'unknown'}")
    if "GPU clock" in differing:
        parts.append(f"{variant.clock_mhz or 'unknown'} MHz")
    return " ".join(parts)
