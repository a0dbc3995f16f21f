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
# Of an intermittent one: a path is up to a hash, a port flaps
PENETRANCES = (ALWAYS, 0.75, 0.5, 0.2)
PLACEMENTS = {"rails": "GPUs of different addresses", "sockets": "GPUs on different sockets"}
# How many of a kind a fleet with a fault has, as a guess: the prior odds of one are that over how
# many there are.
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
# Groups of nodes in which an intermittent cause shows, at the least; of a link as many tests
_LEAST_SLOW = 4
# Tests, of which a cause slows at least a fifth of what it should: less is chance in one of a
# thousand
_MANY = 40


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
        """Make the column of a cause from the places of its tests."""
        return cls(cause, ints(tests))


def cut_column(observed: Observed, sides: Sequence[Collection[str]]) -> Column:
    """Make the cut between two groups of nodes or more; each choice of nodes for groups of these
    sizes is as likely.
    """
    sizes = list(map(len, sides))
    named = [tuple(sorted(side)) for side in sides]
    # Of groups of one size, whichever is named first is the same cut
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


def _log_partitions(nodes: int, sizes: Sequence[int]) -> float:
    """Return the log of the number of choices of nodes for groups of these sizes."""
    orders_within = sum(lgamma(size + 1) for size in sizes)
    return lgamma(nodes + 1) - orders_within - lgamma(len(sizes))


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
    of_tests = list[int]()
    for test in tests:
        first = test.nodes[0]
        of_tests.append(places.get(first, len(sides)))
    return ints(of_tests)


def log_choose(n: int, k: int) -> float:
    """Return the log of the number of choices of k among n."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def possible_causes(parts: Sequence[Column], observed: Observed) -> list[Column]:
    """Return the columns of parts that may be causes, as permanent and as intermittent ones."""
    telling = with_reference_tests(parts, observed)
    return with_penetrances(telling, observed)


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
            telling = observed.failed[tests] | ~all_alike[like]
            tests = tests[telling]
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
    if len(cause.sides) > 2:
        return False
    if len(slow) == len(column.tests):
        return False
    places = len(slow)
    if cause.kind != "link":
        groups = {frozenset(observed.tests[i].nodes) for i in slow}
        places = len(groups)
    # A node that is slow with one partner may be a link's end
    least = 2 * len(cause.nodes)
    return places >= max(_LEAST_SLOW, least)


def plausible(
    candidates: Sequence[Column], observed: Observed, bad: Bools, explained: Floats
) -> list[Column]:
    """Return the causes of which a test is `bad`, and of many tests not far fewer than it slows."""
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
    # Many tests have to lie low together, or a fifth of those that it should slow has to be slow
    is_likely = (number < _MANY) | (low < 0)
    is_likely |= hit > number * penetrance / 5
    is_likely &= hit > 0
    kept = np.flatnonzero(is_likely)
    return [candidates[i] for i in kept.tolist()]
