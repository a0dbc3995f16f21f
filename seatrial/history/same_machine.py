"""Which node of an earlier run was the same machine: by its serials first, then by its name. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.node_hardware import NodeHardware

Hardware = Mapping[str, NodeHardware]  # by node
EarlierNames = Mapping[str, str | None]  # by tonight's name; None: it was not there


def earlier_names(tonight: Hardware, then: Hardware) -> dict[str, str | None]:
    """What nodes of tonight were called in an earlier run, only where that is not their name now.

    A machine is the same if half of its ids are, so one that gets a new GPU or board stays itself. If fewer than half
    of the nodes are machines of that run, machines are drawn anew every night, as in clouds, and names count. Where a
    name has become that of other hardware, what was measured under it says nothing.
    """
    if tonight == then:
        return {}
    own, before = _distinctive(tonight), _distinctive(then)
    same = _same_machines(own, before)
    if 2 * len(same) < min(len(own), len(before)):
        same = {}
    taken = set(same.values())
    names: dict[str, str | None] = {}
    for node, hardware in tonight.items():
        was = same.get(node, node)
        replaced = node not in same and (node in taken or (bool(same) and node in own and node in before))
        if replaced or (was in then and hardware.replaces(then[was])):
            names[node] = None
        elif was != node:
            names[node] = was
    return names


def _distinctive(hardware: Hardware) -> dict[str, frozenset[str]]:
    """By node the ids that no other node of the run has: containers tell those of their host or their image."""
    count = Counter(hardware_id for node in hardware.values() for hardware_id in node.ids)
    own = {name: frozenset(i for i in node.ids if count[i] == 1) for name, node in hardware.items() if node.ids}
    return {name: ids for name, ids in own.items() if ids}


def _same_machines(own: Mapping[str, frozenset[str]], before: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """The earlier name of each node that is known again; where parts moved, the one with more of them has the name."""
    was_in = {hardware_id: name for name, ids in before.items() for hardware_id in ids}
    shared = [
        (count, node, was)
        for node, ids in own.items()
        for was, count in Counter(was_in[i] for i in ids if i in was_in).items()
        if 2 * count >= max(len(ids), len(before[was]))
    ]
    same: dict[str, str] = {}
    taken = set[str]()
    for _, node, was in sorted(shared, key=lambda match: (-match[0], match[1] != match[2], match)):
        if node not in same and was not in taken:
            same[node] = was
            taken.add(was)
    return same


@dataclass(frozen=True, slots=True)
class Machines:
    """The nodes of tonight, and what is measured of them by series."""

    hardware: Hardware = field(default_factory=dict)
    measured: Mapping[str, Measurement] = field(default_factory=dict)

    def earlier_series(self, names: Sequence[str], then: Sequence[Hardware]) -> list[Mapping[int, str | None]]:
        """For each run `then`, the series of the same machine by place in `names`, only where its node had another
        name; None: the machine was not there."""
        by_change: dict[frozenset[tuple[str, str | None]], Mapping[int, str | None]] = {}
        series: list[Mapping[int, str | None]] = []
        for earlier, hardware in zip((None, *then), then, strict=False):
            if hardware == earlier:  # as on most nights
                series.append(series[-1])
                continue
            change = frozenset(earlier_names(self.hardware, hardware).items())
            if change not in by_change:
                by_change[change] = self._renamed(names, dict(change))
            series.append(by_change[change])
        return series

    def _renamed(self, names: Sequence[str], earlier: EarlierNames) -> dict[int, str | None]:
        if not earlier:
            return {}
        known = ((i, self.measured.get(name)) for i, name in enumerate(names))
        return {
            i: _renamed(m, earlier)
            for i, m in known
            if m is not None and any(node in earlier for node in m.subject.nodes)
        }


def _renamed(m: Measurement, earlier: EarlierNames) -> str | None:
    """The series of `m` under the earlier names of its nodes."""
    names = [name for node in m.subject.nodes if (name := earlier.get(node, node)) is not None]
    if len(names) < len(m.subject.nodes):
        return None
    return replace(m, subject=_under(m.subject, names)).series()


def _under(subject: Subject, nodes: Sequence[str]) -> Subject:
    if subject.kind == "link":
        return replace(subject, name="--".join(nodes))
    return replace(subject, name=nodes[0] + subject.name[len(subject.nodes[0]) :])
