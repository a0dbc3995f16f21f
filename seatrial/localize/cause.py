"""One cause, and the tests that it would slow. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import lgamma, log
from typing import Literal

import numpy as np

from seatrial.localize.group_tests import GroupTest, Names
from seatrial.localize.observations import Bools, Floats, Ints, Observed, ints

CauseKind = Literal["cut", "switch", "placement", "rail", "node", "gpu", "link", "socket", "leaf"]
Key = tuple[CauseKind, str]  # kind and name
Sides = tuple[Names, ...]  # nodes of each side of a cut

ALWAYS = 0.999  # the probability with which a cause slows each of its tests
# Lower for intermittent causes: a hash selects the path, or a port flaps
PENETRANCES = (ALWAYS, 0.75, 0.5, 0.2)
PLACEMENTS = {"rails": "GPUs of different addresses", "sockets": "GPUs on different sockets"}
# Guessed number of faults of each kind in a fleet with a fault. The prior odds of one part are this
# divided by the number of such parts.
EXPECTED: Mapping[CauseKind, float] = {
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
_SOMETIMES = 0.03  # the share of faults with each of the lower penetrances
# Least number of slow node groups of an intermittent cause; for a link, of slow tests
_LEAST_SLOW = 4
# From this many tests on, at least a fifth of the expected number must be slow; fewer happen by
# chance once in a thousand
_MANY = 40


@dataclass(frozen=True, slots=True)
class Cause:
    """One explanation of slow tests.

    `nodes` are the nodes that it blames; for a cut, the nodes of one side. `gpus` are GPU addresses
    on these nodes. `sides` are the groups of nodes that a cut separates.

    Causes with the same kind and name blame the same part. They differ in `penetrance`, the
    probability of slowing a test, and in `at_one_end`, which limits a rail, leaf or socket to tests
    with other nodes or GPUs, and a link to tests of its nodes in one order.
    """

    kind: CauseKind
    name: str
    nodes: Names = ()
    gpus: Names = ()
    sides: Sides = ()
    penetrance: float = ALWAYS
    at_one_end: bool = False
    log_prior: float = 0.0

    @property
    def key(self) -> Key:
        """Kind and name, by which a part is known."""
        return self.kind, self.name


@dataclass(frozen=True, slots=True)
class Column:
    """A cause with the places of the tests that it would slow."""

    cause: Cause
    tests: Ints

    @classmethod
    def of(cls, cause: Cause, tests: Sequence[int]) -> "Column":
        """Return the column of a cause with the indices of its tests."""
        return cls(cause, ints(tests))


def cut_column(observed: Observed, sides: Sequence[Collection[str]]) -> Column:
    """Return the column of a cut between two or more groups of nodes.

    The prior is uniform over all ways to choose groups of these sizes.
    """
    sizes = list(map(len, sides))
    named = [tuple(sorted(side)) for side in sides]
    # With groups of equal size, their order does not make another cut
    if len(set(sizes)) == 1:
        named.sort()
    blamed = named
    if len(named) == 2:
        blamed = named[:1]
    nodes = len(observed.nodes)
    of_number = log(EXPECTED["cut"] / nodes)
    cause = Cause(
        kind="cut",
        name=" | ".join(map(" ".join, blamed)),
        nodes=tuple(chain.from_iterable(blamed)),
        sides=tuple(named),
        log_prior=of_number - _log_partitions(nodes, sizes),
    )
    place_of = side_by_node(sides)
    across = []
    for i, test in enumerate(observed.tests):
        places = set(map(place_of.get, test.nodes))
        places.discard(None)
        if len(places) > 1:
            across.append(i)
    return Column.of(cause, across)


def one_way(
    observed: Observed, links: Sequence[Column], ends: Mapping[str, tuple[Names, list[int]]]
) -> Iterator[Column]:
    """Yield both directions of the links that were tested in both; `ends` are the indices of the
    tests of each node.

    Their nodes are slow with no others: else a node that is slow in one direction is likelier than
    each of its links.
    """
    tests = observed.tests
    for link in links:
        a, b = link.cause.nodes
        beside = ints(ends[a][1] + ends[b][1])
        if observed.nodes_of(observed.bad_of(beside)) != {a, b}:
            continue
        forth = [i for i in link.tests if tests[i].nodes == (a, b)]
        back = [i for i in link.tests if tests[i].nodes == (b, a)]
        if forth and back:
            for where in (forth, back):
                cause = replace(link.cause, at_one_end=True)
                yield Column.of(cause, where)


def _log_partitions(nodes: int, sizes: Sequence[int]) -> float:
    """Return the log of the number of choices of nodes for groups of these sizes."""
    orders_within = sum(lgamma(size + 1) for size in sizes)
    return lgamma(nodes + 1) - orders_within - lgamma(len(sizes))


def side_by_node(sides: Sequence[Collection[str]]) -> dict[str, int]:
    """Return the index of the side that each node is on."""
    places: dict[str, int] = {}
    for place, side in enumerate(sides):
        places.update(dict.fromkeys(side, place))
    return places


def side_of(tests: Sequence[GroupTest], sides: Sequence[Collection[str]]) -> Ints:
    """Return, for each test, the index of the side that its first node is on; `len(sides)` if on
    none.
    """
    places = side_by_node(sides)
    return ints([places.get(test.nodes[0], len(sides)) for test in tests])


def log_choose(n: int, k: int) -> float:
    """Return the log of the number of choices of k among n."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def possible_causes(parts: Sequence[Column], observed: Observed) -> list[Column]:
    """Return permanent and intermittent columns of the parts that the tests do not rule out."""
    telling = with_reference_tests(parts, observed)
    return with_penetrances(telling, observed)


def with_reference_tests(candidates: Iterable[Column], observed: Observed) -> list[Column]:
    """Drop a cause's tests of a kind if it slows every test of that kind, so that none shows the
    normal speed.
    """
    fewer = []
    sizes = observed.like_sizes
    for column in candidates:
        tests = column.tests
        like = observed.like[tests]
        number = np.bincount(like, minlength=len(sizes))
        all_alike = (number >= sizes) & (sizes > 0)
        if all_alike.any():
            telling = observed.failed[tests] | ~all_alike[like]
            tests = tests[telling]
        if len(tests):
            fewer.append(replace(column, tests=tests))
    return fewer


def with_penetrances(candidates: Sequence[Column], observed: Observed) -> list[Column]:
    """Return the plausible columns; where a cause has slow and fine tests, also its intermittent
    variants.
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
    """Return whether the cause has enough slow tests or node groups, and at least one test that is
    not slow.
    """
    cause = column.cause
    slow = observed.bad_of(column.tests)
    # If it may slow only a share of its tests, too many cuts into groups fit
    if len(cause.sides) > 2:
        return False
    if len(slow) == len(column.tests):
        return False
    places = len(slow)
    if cause.kind != "link":
        groups = {frozenset(observed.tests[i].nodes) for i in slow}
        places = len(groups)
    # A node that is slow with one partner only may be the end of a bad link
    least = 2 * len(cause.nodes)
    return places >= max(_LEAST_SLOW, least)


def plausible(
    candidates: Sequence[Column], observed: Observed, bad: Bools, explained: Floats
) -> list[Column]:
    """Return the columns with a `bad` test; those with many tests need enough slow ones for their
    penetrance.
    """
    if not candidates:
        return []
    tests_of = [column.tests for column in candidates]
    tests = np.concatenate(tests_of)
    number = np.array(list(map(len, tests_of)))
    first = np.cumsum(number) - number
    hit = np.add.reduceat(bad[tests], first, dtype=np.int64)
    left = observed.value + explained + observed.scale / 2
    low = np.add.reduceat(left[tests], first)
    penetrance = np.array([column.cause.penetrance for column in candidates])
    # With many tests, they must be low on average, or a fifth of the expected number must be slow
    is_likely = (number < _MANY) | (low < 0)
    is_likely |= hit > number * penetrance / 5
    is_likely &= hit > 0
    kept = np.flatnonzero(is_likely)
    return [candidates[i] for i in kept.tolist()]
