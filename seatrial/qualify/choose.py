"""Which idle nodes a pass tests by themselves. Pure.

A node is due at half of the allowed age: at 95 % load it is rarely idle, so the first chance must
be taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from seatrial.model.errors import InputError
from seatrial.model.reason import Reason
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.evidence import Evidence
from seatrial.text.hostlist import host_list
from seatrial.text.words import nearest_of

DUE_AT = 0.5  # share of the greatest age from which a node is due


@dataclass(frozen=True, slots=True)
class Selection:
    """The nodes that a pass is asked to test: named nodes, all idle nodes, nodes at the gate.

    `watch`: wait for due nodes that are busy until the next pass begins.
    """

    names: tuple[str, ...] = ()
    idle: bool = True
    gated: bool = True
    watch: bool = False


def candidates(
    nodes: Sequence[ServiceNode], evidence: Evidence, selection: Selection, max_age: timedelta
) -> list[ServiceNode]:
    """Return the nodes to test, the most urgent first: at the gate, in doubt, then those that are
    untested for longest.

    A node that failed at the gate is tested again only if it is named. Raises InputError for the
    name of an unknown node.
    """
    if selection.names:
        return _named(nodes, selection.names)
    gated = [
        node for node in nodes if node.state == "gated" and not node.has_failed and selection.gated
    ]
    idle = [node for node in nodes if node.state == "idle" and selection.idle]
    due = [node for node in idle if is_due(node, evidence, max_age)]
    return sorted(
        [*gated, *due],
        key=lambda node: (
            node.state != "gated",
            not evidence.is_doubtful(node.name),
            -evidence.age(node.name),
            node.name,
        ),
    )


def _named(nodes: Sequence[ServiceNode], names: Sequence[str]) -> list[ServiceNode]:
    by_name = {node.name: node for node in nodes}
    for name in names:
        if name not in by_name:
            legal = nearest_of(name, by_name) or f"legal: {host_list(by_name)}"
            raise InputError(
                f"node {name[:80]!r}: is no node that the cluster file lets tests have; {legal}"
            )
    return [by_name[name] for name in dict.fromkeys(names)]


def may_test(node: ServiceNode) -> bool:
    """Return whether a test may use the node: it is idle, named, at the gate, or out of service by
    seatrial.
    """
    return node.state in ("idle", "named", "gated") or (node.state == "out" and node.is_ours)


def why_not(node: ServiceNode) -> Reason:
    """Return the reason why a named node is not tested."""
    state = "is out of service" if node.state == "out" else "is not idle"
    return Reason.of(
        "qualify-node-not-idle",
        node=node.name,
        state=state,
        why=f" ({node.why})" if node.why else "",
    )


def batches(
    chosen: Sequence[ServiceNode], evidence: Evidence, at_once: int
) -> list[list[ServiceNode]]:
    """Return the nodes of each test, at most `at_once` together.

    A node in doubt, or one at the gate, which may be broken in any way, is tested alone.
    """
    alone = [node for node in chosen if node.state != "idle" or evidence.is_doubtful(node.name)]
    others = [node for node in chosen if node not in alone]
    groups = [others[start : start + at_once] for start in range(0, len(others), at_once)]
    return [*([node] for node in alone), *groups]


def is_due(node: ServiceNode, evidence: Evidence, max_age: timedelta) -> bool:
    """Return whether the node is in doubt, or its last pass or failure is older than `DUE_AT` of
    `max_age`.
    """
    if evidence.is_doubtful(node.name):
        return True
    failures = evidence.record(node.name).failures
    age = evidence.now - failures[0].ended if failures else evidence.age(node.name)
    return age >= DUE_AT * max_age
