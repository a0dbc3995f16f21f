"""The one test that would tell most about causes that the tests so far do not separate. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Any

import numpy as np

from seatrial.localize.causes import PLACEMENTS, Cause, across_sockets
from seatrial.localize.observations import Addresses, GroupTest
from seatrial.localize.posterior import Effect, Posterior
from seatrial.text.printable import printable

# Nodes, addresses and suspected nodes that a test is sought among
_HELPERS, _ADDRESSES, _SUSPECTS = 4, 3, 6


@dataclass(frozen=True, slots=True)
class NextTest:
    """A test to run: nodes, and the addresses of the GPUs of each where they matter."""

    nodes: tuple[str, ...]
    gpus: Addresses = ()

    def __str__(self) -> str:
        each = [
            f"{printable(node)} with {' '.join(map(printable, gpus))}" if gpus else printable(node)
            for node, gpus in zip(self.nodes, self.gpus or [()] * len(self.nodes), strict=True)
        ]
        return " and ".join(each)

    def to_dict(self) -> dict[str, Any]:
        return {"nodes": list(self.nodes), "gpus": [list(gpus) for gpus in self.gpus]}


def affects(cause: Cause, test: GroupTest | NextTest) -> bool:
    """Return whether the cause would slow the test."""
    trial = GroupTest("", "", test.nodes, gpus=test.gpus)
    match cause.kind:
        case "cut":
            return sum(not set(side).isdisjoint(trial.nodes) for side in cause.sides) > 1
        case "switch":
            return 0 < len(set(cause.nodes).intersection(trial.nodes)) < len(trial.nodes)
        case "node":
            return not set(cause.nodes).isdisjoint(trial.nodes)
        case "gpu" | "socket" | "leaf" | "rail":
            nodes = cause.nodes or trial.nodes
            used = zip(trial.nodes, trial.gpus, strict=False)
            touched = any(
                node in nodes and not set(cause.gpus).isdisjoint(gpus) for node, gpus in used
            )
            within = set(nodes).issuperset(trial.nodes) and not trial.crossed
            return touched and not (cause.at_one_end and within)
        case "link":
            return (cause.nodes[0], cause.nodes[-1]) in trial.neighbours
        case "placement":
            return trial.crossed if cause.name == PLACEMENTS["rails"] else across_sockets(trial)


def most_telling(posterior: Posterior, effect: Effect) -> NextTest:
    """Return the pair whose result is least certain before it is run: about half of the shares
    expect it to be slow.
    """
    tests = list(_candidates(posterior, effect))
    slow = [
        sum(s for c, s in zip(effect.causes, effect.shares, strict=True) if affects(c, test))
        for test in tests
    ]
    return tests[int(np.argmin(np.abs(np.array(slow) - 0.5)))]


def of_member(posterior: Posterior, cause: Cause, unsure: Sequence[str]) -> NextTest:
    """Return a pair that shows whether the first `unsure` node belongs to a cause; without any, its
    slowest test.
    """
    observed, tests = posterior.observed, posterior.tests_of(cause)
    slow = observed.tests[tests[np.argmin(observed.value[tests])]]
    met = {frozenset(test.nodes) for test in observed.tests}
    others = sorted(observed.nodes.difference(unsure, () if cause.sides else cause.nodes))
    pair = min(product(unsure[:1], others), key=lambda pair: frozenset(pair) in met, default=None)
    return NextTest(pair, slow.gpus[:2]) if pair else repeated(slow)


def dividing(posterior: Posterior, cause: Cause) -> NextTest | None:
    """Return a pair with half of a cause's GPUs, which always took part together; None if a test
    separates them.
    """
    node, where = cause.nodes[0], []
    for address in cause.gpus:
        with_it = (
            dict(zip(test.nodes, test.gpus, strict=False)) for test in posterior.observed.tests
        )
        where.append([address in gpus.get(node, ()) for gpus in with_it])
    if len(where) < 2 or any(places != where[0] for places in where):
        return None
    half = cause.gpus[: len(cause.gpus) // 2]
    helper = next(iter(_helpers(posterior, {*cause.nodes})), None)
    return NextTest((node, helper), (half, half)) if helper else None


def repeated(test: GroupTest) -> NextTest:
    return NextTest(test.nodes, test.gpus)


def _candidates(posterior: Posterior, effect: Effect) -> Iterator[NextTest]:
    """Yield pairs of suspected nodes with each other and with nodes that are fine, and the slowest
    test once more.
    """
    observed = posterior.observed
    where = np.concatenate([posterior.tests_of(cause) for cause in effect.causes])
    slow = sorted(
        {i for i in where.tolist() if observed.slow[i] or observed.failed[i]},
        key=lambda i: observed.value[i],
    )
    suspects = list(
        dict.fromkeys(node for cause in effect.causes for node in cause.nodes[:_SUSPECTS])
    )[:_SUSPECTS]
    if not suspects:
        suspects = list(dict.fromkeys(node for i in slow for node in observed.tests[i].nodes))[
            :_SUSPECTS
        ]
    helpers = _helpers(posterior, set(suspects))
    pairs = [*product(suspects, helpers), *combinations(suspects, 2), *combinations(helpers, 2)]
    settings = _settings(observed.tests, slow, effect.causes)
    for pair in pairs:
        yield from (NextTest(pair, gpus) for gpus in settings)
    yield from (repeated(observed.tests[i]) for i in slow[:1])


def _helpers(posterior: Posterior, suspects: set[str]) -> list[str]:
    """Return nodes with the most tests that were fine, and none in a slow one if there are such."""
    observed = posterior.observed
    fine, slow = Counter[str](), Counter[str]()
    for test, is_fine, is_slow in zip(observed.tests, observed.fine, observed.bad, strict=True):
        if is_fine or is_slow:
            (slow if is_slow else fine).update(test.nodes)
    nodes = (node for node in fine if node not in suspects)
    return list(islice(sorted(nodes, key=lambda node: (slow[node] / fine[node], node)), _HELPERS))


def _settings(
    tests: Sequence[GroupTest], slow: Sequence[int], causes: Sequence[Cause]
) -> list[Addresses]:
    """Return the GPUs of both ends of a pair: those of slow tests, alike and crossed, and sets that
    separate causes.
    """
    if not any(len(gpus) for test in tests for gpus in test.gpus):
        return [()]
    seen = Counter(gpus for i in slow for gpus in tests[i].gpus)
    others = Counter(gpus for test in tests for gpus in test.gpus)
    several = [gpus for gpus, _ in (*seen.most_common(_ADDRESSES), *others.most_common(_ADDRESSES))]
    distinct = list(dict.fromkeys(several))
    crossed = ((a, b) for a, b in product(distinct, repeat=2) if a != b)
    return [
        *((gpus, gpus) for gpus in distinct),
        *crossed,
        *((gpus, gpus) for gpus in _dividing(causes)),
    ]


def _dividing(causes: Sequence[Cause]) -> list[tuple[str, ...]]:
    """Return sets of GPUs that some of the causes have and others lack: half of the blamed sets,
    and each of them.
    """
    blamed = list(dict.fromkeys(cause.gpus for cause in causes if cause.gpus))
    half = sorted({address for gpus in blamed[: len(blamed) // 2] for address in gpus})
    return [tuple(half), *blamed] if half else blamed
