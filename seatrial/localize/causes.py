"""Candidate causes of slow tests, and the tests that each of them slows. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import lgamma, log
from typing import Literal, TypeVar

import numpy as np

from seatrial.localize.group_tests import GroupTest, Switches
from seatrial.localize.observations import Bools, Floats, Ints, Observed

CauseKind = Literal["cut", "switch", "placement", "rail", "node", "gpu", "link", "socket", "leaf"]

ALWAYS = 0.999  # the probability with which a cause slows each of its tests
# Of an intermittent one: a path is up to a hash, a port flaps
PENETRANCES = (ALWAYS, 0.75, 0.5, 0.2)
_SOMETIMES = 0.03  # the share of faults with each of the lower penetrances
# Groups of nodes in which an intermittent cause shows, at the least; of a link as many tests
_LEAST_SLOW = 4
# How many of a kind a fleet with a fault has, as a guess: the prior odds of one are that over how
# many there are.
_EXPECTED: Mapping[CauseKind, float] = {
    "cut": 0.3,
    "switch": 0.3,
    "placement": 0.3,
    "rail": 0.06,
    "node": 1.0,
    "gpu": 0.5,
    "link": 0.5,
    "socket": 0.3,
    "leaf": 0.3,
}
# Tests, of which a cause slows at least a fifth of what it should: less is chance in one of a
# thousand
_MANY = 40
_SECOND_SOCKET = 0x80  # PCI buses from here on hang on the second processor
PLACEMENTS = {"rails": "GPUs of different addresses", "sockets": "GPUs on different sockets"}
Place = TypeVar("Place", int, tuple[str, int])  # of a test, or of one beside a node
Sides = tuple[tuple[str, ...], ...]  # nodes of each side of a cut
Places = dict[str, tuple[tuple[str, ...], list[int]]]


@dataclass(frozen=True, slots=True)
class Cause:
    """One explanation.

    `nodes` are those that it lies in: of a cut, one side. `gpus` are addresses on these nodes.

    Causes with the same kind and name blame the same part: one for each `penetrance`, and of a
    rail, leaf or socket others that slow its tests only where it is `at_one_end`. A cut has its
    groups of nodes as `sides`.
    """

    kind: CauseKind
    name: str
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    sides: Sides = ()
    penetrance: float = ALWAYS
    at_one_end: bool = False
    log_prior: float = 0.0

    @property
    def key(self) -> tuple[CauseKind, str]:
        """Kind and name, by which a part is known."""
        return self.kind, self.name


@dataclass(frozen=True, slots=True)
class Column:
    """A cause with the places of the tests that it would slow."""

    cause: Cause
    tests: Ints

    @classmethod
    def of(cls, cause: Cause, tests: Sequence[int]) -> "Column":
        """Make the column of a cause from the places of its tests."""
        return cls(cause, np.array(tests, dtype=np.int64))


def columns(observed: Observed, groups: Switches) -> list[Column]:
    """Return all causes of which a test was slow or failed, save cuts that no `groups` show.

    Those are nodes that share a switch, by its name.
    """
    tests = observed.tests
    links = _links(tests)
    bad = set(np.flatnonzero(observed.bad).tolist())
    bad_links = {name: link for name, link in links.items() if not bad.isdisjoint(link[1])}
    candidates = [
        *_of("node", _nodes(tests)),
        *_gpus(observed),
        *_of("link", bad_links, len(links)),
        *_switches(observed, groups),
        *_of("placement", _placements(tests)),
        *_rails(observed),
    ]
    return with_penetrances(with_reference_tests(candidates, observed), observed)


def with_reference_tests(candidates: Iterable[Column], observed: Observed) -> list[Column]:
    """Leave out the tests of a kind if the cause slows all of them: their level would be as
    slow.
    """
    fewer = []
    sizes = observed.like_sizes
    for column in candidates:
        tests = column.tests
        like = observed.like[tests]
        number = np.bincount(like, minlength=len(sizes))
        all_alike = (number >= sizes) & (sizes > 0)
        if all_alike.any():
            tests = tests[observed.failed[tests] | ~all_alike[like]]
        if len(tests):
            fewer.append(replace(column, tests=tests))
    return fewer


def with_penetrances(candidates: Sequence[Column], observed: Observed) -> list[Column]:
    """Return the plausible columns, and for those with slow and fine tests others that slow a share
    of their tests.
    """
    every = []
    for column in candidates:
        every.append(column)
        if _may_be_intermittent(column, observed):
            every += _intermittent(column)
    explained = np.zeros(len(observed.tests))
    return plausible(every, observed, observed.bad, explained)


def _intermittent(column: Column) -> Iterator[Column]:
    """Yield the column of the cause with each of the lower penetrances."""
    log_prior = column.cause.log_prior + log(_SOMETIMES)
    for penetrance in PENETRANCES[1:]:
        cause = replace(column.cause, penetrance=penetrance, log_prior=log_prior)
        yield replace(column, cause=cause)


def _may_be_intermittent(column: Column, observed: Observed) -> bool:
    """Return whether a cause is slow in enough places, and not in all of its tests."""
    cause = column.cause
    slow = observed.bad_of(column.tests)
    # With the freedom of a share too many groups fit
    if len(cause.sides) > 2 or len(slow) == len(column.tests):
        return False
    places = len(slow)
    if cause.kind != "link":
        places = len({frozenset(observed.tests[i].nodes) for i in slow})
    # A node that is slow with one partner may be a link's end
    return places >= max(_LEAST_SLOW, 2 * len(cause.nodes))


def plausible(
    candidates: Sequence[Column], observed: Observed, bad: Bools, explained: Floats
) -> list[Column]:
    """Return the causes of which a test is `bad`, and of many tests not far fewer than it slows."""
    if not candidates:
        return []
    tests = np.concatenate([column.tests for column in candidates])
    number = np.array([len(column.tests) for column in candidates])
    first = np.cumsum(number) - number
    hit = np.add.reduceat(bad[tests], first, dtype=np.int64)
    low = np.add.reduceat((observed.value + explained + observed.scale / 2)[tests], first)
    penetrance = np.array([column.cause.penetrance for column in candidates])
    # Many tests have to lie low together, or a fifth of those that it should slow has to be slow
    is_likely = (number < _MANY) | (low < 0) | (hit > number * penetrance / 5)
    kept = np.flatnonzero((hit > 0) & is_likely)
    return [candidates[i] for i in kept.tolist()]


def cut_column(observed: Observed, sides: Sequence[Collection[str]]) -> Column:
    """Make the cut between two groups of nodes or more; each choice of nodes for groups of these
    sizes is as likely.
    """
    nodes = len(observed.nodes)
    sizes = [len(side) for side in sides]
    choices = lgamma(nodes + 1) - sum(lgamma(size + 1) for size in sizes) - lgamma(len(sides))
    named = [tuple(sorted(side)) for side in sides]
    if len(set(sizes)) == 1:  # whichever is named first is the same cut
        named.sort()
    blamed = named[:1] if len(named) == 2 else named
    cause = Cause(
        kind="cut",
        name=" | ".join(map(" ".join, blamed)),
        nodes=tuple(node for side in blamed for node in side),
        sides=tuple(named),
        log_prior=log(_EXPECTED["cut"] / nodes) - choices,
    )
    group_of = side_by_node(sides)
    across = []
    for i, test in enumerate(observed.tests):
        groups = {group_of[node] for node in test.nodes if node in group_of}
        if len(groups) > 1:
            across.append(i)
    return Column.of(cause, across)


def side_by_node(sides: Sequence[Collection[str]]) -> dict[str, int]:
    """Return the place of the side of each node."""
    places: dict[str, int] = {}
    for place, side in enumerate(sides):
        places.update(dict.fromkeys(side, place))
    return places


def side_of(tests: Sequence[GroupTest], sides: Sequence[Collection[str]]) -> Ints:
    """Return the place of the side with the first node of each test; one more than there are for a
    node of none.
    """
    places = side_by_node(sides)
    firsts = [places.get(test.nodes[0], len(sides)) for test in tests]
    return np.array(firsts, dtype=np.int64)


def log_choose(n: int, k: int) -> float:
    """Return the log of the number of choices of k among n."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _of(kind: CauseKind, places: Places, total: int = 0) -> list[Column]:
    """Return the columns of parts of a kind; the fleet has `total` of them (default: those in
    `places`).
    """
    log_prior = log(_EXPECTED[kind] / max(1, total or len(places)))
    parts = []
    for name, (nodes, where) in places.items():
        if where:
            cause = Cause(kind, name, nodes, log_prior=log_prior)
            parts.append(Column.of(cause, where))
    return parts


def _nodes(tests: Sequence[GroupTest]) -> Places:
    """Return the nodes with their tests."""
    places: Places = {}
    for i, test in enumerate(tests):
        for node in dict.fromkeys(test.nodes):
            _, where = places.setdefault(node, ((node,), []))
            where.append(i)
    return places


def _gpus(observed: Observed) -> list[Column]:
    """Return the columns of GPUs whose node was slow with some of them; GPUs always tested together
    are one candidate.

    So are all GPUs of a socket. If they took part in all tests of the node, they are the node.
    """
    bad = observed.nodes_of(np.flatnonzero(observed.bad))
    ends = observed.tests.ends
    total = sum(map(len, ends.values()))
    of_gpus = []
    for node, tests in ends.items():
        alike = together(tests)
        if len(alike) < 2 or node not in bad:
            continue
        for addresses, where in alike.items():
            kind: CauseKind = "gpu" if len(addresses) == 1 else "socket"
            prior = _EXPECTED["gpu"] * len(addresses) / total
            of_gpus.append(_on_node(kind, node, addresses, where, prior))
        of_node = set().union(*tests.values())
        for socket in socket_halves(tests):
            where = sorted(set().union(*(tests[address] for address in socket)))
            if socket not in alike and len(where) < len(of_node):
                prior = _EXPECTED["socket"] / 2 / len(ends)
                of_gpus.append(_on_node("socket", node, socket, where, prior))
    return of_gpus


def _on_node(
    kind: CauseKind, node: str, addresses: tuple[str, ...], where: list[int], prior: float
) -> Column:
    """Make the column of GPUs of a node."""
    name = f"{node}/{' '.join(addresses)}"
    cause = Cause(kind, name, nodes=(node,), gpus=addresses, log_prior=log(prior))
    return Column.of(cause, where)


def together(where: Mapping[str, Sequence[Place]]) -> dict[tuple[str, ...], list[Place]]:
    """Return the tests of each group of addresses that took part in the same ones."""
    alike: dict[tuple[Place, ...], list[str]] = defaultdict(list)
    for address in sorted(where):
        alike[tuple(where[address])].append(address)
    return {tuple(addresses): list(places) for places, addresses in alike.items()}


def socket_halves(addresses: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the addresses on each of two sockets; none where all are on one."""
    seen = frozenset(addresses)
    second = {address for address in seen if _is_on_second_socket(address)}
    halves = (seen - second, second)
    return [tuple(sorted(half)) for half in halves if 1 < len(half) < len(seen)]


def _links(tests: Sequence[GroupTest]) -> Places:
    """Return links between neighbours in a ring."""
    places: Places = {}
    for i, test in enumerate(tests):
        for pair in test.neighbours:
            _, where = places.setdefault("--".join(pair), (pair, []))
            where.append(i)
    return places


def _rails(observed: Observed) -> list[Column]:
    """Return columns of GPU addresses on all nodes, for addresses that some tests have and some
    have not.

    Those that always take part together are one.
    """
    by_address: dict[str, list[list[int]]] = defaultdict(list)  # the tests of each node
    for ends in observed.tests.ends.values():
        for address, tests in ends.items():
            by_address[address].append(tests)
    everywhere = {}
    for address, of_nodes in by_address.items():
        if len(of_nodes) > 1:
            everywhere[address] = sorted(set().union(*of_nodes))
    alike = together(everywhere)
    some = {gpus: where for gpus, where in alike.items() if len(where) < len(observed.tests)}
    log_prior = log(_EXPECTED["rail"] / max(1, len(some)))
    rails = []
    for gpus, where in some.items():
        cause = Cause("rail", " ".join(gpus), gpus=gpus, log_prior=log_prior)
        rail = Column.of(cause, where)
        rails.append(rail)
        rails += at_one_end(rail, observed.tests)
    return rails


def at_one_end(part: Column, tests: Sequence[GroupTest]) -> list[Column]:
    """Return the column with only its tests to the outside, if it has others too: then only its
    uplinks are slow.

    Of a rail those on single GPUs: which path data takes may be up to a hash.
    """
    inside = set(part.cause.nodes)
    outside = []
    for i in part.tests.tolist():
        test = tests[i]
        if not test.crossed and (not inside or inside.issuperset(test.nodes)):
            continue
        if part.cause.kind != "rail" or all(len(gpus) == 1 for gpus in test.gpus):
            outside.append(i)
    if not 0 < len(outside) < len(part.tests):
        return []
    return [Column.of(replace(part.cause, at_one_end=True), outside)]


def _switches(observed: Observed, groups: Switches) -> list[Column]:
    """Return the uplink of each group that shares a switch, with the tests of nodes inside and
    outside, and cuts.

    Of groups with the same nodes the last counts; that of one node is part of the node. Where the
    same tests go over the uplinks of two groups, such as the only two, they are the sides of a cut.
    """
    alike: dict[tuple[int, ...], dict[frozenset[str], str]] = defaultdict(dict)
    for name, members in groups.items():
        if len(members) > 1:
            across = cut_column(observed, (members, observed.nodes - members))
            alike[tuple(across.tests.tolist())][members] = name
    switches: Places = {}
    cuts = list[Column]()
    for places, names in alike.items():
        smaller = min(names, key=len)
        if len(names) > 1:
            cuts.append(cut_column(observed, (smaller, observed.nodes - smaller)))
        else:
            switches[names[smaller]] = (tuple(sorted(smaller)), list(places))
    columns = _of("switch", switches)
    log_prior = log(_EXPECTED["cut"] / max(1, len(cuts)))
    for cut in cuts:
        if len(cut.tests):
            columns.append(replace(cut, cause=replace(cut.cause, log_prior=log_prior)))
    return columns


def _placements(tests: Sequence[GroupTest]) -> Places:
    """Return the tests of each placement that some tests have and some have not."""
    crossed = []
    across = []
    for i, test in enumerate(tests):
        if test.crossed:
            crossed.append(i)
        if across_sockets(test):
            across.append(i)
    places = {PLACEMENTS["rails"]: crossed, PLACEMENTS["sockets"]: across}
    return {name: ((), where) for name, where in places.items() if len(where) < len(tests)}


def across_sockets(test: GroupTest) -> bool:
    """Return whether the nodes took part with GPUs on different sockets."""
    return len({_sockets(addresses) for addresses in test.gpus}) > 1


@lru_cache(1024)
def _sockets(addresses: tuple[str, ...]) -> frozenset[bool]:
    """Return whether any of the addresses is on the second socket, and any is not."""
    return frozenset(map(_is_on_second_socket, addresses))


def _is_on_second_socket(address: str) -> bool:
    return _bus(address) >= _SECOND_SOCKET


def _bus(address: str) -> int:
    """Return the bus of `0000:9d:00` or `9d:00.0`; 0 where an address has none."""
    parts = address.split(":")
    if len(parts) < 2:
        return 0
    try:
        return int(parts[-2], 16)
    except ValueError:
        return 0
