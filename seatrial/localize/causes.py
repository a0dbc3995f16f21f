"""Candidate causes of slow tests, and the tests that each of them slows. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import lgamma, log
from typing import Literal, TypeVar

import numpy as np

from seatrial.localize.observations import Bools, Floats, GroupTest, Ints, Observed

CauseKind = Literal["cut", "switch", "placement", "rail", "node", "gpu", "link", "socket", "leaf"]

ALWAYS = 0.999  # the probability with which a cause slows each of its tests
PENETRANCES = (ALWAYS, 0.75, 0.5, 0.2)  # of an intermittent one: a path is up to a hash, a port flaps
_SOMETIMES = 0.03  # the share of faults with each of the lower penetrances; of a rail as many as always slow
_LEAST_SLOW = 4  # groups of nodes in which an intermittent cause shows, at the least; of a link as many tests
# How many of a kind a fleet with a fault has, as a guess: the prior odds of one are that over how many there are.
_EXPECTED: Mapping[CauseKind, float] = {
    "cut": 0.3, "switch": 0.3, "placement": 0.3, "rail": 0.5, "node": 1.0, "gpu": 0.5, "link": 0.5,
    "socket": 0.3, "leaf": 0.3,
}  # fmt: skip
_MANY = 40  # tests, of which a cause slows at least a fifth of what it should: less is chance in one of a thousand
_SECOND_SOCKET = 0x80  # PCI buses from here on hang on the second processor
PLACEMENTS = {"rails": "GPUs of different addresses", "sockets": "GPUs on different sockets"}
Place = TypeVar("Place", int, tuple[str, int])  # of a test, or of one beside a node
Places = dict[str, tuple[tuple[str, ...], list[int]]]


@dataclass(frozen=True, slots=True)
class Cause:
    """One explanation. `nodes` are those that it lies in: of a cut, one side. `gpus` are addresses on these nodes.

    Causes with the same kind and name blame the same part: one for each `penetrance`, and of a rail others that slow
    its tests only where it is `at_one_end`. A cut into more than two groups has all of them as `sides`.
    """

    kind: CauseKind
    name: str
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    sides: tuple[tuple[str, ...], ...] = ()
    penetrance: float = ALWAYS
    at_one_end: bool = False
    log_prior: float = 0.0

    @property
    def key(self) -> tuple[CauseKind, str]:
        return self.kind, self.name


@dataclass(frozen=True, slots=True)
class Column:
    """A cause with the places of the tests that it would slow."""

    cause: Cause
    tests: Ints

    @classmethod
    def of(cls, cause: Cause, tests: Sequence[int]) -> "Column":
        return cls(cause, np.array(tests, dtype=np.int64))


def columns(observed: Observed, groups: Mapping[str, frozenset[str]]) -> list[Column]:
    """Return all causes of which a test was slow or failed, save cuts that no `groups` show.

    Those are nodes that share a switch, by its name.
    """
    tests = observed.tests
    switches, cuts = _switches(tests, groups)
    links, bad = _links(tests), set(np.flatnonzero(observed.bad).tolist())
    candidates = [
        *_of("node", _nodes(tests)),
        *_gpus(observed),
        *_of("link", {name: link for name, link in links.items() if not bad.isdisjoint(link[1])}, len(links)),
        *_of("switch", switches),
        *_of("cut", cuts),
        *_of("placement", _placements(tests)),
        *_rails(tests),
    ]
    return with_penetrances(with_reference_tests(candidates, observed), observed)


def with_reference_tests(candidates: Iterable[Column], observed: Observed) -> list[Column]:
    """Leave out the tests of a kind if the cause slows all of them: their level would be as slow."""
    fewer = []
    for column in candidates:
        tests = column.tests
        number = np.bincount(observed.like[tests], minlength=len(observed.like_sizes))
        all_alike = (number >= observed.like_sizes) & (observed.like_sizes > 0)
        kept = tests if not all_alike.any() else tests[observed.failed[tests] | ~all_alike[observed.like[tests]]]
        if len(kept):
            fewer.append(replace(column, tests=kept))
    return fewer


def with_penetrances(candidates: Sequence[Column], observed: Observed) -> list[Column]:
    """Return the plausible columns, and for those with slow and fine tests others that slow a share of their tests."""
    explained = np.zeros(len(observed.tests))
    every = [
        replace(
            column, cause=replace(column.cause, penetrance=penetrance, log_prior=column.cause.log_prior + log_share)
        )
        for column in candidates
        for penetrance, log_share in _shares_of_faults(column, observed)
    ]
    return plausible(every, observed, observed.bad, explained)


def _shares_of_faults(column: Column, observed: Observed) -> list[tuple[float, float]]:
    """Return the penetrances that fit a column, each with the log of the share of faults that have it."""
    if column.cause.sides:  # with the freedom of a share too many groups fit
        return [(ALWAYS, 0.0)]
    rail = column.cause.kind == "rail"
    always = [] if rail and column.cause.penetrance < ALWAYS else [(ALWAYS, 0.0)]
    slow = column.tests[observed.bad[column.tests]]
    if not rail and len(slow) >= _LEAST_SLOW and column.cause.kind != "link":
        slow = np.unique([hash(frozenset(observed.tests[i].nodes)) for i in slow])
    if len(slow) < (1 if rail else _LEAST_SLOW) or observed.bad[column.tests].all():
        return always
    hashed = rail and (column.cause.at_one_end or column.cause.penetrance < ALWAYS)  # one GPU of each node
    log_share = 0.0 if hashed else log(_SOMETIMES)
    return always + [(penetrance, log_share) for penetrance in PENETRANCES[1:]]


def plausible(candidates: Sequence[Column], observed: Observed, bad: Bools, explained: Floats) -> list[Column]:
    """Return the causes of which a test is `bad`, and of many tests not far fewer than it slows."""
    if not candidates:
        return []
    tests = np.concatenate([column.tests for column in candidates])
    number = np.array([len(column.tests) for column in candidates])
    first = np.cumsum(number) - number
    hit = np.add.reduceat(bad[tests], first, dtype=np.int64)
    low = np.add.reduceat((observed.value + explained + observed.scale / 2)[tests], first)
    penetrance = np.array([column.cause.penetrance for column in candidates])
    kept = (hit > 0) & ((number < _MANY) | (low < 0) | (hit > number * penetrance / 5))
    return [column for column, keep in zip(candidates, kept.tolist(), strict=True) if keep]


def cut_column(tests: Sequence[GroupTest], side: frozenset[str], nodes: int) -> Column:
    """Make the cut between `side` and the other nodes.

    Each size of a side is equally likely, and each choice of nodes.
    """
    members = tuple(sorted(side))
    log_prior = log(_EXPECTED["cut"] / nodes) - log_choose(nodes, len(side))
    cause = Cause("cut", " ".join(members), members, log_prior=log_prior)
    return Column.of(cause, [i for i, test in enumerate(tests) if len(set(map(side.__contains__, test.nodes))) > 1])


def log_choose(n: int, k: int) -> float:
    """Return the log of the number of choices of k among n."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def groups_column(tests: Sequence[GroupTest], groups: Sequence[frozenset[str]], nodes: int) -> Column:
    """Make the spine between more than two groups.

    Each number of groups is equally likely, and each choice of nodes.
    """
    group_of = {node: i for i, group in enumerate(groups) for node in group}
    numbers = [len({group_of[node] for node in test.nodes if node in group_of}) for test in tests]
    choices = lgamma(nodes + 1) - sum(lgamma(len(group) + 1) for group in groups) - lgamma(len(groups) + 1)
    sides = tuple(tuple(sorted(group)) for group in sorted(groups, key=min))
    members = tuple(node for side in sides for node in side)
    name = " | ".join(" ".join(side) for side in sides)
    cause = Cause("cut", name, members, sides=sides, log_prior=log(_EXPECTED["cut"] / nodes) - choices)
    return Column(cause, np.flatnonzero(np.array(numbers) > 1))


def _of(kind: CauseKind, places: Places, total: int = 0) -> list[Column]:
    """Return the columns of parts of a kind; the fleet has `total` of them (default: those in `places`)."""
    log_prior = log(_EXPECTED[kind] / max(1, total or len(places)))
    return [
        Column.of(Cause(kind, name, nodes, log_prior=log_prior), where)
        for name, (nodes, where) in places.items()
        if where
    ]


def _nodes(tests: Sequence[GroupTest]) -> Places:
    places: Places = {}
    for i, test in enumerate(tests):
        for node in dict.fromkeys(test.nodes):
            places.setdefault(node, ((node,), []))[1].append(i)
    return places


def _gpus(observed: Observed) -> list[Column]:
    """Return the columns of GPUs whose node was slow with some of them; GPUs always tested together are one candidate.

    So are all GPUs of a socket. If a node took part with the same GPUs in all tests, node and GPU are one.
    """
    by_node: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    bad = observed.nodes_of(np.flatnonzero(observed.bad))
    for i, test in enumerate(observed.tests):
        for node, addresses in zip(test.nodes, test.gpus, strict=False):
            by_node[node][addresses].append(i)
    total = sum(len(set().union(*tests)) for tests in by_node.values())
    found = []
    for node, tests in by_node.items():
        if len(tests) < 2 or node not in bad:
            continue
        alike = together(tests)
        for addresses, where in alike.items():
            share = _EXPECTED["gpu"] * len(addresses) / total
            found.append(_on_node("gpu" if len(addresses) == 1 else "socket", node, addresses, where, share))
        for socket in socket_halves(address for addresses in tests for address in addresses):
            where = sorted(i for addresses, some in tests.items() if socket & set(addresses) for i in some)
            if tuple(sorted(socket)) not in alike:
                found.append(
                    _on_node("socket", node, tuple(sorted(socket)), where, _EXPECTED["socket"] / 2 / len(by_node))
                )
    return found


def _on_node(kind: CauseKind, node: str, addresses: tuple[str, ...], where: list[int], prior: float) -> Column:
    cause = Cause(kind, f"{node}/{' '.join(addresses)}", (node,), addresses, log_prior=log(prior))
    return Column.of(cause, where)


def together(tests: Mapping[tuple[str, ...], list[Place]]) -> dict[tuple[str, ...], list[Place]]:
    """Return the tests of each group of addresses that took part in the same ones."""
    where: dict[str, list[Place]] = defaultdict(list)
    for addresses, some in tests.items():
        for address in dict.fromkeys(addresses):
            where[address] += some
    alike: dict[tuple[Place, ...], list[str]] = defaultdict(list)
    for address in sorted(where):
        alike[tuple(sorted(where[address]))].append(address)
    return {tuple(addresses): list(places) for places, addresses in alike.items()}


def socket_halves(addresses: Iterable[str]) -> list[frozenset[str]]:
    """Return the addresses on each of two sockets; none where all are on one."""
    seen = frozenset(addresses)
    second = frozenset(address for address in seen if _bus(address) >= _SECOND_SOCKET)
    return [half for half in (seen - second, second) if len(half) > 1 and half != seen]


def _links(tests: Sequence[GroupTest]) -> Places:
    """Return links between neighbours in a ring."""
    places: Places = {}
    for i, test in enumerate(tests):
        for pair in test.neighbours:
            places.setdefault("--".join(pair), (pair, []))[1].append(i)
    return places


def _rails(tests: Sequence[GroupTest]) -> list[Column]:
    """Return columns of GPU addresses on all nodes, for addresses that some tests have and some have not.

    Those that always take part together are one. A rail slows all tests with it, or those where one GPU of each node
    takes part, or of these the ones that have it at one end alone: which path data takes may be up to a hash.
    """
    by_gpus: dict[tuple[tuple[str, ...], ...], list[int]] = defaultdict(list)
    users: dict[str, set[str]] = defaultdict(set)
    for i, test in enumerate(tests):
        by_gpus[test.gpus].append(i)
        for node, addresses in zip(test.nodes, test.gpus, strict=False):
            for address in addresses:
                users[address].add(node)
    by_address: dict[tuple[str, ...], list[int]] = defaultdict(list)
    single, one_end = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for gpus, where in by_gpus.items():
        ends = Counter(address for addresses in gpus for address in set(addresses))
        by_address[tuple(ends)] += where
        for address in ends if all(len(addresses) == 1 for addresses in gpus) else ():
            single[address] += where
            one_end[address] += where if ends[address] == 1 and len(gpus) > 1 else []
    rails = [
        (addresses, where)
        for addresses, where in together(by_address).items()
        if len(where) < len(tests) and len(users[addresses[0]]) > 1
    ]
    log_prior = log(_EXPECTED["rail"] / max(1, len(rails)) / (2 * len(PENETRANCES)))
    return [
        column
        for addresses, where in rails
        for column in _of_rail(
            Cause("rail", " ".join(addresses), (), addresses, log_prior=log_prior), where, single, one_end
        )
    ]


def _of_rail(
    rail: Cause, where: list[int], single: Mapping[str, list[int]], one_end: Mapping[str, list[int]]
) -> list[Column]:
    """Return the columns of a rail: of all tests with it, of those on single GPUs, and of those with it at one end."""
    some = sorted(i for address in rail.gpus for i in single.get(address, ()))
    ends = sorted(i for address in rail.gpus for i in one_end.get(address, ()))
    found = [(rail, where)]
    if 0 < len(some) < len(where):
        found.append((replace(rail, penetrance=PENETRANCES[1]), some))
    if ends:
        found.append((replace(rail, at_one_end=True), ends))
    return [Column.of(cause, tests) for cause, tests in found]


def _switches(tests: Sequence[GroupTest], groups: Mapping[str, frozenset[str]]) -> tuple[Places, Places]:
    """Return the uplink of each group that shares a switch, with the tests of nodes inside and outside, and cuts.

    Of groups with the same nodes the last counts; that of one node is part of the node. Where the same tests go over
    the uplinks of two groups, such as the only two, they are the sides of a cut.
    """
    alike: dict[tuple[int, ...], dict[frozenset[str], str]] = defaultdict(dict)
    for name, members in groups.items():
        where = (i for i, test in enumerate(tests) if 0 < len(members.intersection(test.nodes)) < len(test.nodes))
        if len(members) > 1:
            alike[tuple(where)][members] = name
    switches, cuts = Places(), Places()
    for places, names in alike.items():
        smaller = min(names, key=len)
        side = tuple(sorted(smaller))
        if len(names) > 1:
            cuts[" ".join(side)] = side, list(places)
        else:
            switches[names[smaller]] = side, list(places)
    return switches, cuts


def _placements(tests: Sequence[GroupTest]) -> Places:
    placed = [i for i, test in enumerate(tests) if len(test.gpus) > 1]
    crossed = [i for i in placed if tests[i].crossed]
    across = [i for i in placed if across_sockets(tests[i])]
    places = {PLACEMENTS["rails"]: crossed, PLACEMENTS["sockets"]: across}
    return {name: ((), where) for name, where in places.items() if len(where) < len(tests)}


def across_sockets(test: GroupTest) -> bool:
    """Return whether the nodes took part with GPUs on different sockets."""
    return len({_sockets(addresses) for addresses in test.gpus}) > 1


@lru_cache(1024)
def _sockets(addresses: tuple[str, ...]) -> frozenset[bool]:
    return frozenset(_bus(address) >= _SECOND_SOCKET for address in addresses)


def _bus(address: str) -> int:
    """Return the bus of `0000:9d:00` or `9d:00.0`; 0 where an address has none."""
    parts = address.split(":")
    try:
        return int(parts[-2], 16) if len(parts) > 1 else 0
    except ValueError:
        return 0
