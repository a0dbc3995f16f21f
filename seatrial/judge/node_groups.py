"""Which nodes are alike by what they say of themselves. Pure. The rules: docs/verdicts.md."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from seatrial.model.measurement import Subject
from seatrial.model.setup import Hardware
from seatrial.text.words import some_of

_MOST = 2 / 3  # of the nodes that share a fact: so many are slow if it is the cause

Variant = tuple[str, int | None]  # driver, clock


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
        return tuple(sorted({self.name_by_node.get(node, "") for node in subject.nodes}))

    def name_of(self, nodes: Iterable[str]) -> str:
        """Return the name of the group that has these nodes and no others; "" if there is none."""
        some = set(nodes)
        names = {self.name_by_node.get(node, "") for node in some}
        whole = [
            name
            for name in names
            if some == {n for n, its in self.name_by_node.items() if its == name}
        ]
        if len(names) == 1 and whole:
            return whole[0]
        return self._shared_by(some)

    def _shared_by(self, some: set[str]) -> str:
        """Return the fact that all of these nodes share, and few or no others of the run; ""
        without one.
        """
        facts = (
            set.intersection(*(set(self.facts_by_node.get(node, ())) for node in some))
            if some
            else set()
        )
        for fact in sorted(facts):
            holders = sum(fact in its for its in self.facts_by_node.values())
            if holders < len(self.facts_by_node) and len(some) >= _MOST * holders:
                return fact
        return ""

    @property
    def words(self) -> str:
        """The groups in words: "2 groups by GPU model: 58 x H100, 6 x A100"; "" if all nodes are
        alike.
        """
        sizes = Counter(self.name_by_node.values()).most_common()
        if len(sizes) < 2:
            return ""
        members = []
        for name, count in sizes:
            shown = name if len(name) <= 60 else f"{name[:60]}..."
            members.append(f"{count:,} x {shown}")
        return f"{len(sizes)} groups by {' and '.join(self.differences)}: {some_of(members)}"


def group_nodes(hardware: Hardware) -> NodeGroups:
    """Group nodes that are alike.

    Nodes of another model are another group, however few. Those of another driver or clock are one
    if they are enough; a few stay with the others of their model, because a wrong driver or clock
    is a fault and no kind of node. Nodes without a known model are compared with the commonest one.
    """
    if not hardware:
        return NodeGroups()
    models = Counter(h.model for h in hardware.values() if h.model) or Counter([""])
    commonest = models.most_common(1)[0][0]
    model_by_node = {node: h.model or commonest for node, h in hardware.items()}
    enough, name_by_node, differences = (
        max(3, ceil(0.05 * len(hardware))),
        dict[str, str](),
        set[str](),
    )
    for model in models:
        alike = {
            node: hardware[node] for node, its_model in model_by_node.items() if its_model == model
        }
        members = {node: (h.driver, h.gpu_clock_mhz) for node, h in alike.items()}
        sizes = Counter(members.values())
        usual = sizes.most_common(1)[0][0]  # which nodes of rare variants count as
        variant_by_node = {node: v if sizes[v] >= enough else usual for node, v in members.items()}
        differing = _differing(set(variant_by_node.values()))
        differences.update(differing)
        name_by_node |= {
            node: _name(model, variant, differing) for node, variant in variant_by_node.items()
        }
    if len(models) > 1:
        differences.add("GPU model" if any(h.gpu_model for h in hardware.values()) else "CPU model")
    if len(set(name_by_node.values())) < 2:
        return NodeGroups(dict.fromkeys(hardware, ""), facts_by_node=_facts(hardware))
    return NodeGroups(name_by_node, tuple(sorted(differences, key=str.casefold)), _facts(hardware))


def _facts(hardware: Hardware) -> dict[str, list[str]]:
    facts: dict[str, list[str]] = {}
    for node, its in hardware.items():
        known = (
            f"driver {its.driver}" if its.driver else "",
            f"{its.gpu_clock_mhz} MHz" if its.gpu_clock_mhz else "",
        )
        facts[node] = [fact for fact in known if fact]
    return facts


def _differing(variants: set[Variant]) -> tuple[str, ...]:
    names = ("driver", "GPU clock")
    return tuple(
        name
        for name, values in zip(names, zip(*variants, strict=True), strict=True)
        if len(set(values)) > 1
    )


def _name(model: str, variant: Variant, differing: tuple[str, ...]) -> str:
    driver, clock = variant
    parts = (
        model,
        f"driver {driver or 'unknown'}" if "driver" in differing else "",
        f"{clock or 'unknown'} MHz" if "GPU clock" in differing else "",
    )
    return " ".join(part for part in parts if part)
