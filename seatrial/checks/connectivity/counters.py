"""Error counters of links, and errors in the kernel's log, that rose between the first and the last
inventory.

A counter that rises is a note; if measurements of that node are slow too, it is evidence against
its link.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.inventory import Inventories, driver_errors
from seatrial.checks.contract import CheckContext
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Node
from seatrial.remote.node_probe import Inventory, KernelEvent, ask_inventory
from seatrial.remote.ssh import answered, connected, fan_out, on_each
from seatrial.text.words import some_of

_CONFIDENCE = 0.6  # the counter is certain, but not that it explains slow numbers
_CLEAR_MINORITY = 3  # at most one of three nodes
Event = TypeVar("Event", bound=KernelEvent)
_kind_of = attrgetter("kind", "number", "pci")  # key of the same event in a kernel's log
# Prefixes of the metrics that a bad link slows down
_OVER_LINKS = ("busbw", "latency", "tcp_", "rdma_", "peer_copy")


@dataclass(frozen=True, slots=True)
class Rise:
    """A counter of a port or a GPU that rose.

    `is_error`: its own link is bad; otherwise packets were lost somewhere.
    """

    node: str
    part: str
    counter: str
    by: int
    is_error: bool

    @property
    def words(self) -> str:
        """The node and part of the counter, and its increase."""
        return f"{self.node}/{self.part} rose by {self.by}"


def revisit_inventories(
    context: CheckContext, checks: Sequence[Check]
) -> tuple[list[Check], list[Reason]]:
    """Read the counters again; return the checks with the rises as evidence, and notes.

    Nodes that do not answer are left out; without a first inventory no node is asked.
    """
    findings = context.recall(Findings)
    before = _with_counters(findings.inventories) if findings else {}
    testbed = context.testbed

    def ask(node: Node) -> Inventory:
        """Return the node's inventory."""
        with connected(testbed, node, 30) as transport:
            return ask_inventory(testbed, transport)

    nodes = [node for node in testbed.nodes if node.name in before]
    after = answered(on_each(nodes, ask, fan_out(testbed)))
    rises = risen(before, after)
    new = {name: _new_errors(before[name], node) for name, node in after.items()}
    of_drivers = (Reason.of("errors-in-run", what=error) for error in driver_errors(new))
    notes = [*_notes(rises), *of_drivers]
    with_evidence = [_with_evidence(check, rises, len(before)) for check in checks]
    return with_evidence, notes


def _with_counters(inventories: Inventories) -> Inventories:
    """Return the inventories of nodes that have counters: those with GPUs or RDMA ports."""
    having = {}
    for name, node in inventories.items():
        has_rdma = any(port.kind != "network" for port in node.ports)
        if node.gpus or has_rdma:
            having[name] = node
    return having


def risen(before: Inventories, after: Inventories) -> list[Rise]:
    """Return the counters that rose, ignoring those that were not read twice or were reset."""
    rises = []
    for name, node in after.items():
        first = dict(_counters(before[name]))
        for (part, is_error), counters in _counters(node):
            known = first.get((part, is_error))
            if known is None:
                continue
            of_gpu = part.startswith("gpu-")
            for counter, value in counters.items():
                # Inventories leave out NVLink counters that are 0
                unread = 0 if of_gpu else value
                by = value - known.get(counter, unread)
                if by > 0:
                    rises.append(Rise(name, part, counter, by, is_error))
    return rises


def _counters(inventory: Inventory) -> Iterator[tuple[tuple[str, bool], Mapping[str, int]]]:
    """Yield ((port or GPU, whether the counters count errors), value by counter).

    Errors and lost packets of a port come separately; a GPU whose counters were not read is left
    out.
    """
    for port in inventory.ports:
        yield (port.port, True), port.errors
        yield (port.port, False), port.losses
    for gpu in inventory.gpus:
        if gpu.errors is not None:
            yield (gpu.name, True), gpu.errors


def _new_errors(before: Inventory, after: Inventory) -> Inventory:
    """Return the inventory with only the errors that the kernel has logged since `before`.

    `xids` is None if the log could not be read before, since old errors would look new.
    """
    xids = None
    if before.xids is not None:
        xids = _added(before.xids, after.xids or [])
    return Inventory(xids=xids, events=_added(before.events, after.events))


def _added(before: Sequence[Event], after: Sequence[Event]) -> list[Event]:
    """Return the events that are new or occurred again, with the number of new occurrences."""
    known = {_kind_of(event): event.count for event in before}
    added = []
    for event in after:
        count = event.count - known.get(_kind_of(event), 0)
        if count > 0:
            added.append(event.model_copy(update={"count": count}))
    return added


def _notes(rises: Sequence[Rise]) -> Iterator[Reason]:
    """Yield one note for each counter, with the links on which it rose most."""
    by_counter = defaultdict(list)
    for rise in sorted(rises, key=lambda rise: -rise.by):
        by_counter[rise.is_error, rise.counter].append(rise)
    for (is_error, counter), those in by_counter.items():
        code = "link-errors-rose" if is_error else "packets-lost"
        yield Reason.of(code, counter=counter, links=some_of(rise.words for rise in those))


def _with_evidence(check: Check, rises: Sequence[Rise], nodes: int) -> Check:
    """Add the rises to a check with slow links: those on its suspects, or, without suspects, those
    on a few nodes.

    `nodes` is the number of nodes with counters; if they rise on more than a third of these, they
    are no evidence.
    """
    errors = [rise for rise in rises if rise.is_error]
    if not errors:
        return check
    bad = (judgement for judgement in check.judgements if judgement.verdict.is_fault)
    if not any(judgement.measurement.metric.startswith(_OVER_LINKS) for judgement in bad):
        return check
    if check.suspects:
        suspected = {node for suspect in check.suspects for node in suspect.nodes}
        errors = [rise for rise in errors if rise.node in suspected]
    else:
        having = {rise.node for rise in errors}
        if _CLEAR_MINORITY * len(having) > nodes:
            return check
    return replace(check, suspects=(*check.suspects, *map(_suspect, errors)))


def _suspect(rise: Rise) -> Suspect:
    """Return the GPU on which a counter rose, or the node of the port."""
    evidence = Reason.of("link-errors-rose", counter=rise.counter, links=rise.words)
    if rise.part.startswith("gpu-"):
        return Suspect("gpu", f"{rise.node}/{rise.part}", _CONFIDENCE, evidence)
    return Suspect("node", rise.node, _CONFIDENCE, evidence)
