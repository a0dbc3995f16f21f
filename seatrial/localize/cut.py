"""The two sides of a cut, from pairs alone: few slow pairs inside a side, few fast ones across.

Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import sqrt

import numpy as np

from seatrial.localize.observations import Floats, GroupTest, Ints

# Tries, steps of power iteration, and what one pair counts at most
_STARTS, _STEPS, _CAP = 4, 200, 6.0
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
        number: dict[tuple[str, ...], int] = {}
        places, numbers = [], []
        for i, test in enumerate(tests):
            pair = tuple(sorted(set(test.nodes)))
            if len(pair) == 2:
                places.append(i)
                numbers.append(number.setdefault(pair, len(number)))
        names = sorted({node for pair in number for node in pair})
        place = {name: i for i, name in enumerate(names)}
        ends = np.array([[place[a], place[b]] for a, b in number], dtype=np.int64).reshape(-1, 2)
        return cls(names, ends, np.array(places, dtype=np.int64), np.array(numbers, dtype=np.int64))

    def summed(self, weight: Floats) -> Floats:
        """Return the sum of a weight of each test, by pair."""
        return np.bincount(self.pair, weight[self.tests], len(self.ends)).astype(np.float64)


def best_side(pairs: Pairs, weight: Floats) -> frozenset[str]:
    """Return one side of the partition of nodes with the largest sum of `weight` over the pairs
    across it.

    May be empty. A maximum cut with weights of both signs: sides by the sign of the leading
    eigenvector of the normalized graph (spectral bisection; Fiedler, 1973), then single nodes
    change sides while that helps (Kernighan and Lin, 1970).
    """
    names = pairs.names
    if len(names) < 4:
        return frozenset()
    graph = _Graph(pairs.ends, pairs.summed(weight).clip(-_CAP, _CAP), len(names))
    random = np.random.default_rng(0)
    best = max((graph.improved(graph.spectral(random)) for _ in range(_STARTS)), key=graph.across)
    smaller = best < 0 if (best < 0).sum() <= len(names) / 2 else best > 0
    return frozenset(name for name, inside in zip(names, smaller, strict=True) if inside)


def groups_apart(pairs: Pairs, weight: Floats) -> list[frozenset[str]]:
    """Group nodes so that `weight` over pairs within groups is least: correlation clustering,
    greedily.

    Each node begins alone; the two groups between which the sum is lowest become one, as long as it
    is below zero (Bansal, Blum and Chawla, 2004; agglomerative as in Keuper et al., 2015).
    """
    between: list[dict[int, float]] = [{} for _ in pairs.names]
    lowest = []
    for (a, b), sum_ in zip(
        pairs.ends.tolist(), pairs.summed(weight.clip(-_CAP, _CAP)).tolist(), strict=True
    ):
        between[a][b] = between[b][a] = sum_
        if sum_ < 0:
            lowest.append((sum_, a, b))
    members = [[node] for node in range(len(between))]
    heapify(lowest)
    while lowest:
        sum_, a, b = heappop(lowest)
        kept, gone = between[a], between[b]
        if kept.get(b) != sum_:
            continue
        members[a] += members[b]
        members[b], between[b] = [], {}
        del kept[b], gone[a]
        for other, more in gone.items():
            joined = kept.get(other, 0.0) + more
            del between[other][b]
            kept[other] = between[other][a] = joined
            if joined < 0:
                heappush(lowest, (joined, min(a, other), max(a, other)))
    return [frozenset(pairs.names[node] for node in group) for group in members if group]


class _Graph:
    """Nodes 0 to n - 1 with a weight for each pair; sides are +1 and -1."""

    def __init__(self, ends: Ints, weight: Floats, n: int) -> None:
        order = np.argsort(ends.T.ravel(), kind="stable")
        self._node, self._other = ends.T.ravel()[order], ends[:, ::-1].T.ravel()[order]
        self._weight, self._n = np.tile(weight, 2)[order], n
        self._first = np.searchsorted(self._node, np.arange(n + 1))
        self._matrix = np.zeros((n, n)) if n * n <= _DENSE * len(weight) else None
        if self._matrix is not None:
            self._matrix[self._node, self._other] = self._weight

    def across(self, side: Floats) -> float:
        """Return the sum of the weights of pairs across."""
        return float(self._weight[side[self._node] != side[self._other]].sum()) / 2

    def pulls(self, side: Floats) -> Floats:
        """Return for each node the sum of weight times the other end's side."""
        if self._matrix is not None:
            return self._matrix @ side
        return np.bincount(self._node, self._weight * side[self._other], self._n).astype(np.float64)

    def spectral(self, random: np.random.Generator) -> Floats:
        """Return signs of the eigenvector that pushes apart what is slow, by power iteration from a
        random start.
        """
        scale = np.bincount(self._node, np.abs(self._weight), self._n).clip(min=1e-9) ** -0.5
        vector = random.standard_normal(self._n)
        for _ in range(_STEPS):
            vector = vector - scale * self.pulls(scale * vector)
            vector /= max(sqrt(vector @ vector), 1e-300)
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
            near = slice(self._first[best], self._first[best + 1])
            gain[self._other[near]] += 2 * side[best] * side[self._other[near]] * self._weight[near]
        return side
