"""Nodes of earlier runs by machine: which had another name, and which is another machine now."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.setup import Hardware

EarlierNames = Mapping[str, str | None]  # by the present name; None: it was not there
Change = frozenset[tuple[str, str | None]]  # of names: the items of EarlierNames
EarlierSeries = Mapping[int, str | None]  # by index; None: the machine was not there
Ids = Mapping[str, frozenset[str]]  # of hardware, by node
Match = tuple[int, str, str]  # shared ids, the node, its earlier name


def earlier_names(current: Hardware, earlier: Hardware) -> EarlierNames:
    """Return the names of nodes in an earlier run where they differ; None for other hardware of the
    same name.

    A machine is the same if half of its ids are, so one with a new GPU or board stays the same. If
    fewer than half of the nodes are machines of that run, machines change with every run, as in
    clouds, and names count.
    """
    if current == earlier:
        return {}
    own = _distinctive(current)
    before = _distinctive(earlier)
    same = _recognised(own, before)
    taken = set(same.values())
    names: dict[str, str | None] = {}
    for node, hardware in current.items():
        was = same.get(node, node)
        replaced = False
        if node not in same:
            # Others were recognised by their ids, but not this node, which has ids in both runs
            has_other_ids = bool(same) and node in own and node in before
            replaced = node in taken or has_other_ids
        if not replaced and was in earlier:
            replaced = hardware.replaces(earlier[was])
        if replaced:
            names[node] = None
        elif was != node:
            names[node] = was
    return names


def _recognised(own: Ids, before: Ids) -> dict[str, str]:
    """Return the earlier name of each recognised node; none where most are not recognised."""
    same = _same_machines(own, before)
    comparable = min(len(own), len(before))
    if 2 * len(same) < comparable:
        return {}
    return same


def _distinctive(hardware: Hardware) -> Ids:
    """Return by node the ids that no other node of the run has: containers share those of their
    host or image.
    """
    count = Counter[str]()
    for node in hardware.values():
        count.update(node.ids)
    distinctive = {}
    for name, node in hardware.items():
        own = frozenset(hardware_id for hardware_id in node.ids if count[hardware_id] == 1)
        if own:
            distinctive[name] = own
    return distinctive


def _same_machines(own: Ids, before: Ids) -> dict[str, str]:
    """Return the earlier name of each recognised node; if parts moved between nodes, the node with
    more of them has the name.
    """
    same: dict[str, str] = {}
    taken = set[str]()
    matches = sorted(_matches(own, before), key=_closest_first)
    for _, node, was in matches:
        if node not in same and was not in taken:
            same[node] = was
            taken.add(was)
    return same


def _matches(own: Ids, before: Ids) -> Iterator[Match]:
    """Yield each node with each earlier node that shares at least half of its ids."""
    was_in = _node_by_id(before)
    for node, ids in own.items():
        shared = Counter(was_in[i] for i in ids if i in was_in)
        for was, count in shared.items():
            earlier_ids = before[was]
            most = max(len(ids), len(earlier_ids))
            if 2 * count >= most:
                yield count, node, was


def _node_by_id(nodes: Ids) -> dict[str, str]:
    """Return the node that has each id."""
    node_by_id: dict[str, str] = {}
    for node, ids in nodes.items():
        node_by_id |= dict.fromkeys(ids, node)
    return node_by_id


def _closest_first(match: Match) -> tuple[int, bool, Match]:
    """Return the key to sort matches by: most ids first, then the same name."""
    count, node, was = match
    return -count, node != was, match


@dataclass(frozen=True, slots=True)
class Machines:
    """The nodes of a run, and their measurements by series.

    Without `hardware` nodes are the same machines as long as their names are.
    """

    hardware: Hardware = field(default_factory=dict)
    measured: Mapping[str, Measurement] = field(default_factory=dict)

    def earlier_series(self, names: Sequence[str], then: Sequence[Hardware]) -> list[EarlierSeries]:
        """Return the series of the same machine in each run of `then`, by index in `names`, where
        names differ.

        A series of a link follows both of its ends. None stands for a machine that was not there.
        """
        by_change: dict[Change, EarlierSeries] = {frozenset(): {}}
        series: list[EarlierSeries] = []
        earlier = None
        for hardware in then:
            if hardware == earlier:  # as in most runs
                series.append(series[-1])
                continue
            earlier = hardware
            was = earlier_names(self.hardware, hardware)
            change = frozenset(was.items())
            if change not in by_change:
                by_change[change] = self._renamed(names, was)
            series.append(by_change[change])
        return series

    def _renamed(self, names: Sequence[str], was: EarlierNames) -> EarlierSeries:
        """Return the earlier series of nodes that had other names, by index in `names`."""
        renamed = {}
        for i, name in enumerate(names):
            m = self.measured.get(name)
            if m is None:
                continue
            is_renamed = not was.keys().isdisjoint(m.subject.nodes)
            if is_renamed:
                renamed[i] = _renamed(m, was)
        return renamed


def _renamed(m: Measurement, earlier: EarlierNames) -> str | None:
    """Return the series of `m` under the earlier names of its nodes."""
    nodes = []
    for node in m.subject.nodes:
        was = earlier.get(node, node)
        if was is None:
            return None
        nodes.append(was)
    subject = _of_nodes(m.subject, nodes)
    return replace(m, subject=subject).series()


def _of_nodes(subject: Subject, nodes: Sequence[str]) -> Subject:
    """Return the same part of other nodes."""
    if subject.kind == "link":
        return replace(subject, name="--".join(nodes))
    node, *_ = subject.nodes
    part = subject.name.removeprefix(node)
    return replace(subject, name=nodes[0] + part)
