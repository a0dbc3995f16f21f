"""Candidate causes of slow tests, and the tests that each of them slows. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lgamma, log
from typing import Literal

import numpy as np

from seatrial.localize.observations import Bools, Floats, GroupTest, Ints, Observed

CauseKind = Literal["cut", "switch", "placement", "rail", "node", "gpu", "link"]

ALWAYS = 0.999  # the probability with which a cause slows each of its tests
PENETRANCES = (ALWAYS, 0.5, 0.2)  # of a rail: which path data takes is up to a hash
# How many of a kind a fleet with a fault has, as a guess: the prior odds of one are that over how many there are.
_EXPECTED: Mapping[CauseKind, float] = {
    "cut": 0.3, "switch": 0.3, "placement": 0.3, "rail": 0.5, "node": 1.0, "gpu": 0.5, "link": 0.5,
}  # fmt: skip
_MANY = 40  # tests, of which a cause slows at least a fifth of what it should: less is chance in one of a thousand
_SECOND_SOCKET = 0x80  # PCI buses from here on hang on the second processor
PLACEMENTS = {"rails": "GPUs of different addresses", "sockets": "GPUs on different sockets"}


@dataclass(frozen=True, slots=True)
class Cause:
    """One explanation. `nodes` are those that it lies in: of a cut, one side.

    Causes with the same kind and name blame the same part: a rail has one for each `penetrance`, and others that slow
    its tests only where it is `at_one_end`.
    """

    kind: CauseKind
    name: str
    nodes: tuple[str, ...] = ()
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


def columns(observed: Observed, groups: Mapping[str, frozenset[str]]) -> list[Column]:
    """All causes of which a test was slow or failed, save cuts that no `groups` show.

    Those are nodes that share a switch, by its name.
    """
    tests = observed.tests
    switches, cuts = _switches(tests, groups)
    links = len({pair for test in tests for pair in test.neighbours})
    candidates = [
        *_of("node", _nodes(tests)),
        *_of("gpu", *_gpus(observed)),
        *_of("link", _links(observed), links),
        *_of("switch", switches),
        *_of("cut", cuts),
        *_of("placement", _placements(tests)),
        *_rails(tests),
    ]
    return plausible(candidates, observed, observed.bad, np.zeros(len(tests)))


def plausible(candidates: Sequence[Column], observed: Observed, bad: Bools, explained: Floats) -> list[Column]:
    """The causes of which a test is `bad`, and of many tests not far fewer than it slows."""
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
    """The cut between `side` and the other nodes: each size of a side is as likely, and each choice of nodes for it."""
    inside = np.array([len(side.intersection(test.nodes)) for test in tests])
    whole = np.array([len(set(test.nodes)) for test in tests])
    log_prior = log(_EXPECTED["cut"] / nodes) - (
        lgamma(nodes + 1) - lgamma(len(side) + 1) - lgamma(nodes - len(side) + 1)
    )
    members = tuple(sorted(side))
    cause = Cause("cut", " ".join(members), members, log_prior=log_prior)
    return Column(cause, np.flatnonzero((inside > 0) & (inside < whole)))


Places = dict[str, tuple[tuple[str, ...], list[int]]]


def _of(kind: CauseKind, places: Places, total: int = 0) -> list[Column]:
    """The columns of a kind, of which the fleet has `total`; default: as many as there are."""
    log_prior = log(_EXPECTED[kind] / max(1, total or len(places)))
    return [
        Column(Cause(kind, name, nodes, log_prior=log_prior), np.array(where, dtype=np.int64))
        for name, (nodes, where) in places.items()
        if where
    ]


def _nodes(tests: Sequence[GroupTest]) -> Places:
    places: Places = {}
    for i, test in enumerate(tests):
        for node in dict.fromkeys(test.nodes):
            places.setdefault(node, ((node,), []))[1].append(i)
    return places


def _gpus(observed: Observed) -> tuple[Places, int]:
    """GPUs of nodes that were slow with some of them, and how many GPUs there are.

    Where a node took part with the same GPUs in all tests, node and GPU are one.
    """
    by_node: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    bad = {node for i in np.flatnonzero(observed.bad) for node in observed.tests[i].nodes}
    for i, test in enumerate(observed.tests):
        for node, addresses in zip(test.nodes, test.gpus, strict=False):
            by_node[node][addresses].append(i)
    places: Places = {}
    for node, tests in by_node.items():
        if len(tests) > 1 and node in bad:
            for address in {address for addresses in tests for address in addresses}:
                where = [i for addresses, some in tests.items() if address in addresses for i in some]
                places[f"{node}/{address}"] = ((node,), sorted(where))
    return places, sum(len(set().union(*tests)) for tests in by_node.values())


def _links(observed: Observed) -> Places:
    """Links between neighbours in a ring, of which a test was slow or failed."""
    pairs = {pair for i in np.flatnonzero(observed.bad) for pair in observed.tests[i].neighbours}
    places: Places = {}
    for i, test in enumerate(observed.tests if pairs else ()):
        for pair in pairs.intersection(test.neighbours):
            places.setdefault("--".join(pair), (pair, []))[1].append(i)
    return places


def _rails(tests: Sequence[GroupTest]) -> list[Column]:
    """Columns of GPU addresses on all nodes, for addresses that some tests have and some have not.

    Its rail slows all tests with it. Where one GPU of each node takes part, a hash may choose the path, so that only a
    part of the tests with it is slow, or of those that have it at one end alone.
    """
    columns: dict[tuple[str, str], list[int]] = defaultdict(list)
    nodes: dict[tuple[str, ...], set[str]] = defaultdict(set)
    users: dict[str, set[str]] = defaultdict(set)
    by_gpus: dict[tuple[tuple[str, ...], ...], list[int]] = defaultdict(list)
    for i, test in enumerate(tests):
        by_gpus[test.gpus].append(i)
        for node, addresses in zip(test.nodes, test.gpus, strict=False):
            nodes[addresses].add(node)
    for addresses, some in nodes.items():
        for address in addresses:
            users[address] |= some
    for gpus, where in by_gpus.items():
        ends = Counter(address for addresses in gpus for address in set(addresses))
        single = all(len(addresses) == 1 for addresses in gpus)
        for address, count in ends.items():
            columns[address, "always"] += where
            columns[address, "single"] += where if single else []
            columns[address, "one end"] += where if single and count == 1 and len(gpus) > 1 else []
    rails = [rail for rail, some in users.items() if len(some) > 1 and len(columns[rail, "always"]) < len(tests)]
    log_prior = log(_EXPECTED["rail"] / max(1, len(rails)) / (2 * len(PENETRANCES)))
    variants_of_rails = []
    for rail in rails:
        variants = [("always", PENETRANCES[:1]), ("single", PENETRANCES[1:]), ("one end", PENETRANCES)]
        for variant, penetrances in variants:
            places = np.array(sorted(columns[rail, variant]), dtype=np.int64)
            causes = [Cause("rail", rail, (), each, variant == "one end", log_prior) for each in penetrances]
            variants_of_rails += [Column(cause, places) for cause in causes if len(places)]
    return variants_of_rails


def _switches(tests: Sequence[GroupTest], groups: Mapping[str, frozenset[str]]) -> tuple[Places, Places]:
    """The uplink of each group that shares a switch, with the tests of nodes inside and outside, and cuts.

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
    across = [i for i in placed if len({_sockets(addresses) for addresses in tests[i].gpus}) > 1]
    places = {PLACEMENTS["rails"]: crossed, PLACEMENTS["sockets"]: across}
    return {name: ((), where) for name, where in places.items() if len(where) < len(tests)}


@lru_cache(1024)
def _sockets(addresses: tuple[str, ...]) -> frozenset[bool]:
    return frozenset(_bus(address) >= _SECOND_SOCKET for address in addresses)


def _bus(address: str) -> int:
    """The bus of `0000:9d:00` or `9d:00.0`; 0 where an address has none."""
    parts = address.split(":")
    try:
        return int(parts[-2], 16) if len(parts) > 1 else 0
    except ValueError:
        return 0
