"""The two sides of a cut, from pairs alone: few slow pairs inside a side, few fast ones across.

Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import sqrt

import numpy as np

from seatrial.localize.group_tests import GroupTest
from seatrial.localize.observations import Floats, Ints

_STARTS = 4  # of the search for a partition
_STEPS = 200  # of power iteration
_CAP = 6.0  # what one pair counts at most
_DENSE = 16  # cells of a matrix for each pair, up to which it is quicker than the list of pairs


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of nodes that were tested: the places of their two `names`, a row for each pair.

    `tests` are the places of the tests that have two nodes, and `pair` that of the pair of each of
    these.
    """

    names: Sequence[str]
    ends: Ints
    tests: Ints
    pair: Ints

    @classmethod
    def of(cls, tests: Sequence[GroupTest]) -> "Pairs":
        """Number the pairs in the order in which their first tests come."""
        number: dict[tuple[str, ...], int] = {}
        places = list[int]()
        numbers = list[int]()
        for i, test in enumerate(tests):
            pair = tuple(sorted(set(test.nodes)))
            if len(pair) == 2:
                places.append(i)
                numbers.append(number.setdefault(pair, len(number)))
        names = sorted(set().union(*number))
        place = {name: i for i, name in enumerate(names)}
        ends = [[place[a], place[b]] for a, b in number]
        return cls(
            names=names,
            ends=np.array(ends, dtype=np.int64).reshape(-1, 2),
            tests=np.array(places, dtype=np.int64),
            pair=np.array(numbers, dtype=np.int64),
        )

    def summed(self, weight: Floats) -> Floats:
        """Return the sum of a weight of each test, by pair."""
        of_tests = weight[self.tests]
        sums = np.bincount(self.pair, of_tests, len(self.ends))
        return sums.astype(np.float64)


def best_side(pairs: Pairs, weight: Floats) -> frozenset[str]:
    """Return one side of the partition of nodes with the largest sum of `weight` over the pairs
    across it.

    May be empty. A maximum cut with weights of both signs: sides by the sign of the leading
    eigenvector of the normalized graph (spectral bisection; Fiedler, 1973), then single nodes
    change sides while that helps (Kernighan and Lin, 1970).
    """
    count = len(pairs.names)
    if count < 4:
        return frozenset()
    of_pairs = pairs.summed(weight).clip(-_CAP, _CAP)
    graph = _Graph(pairs.ends, of_pairs, count)
    random = np.random.default_rng(0)
    found = (graph.improved(graph.spectral(random)) for _ in range(_STARTS))
    best = max(found, key=graph.across)
    smaller = best < 0
    if smaller.sum() > count / 2:
        smaller = best > 0
    return frozenset(name for name, inside in zip(pairs.names, smaller, strict=True) if inside)


def groups_apart(pairs: Pairs, weight: Floats) -> list[frozenset[str]]:
    """Group nodes so that `weight` over pairs within groups is least: correlation clustering,
    greedily.

    Each node begins alone; the two groups between which the sum is lowest become one, as long as it
    is below zero (Bansal, Blum and Chawla, 2004; agglomerative as in Keuper et al., 2015).
    """
    between: list[dict[int, float]] = [{} for _ in pairs.names]
    lowest = []
    sums = pairs.summed(weight.clip(-_CAP, _CAP))
    for (a, b), sum_ in zip(pairs.ends.tolist(), sums.tolist(), strict=True):
        between[a][b] = sum_
        between[b][a] = sum_
        if sum_ < 0:
            lowest.append((sum_, a, b))
    heapify(lowest)
    members = [[name] for name in pairs.names]
    while lowest:
        sum_, a, b = heappop(lowest)
        kept = between[a]
        if kept.get(b) != sum_:
            continue  # one of the two has become another group since
        members[a] += members[b]
        members[b] = []
        gone = between[b]
        between[b] = {}
        del kept[b]
        del gone[a]
        for other, more in gone.items():
            joined = kept.get(other, 0.0) + more
            kept[other] = joined
            of_other = between[other]
            of_other[a] = joined
            del of_other[b]
            if joined < 0:
                heappush(lowest, (joined, min(a, other), max(a, other)))
    return [frozenset(group) for group in members if group]


class _Graph:
    """Nodes 0 to n - 1 with a weight for each pair; sides are +1 and -1.

    Each pair is there from both of its ends, in the order of the nodes: `_node`, the `_other` end,
    and their `_weight`. Those of a node begin at its `_first`.
    """

    def __init__(self, ends: Ints, weight: Floats, n: int) -> None:
        self._n = n
        both_ways = ends.T.ravel()
        order = np.argsort(both_ways, kind="stable")
        self._node = both_ways[order]
        self._other = ends[:, ::-1].T.ravel()[order]
        self._weight = np.tile(weight, 2)[order]
        self._first = np.searchsorted(self._node, np.arange(n + 1))
        self._matrix = None
        if n * n <= _DENSE * len(weight):
            self._matrix = np.zeros((n, n))
            self._matrix[self._node, self._other] = self._weight

    def across(self, side: Floats) -> float:
        """Return the sum of the weights of pairs across."""
        is_across = side[self._node] != side[self._other]
        twice = self._weight[is_across].sum()
        return float(twice) / 2

    def pulls(self, side: Floats) -> Floats:
        """Return for each node the sum of weight times the other end's side."""
        if self._matrix is not None:
            return self._matrix @ side
        pull = self._weight * side[self._other]
        return np.bincount(self._node, pull, self._n).astype(np.float64)

    def spectral(self, random: np.random.Generator) -> Floats:
        """Return signs of the eigenvector that pushes apart what is slow, by power iteration from a
        random start.
        """
        degree = np.bincount(self._node, np.abs(self._weight), self._n)
        scale = degree.clip(min=1e-9) ** -0.5
        vector = random.standard_normal(self._n)
        # By the normalized Laplacian, whose leading eigenvector it is
        for _ in range(_STEPS):
            vector = vector - scale * self.pulls(scale * vector)
            norm = sqrt(vector @ vector)
            vector /= max(norm, 1e-300)
        sides: Floats = np.copysign(np.ones(self._n), vector)
        return sides

    def improved(self, side: Floats) -> Floats:
        """Return the sides after single nodes have changed over, the one that gains most first."""
        side = side.copy()
        gain = side * self.pulls(side)
        for _ in range(2 * self._n):
            best = int(np.argmax(gain))
            if gain[best] <= 1e-9:
                break
            side[best] = -side[best]
            gain[best] = -gain[best]
            # What the nodes that it has pairs with would gain now
            pairs = slice(self._first[best], self._first[best + 1])
            others = self._other[pairs]
            same_side = side[best] * side[others]
            gain[others] += 2 * same_side * self._weight[pairs]
        return side
