"""The one test that would tell most about causes that the tests so far do not separate. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from seatrial.localize.addresses import across_sockets
from seatrial.localize.cause import PLACEMENTS, Cause
from seatrial.localize.effects import Effect
from seatrial.localize.group_tests import Addresses, GroupTest, Names
from seatrial.localize.posterior import Posterior
from seatrial.text.printable import printable

# Limits on the candidates for the next test
_HELPERS = 4  # fine nodes
_ADDRESSES = 3
_SUSPECTS = 6  # suspected nodes


@dataclass(frozen=True, slots=True)
class NextTest:
    """A test to run: its nodes, and the GPU addresses of each node if they matter."""

    nodes: Names
    gpus: Addresses = ()

    def __str__(self) -> str:
        """Format the test for use in a reason."""
        if not self.gpus:
            return " and ".join(map(printable, self.nodes))
        ends = []
        for node, gpus in zip(self.nodes, self.gpus, strict=True):
            end = printable(node)
            if gpus:
                end += f" with {' '.join(map(printable, gpus))}"
            ends.append(end)
        return " and ".join(ends)

    def to_dict(self) -> dict[str, Any]:
        """Return the test as a JSON object."""
        gpus = [list(each) for each in self.gpus]
        return {"nodes": list(self.nodes), "gpus": gpus}


def affects(cause: Cause, test: GroupTest | NextTest) -> bool:
    """Return whether the cause would slow the test."""
    trial = GroupTest("", "", test.nodes, gpus=test.gpus)
    nodes = set(trial.nodes)
    match cause.kind:
        case "cut":
            touched = [side for side in cause.sides if not nodes.isdisjoint(side)]
            return len(touched) > 1
        case "switch":
            behind = nodes.intersection(cause.nodes)
            return 0 < len(behind) < len(trial.nodes)
        case "node":
            return not nodes.isdisjoint(cause.nodes)
        case "gpu" | "socket" | "leaf" | "rail":
            return _affects_gpus(cause, trial)
        case "link":
            return (cause.nodes[0], cause.nodes[-1]) in trial.neighbours
        case "placement":
            crossed = cause.name == PLACEMENTS["rails"]
            return trial.crossed if crossed else across_sockets(trial)


def _affects_gpus(cause: Cause, trial: GroupTest) -> bool:
    """Return whether the test uses GPUs of the cause.

    A cause at one end does not slow tests within its nodes and on a single rail.
    """
    nodes = set(cause.nodes or trial.nodes)
    is_within = nodes.issuperset(trial.nodes) and not trial.crossed
    if cause.at_one_end and is_within:
        return False
    blamed = set(cause.gpus)
    of_nodes = [gpus for node, gpus in trial.ends if node in nodes]
    return any(not blamed.isdisjoint(gpus) for gpus in of_nodes)


def most_telling(posterior: Posterior, effect: Effect) -> NextTest:
    """Return the pair whose result is least certain: the causes that would slow it have about half
    of the shares.
    """

    def certainty(test: NextTest) -> float:
        """Return the distance from 0.5 of the summed shares of causes that would slow the test."""
        causes = zip(effect.causes, effect.shares, strict=True)
        slow = sum(share for cause, share in causes if affects(cause, test))
        return abs(slow - 0.5)

    return min(_candidates(posterior, effect), key=certainty)


def of_member(posterior: Posterior, cause: Cause, unsure: Sequence[str]) -> NextTest:
    """Return a pair that shows whether the first `unsure` node belongs to the cause; if there is
    none, the cause's slowest test.
    """
    observed = posterior.observed
    tests = posterior.tests_of(cause)
    slowest = tests[np.argmin(observed.value[tests])]
    others = observed.nodes.difference(unsure)
    if not cause.sides:
        others = others.difference(cause.nodes)
    pair = untested_pair(observed.tests, unsure[:1], sorted(others))
    again = repeated(observed.tests[slowest])
    if pair is None:
        return again
    return NextTest(pair, again.gpus[:2])


def untested_pair(
    tests: Iterable[GroupTest], some: Iterable[str], others: Iterable[str]
) -> tuple[str, str] | None:
    """Return the first untested pair of a node in `some` and one in `others`; else the first pair,
    None if there is none.
    """
    tested = {frozenset(test.nodes) for test in tests}
    first = None
    for pair in product(some, others):
        if frozenset(pair) not in tested:
            return pair
        first = first or pair
    return first


def dividing(posterior: Posterior, cause: Cause) -> NextTest | None:
    """Return a pair that uses half of the cause's GPUs; None if an earlier test already separates
    them.
    """
    if len(cause.gpus) < 2:
        return None
    node = cause.nodes[0]
    blamed = set(cause.gpus)
    for test in posterior.observed.tests:
        gpus = dict(test.ends).get(node, ())
        took_part = blamed.intersection(gpus)
        if took_part and took_part != blamed:
            return None
    helpers = _helpers(posterior, set(cause.nodes))
    if not helpers:
        return None
    middle = len(cause.gpus) // 2
    half = cause.gpus[:middle]
    return NextTest((node, helpers[0]), (half, half))


def repeated(test: GroupTest) -> NextTest:
    """Return the same test, to be repeated."""
    return NextTest(test.nodes, test.gpus)


def _candidates(posterior: Posterior, effect: Effect) -> Iterator[NextTest]:
    """Yield pairs of suspected and fine nodes in all combinations, and the slowest test again."""
    tests = posterior.observed.tests
    slow = _slow_tests(posterior, effect.causes)
    suspects = _suspects(tests, slow, effect.causes)
    helpers = _helpers(posterior, set(suspects))
    settings = _settings(tests, slow, effect.causes)
    for pair in (
        *product(suspects, helpers),
        *combinations(suspects, 2),
        *combinations(helpers, 2),
    ):
        for gpus in settings:
            yield NextTest(pair, gpus)
    if slow:
        yield repeated(tests[slow[0]])


def _slow_tests(posterior: Posterior, causes: Sequence[Cause]) -> list[int]:
    """Return the slow and failed tests of any of the causes, the slowest first."""
    observed = posterior.observed
    bad = set[int]()
    for cause in causes:
        slow = observed.bad_of(posterior.tests_of(cause))
        bad.update(slow.tolist())
    return sorted(bad, key=lambda i: observed.value[i])


def _suspects(
    tests: Sequence[GroupTest], slow: Sequence[int], causes: Sequence[Cause]
) -> list[str]:
    """Return a few nodes of each cause; if the causes have none, the nodes of slow tests."""
    nodes = list[str]()
    for cause in causes:
        nodes += cause.nodes[:_SUSPECTS]
    if not nodes:
        for i in slow:
            nodes += tests[i].nodes
    different = list(dict.fromkeys(nodes))
    return different[:_SUSPECTS]


def _helpers(posterior: Posterior, suspects: set[str]) -> list[str]:
    """Return the nodes, other than suspects, with the fewest slow tests for each fine test."""
    observed = posterior.observed
    fine = Counter[str]()
    slow = Counter[str]()
    for test, is_fine, is_slow in zip(observed.tests, observed.fine, observed.bad, strict=True):
        if is_slow:
            slow.update(test.nodes)
        elif is_fine:
            fine.update(test.nodes)

    def slow_to_fine(node: str) -> tuple[float, str]:
        """Return the ratio of slow to fine tests of a node, and its name."""
        return slow[node] / fine[node], node

    return nsmallest(_HELPERS, fine.keys() - suspects, key=slow_to_fine)


def _settings(
    tests: Sequence[GroupTest], slow: Sequence[int], causes: Sequence[Cause]
) -> list[Addresses]:
    """Return GPU addresses for both nodes of a pair: those of slow tests, equal or crossed, and
    sets that separate causes.
    """
    of_tests = _most_common_gpus(tests)
    if not any(of_tests):
        return [()]
    of_slow_tests = _most_common_gpus([tests[i] for i in slow])
    distinct = dict.fromkeys(of_slow_tests + of_tests)
    return [
        *((gpus, gpus) for gpus in distinct),
        *permutations(distinct, 2),
        *((gpus, gpus) for gpus in _dividing(causes)),
    ]


def _most_common_gpus(tests: Sequence[GroupTest]) -> list[Names]:
    """Return the sets of GPU addresses that nodes used most often."""
    times = Counter[Names]()
    for test in tests:
        times.update(test.gpus)
    return [gpus for gpus, _ in times.most_common(_ADDRESSES)]


def _dividing(causes: Sequence[Cause]) -> list[Names]:
    """Return sets of GPU addresses that separate the causes: the union of half of the blamed sets,
    and each set.
    """
    every = [cause.gpus for cause in causes if cause.gpus]
    blamed = list(dict.fromkeys(every))
    if len(blamed) < 2:
        return blamed
    middle = len(blamed) // 2
    addresses = set[str]().union(*blamed[:middle])
    half = tuple(sorted(addresses))
    return [half, *blamed]
