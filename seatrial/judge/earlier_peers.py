"""Peers over time: what like nodes measured in other runs of the last days, where a run has too few
nodes of its own.

A test of one to four nodes of a cluster at work has no peers of its own. The newest reading of each
like node stands in for them, of the same software and accepted, so that one rule judges a night of
all nodes and a test of one. Beside it comes the own history of the nodes: the runs that had them,
however many runs lie between.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from seatrial.history.past import RunContext, changes
from seatrial.history.rows import RunRow
from seatrial.model.measurement import Measurement
from seatrial.model.setup import Hardware, NodeHardware

if TYPE_CHECKING:
    from seatrial.history.store import Store

FEW_NODES = 4  # a run of more has peers of its own
_PEERS_FOR = timedelta(days=14)
_HISTORY_FOR = timedelta(days=90)
# The nodes that were tested last; older readings are dropped first
_MOST_PEERS = 32
_MOST_RUNS = 35  # of the nodes of this run
_PEER_KINDS = ("node", "gpu")


@dataclass(frozen=True, slots=True)
class EarlierPeers:
    """The runs to compare with, the oldest first, and the newest readings of like nodes with their
    hardware.
    """

    runs: Sequence[RunRow]
    measurements: Sequence[Measurement] = ()
    hardware: Hardware | None = None


@dataclass(frozen=True, slots=True)
class _LastRuns:
    """The last runs that tested a node of this run (`own`), and for each other node that passed
    lately, its last run (`by_peer`).
    """

    own: set[str]
    by_peer: dict[str, str]


def earlier_peers(
    store: "Store",
    context: RunContext,
    hardware: Hardware,
    measured: Sequence[Measurement],
) -> EarlierPeers | None:
    """Return what to compare a run of few nodes with; None if it has peers, or no other node was
    tested.

    Raises SeatrialError when the store cannot be read.
    """
    if not hardware or len(hardware) > FEW_NODES:
        return None
    last = _last_runs(store, context, hardware)
    if not last.by_peer:
        return None
    run_ids = last.own.union(last.by_peer.values())
    rows = store.runs_by_id(sorted(run_ids))
    alike = {row.run_id for row in rows if not changes(row.fingerprint, context.fingerprint)}
    hardware_of_runs = store.hardware([row.run_id for row in rows])
    models = {each.model for each in hardware.values()}
    run_by_node = dict[str, str]()
    hardware_by_node = dict[str, NodeHardware]()
    for node, run_id in last.by_peer.items():
        then = hardware_of_runs.get(run_id, {})
        its = then.get(node, NodeHardware())
        # Other software, and nodes of another model, cannot be compared
        if run_id in alike and its.model in models:
            run_by_node[node] = run_id
            hardware_by_node[node] = its
    compared = last.own.union(run_by_node.values())
    readings = _readings(store, run_by_node, measured)
    return EarlierPeers(
        runs=[row for row in rows if row.run_id in compared],
        measurements=list(readings),
        hardware=hardware_by_node,
    )


def _last_runs(store: "Store", context: RunContext, own_nodes: Container[str]) -> _LastRuns:
    """Return the last runs that the store has: of those before this one, of the same suite and
    cluster.
    """
    own = list[str]()
    newest: dict[str, str] = {}
    first = context.started - _HISTORY_FOR
    first_of_peers = context.started - _PEERS_FOR
    for test in store.node_tests(context.cluster, first):
        if test.suite != context.suite or test.ended >= context.started:
            continue
        if test.node in own_nodes:
            own.append(test.run_id)
        elif test.passed and test.ended >= first_of_peers:
            newest.pop(test.node, None)  # so that the last ones are the newest
            newest[test.node] = test.run_id
    last_own = own[-_MOST_RUNS:]
    last_peers = list(newest.items())[-_MOST_PEERS:]
    return _LastRuns(set(last_own), dict(last_peers))


def _readings(
    store: "Store", run_by_node: Mapping[str, str], measured: Sequence[Measurement]
) -> Iterator[Measurement]:
    """Yield the newest accepted reading of each number, on each of the nodes."""
    shapes = list(_shapes(measured))
    run_of = list[str]()
    numbers = list[Measurement]()
    for node, run_id in run_by_node.items():
        for shape in shapes:
            run_of.append(run_id)
            numbers.append(_on_node(shape, node))
    run_ids = list(dict.fromkeys(run_by_node.values()))
    readings = store.readings(run_ids, [m.series() for m in numbers])
    rows = zip(readings.run, readings.series, readings.value, readings.good, strict=True)
    values: dict[int, float] = {}
    for run, i, value, good in rows:
        # A run may hold readings of a node that was tested once more since
        if good and run_ids[run] == run_of[i]:
            values[i] = float(value)
    for i, value in values.items():
        yield replace(numbers[i], value=value)


def _shapes(measured: Sequence[Measurement]) -> Iterator[Measurement]:
    """Yield one measurement for each number that a node and its GPUs have, whatever the node."""
    seen = set[tuple[object, ...]]()
    for m in measured:
        if m.subject.kind not in _PEER_KINDS:
            continue
        _, _, part = m.subject.name.partition("/")
        conditions = frozenset(m.conditions.items())
        key = (m.metric, m.unit, m.subject.kind, part, conditions)
        if key not in seen:
            seen.add(key)
            yield replace(m, samples=())


def _on_node(m: Measurement, node: str) -> Measurement:
    """Return the same number of another node, or of the same GPU there."""
    _, slash, part = m.subject.name.partition("/")
    name = f"{node}{slash}{part}"
    subject = replace(m.subject, name=name)
    return replace(m, subject=subject)
