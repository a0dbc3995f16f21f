"""The two sides of a cut, from pairs alone: few slow pairs inside a side, few fast ones across. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations

import numpy as np

from seatrial.localize.observations import Bools, Floats, GroupTest, Ints

_STARTS, _STEPS, _CAP = 4, 200, 6.0  # tries, steps of power iteration, and what one pair counts at most
_MOST_TOGETHER = 8  # nodes in a group whose pairs are counted

PairWeights = dict[tuple[str, str], float]


def pair_weights(tests: Sequence[GroupTest], weight: Floats) -> PairWeights:
    """The sums of `weight` by pair of nodes. A group of more that is not slow tells that of all of its pairs."""
    by_pair: dict[tuple[str, str], float] = defaultdict(float)
    for test, each in zip(tests, weight.tolist(), strict=True):
        nodes = sorted(set(test.nodes))
        if len(nodes) == 2 or (each < 0 and len(nodes) <= _MOST_TOGETHER):
            for pair in combinations(nodes, 2):
                by_pair[pair] += each
    return {pair: min(max(each, -_CAP), _CAP) for pair, each in by_pair.items()}


def best_sides(weights: PairWeights) -> set[frozenset[str]]:
    """One side of each partition of nodes that is found with a large sum of weights over the pairs across it.

    A maximum cut with weights of both signs: sides by the sign of the leading eigenvector of the normalized graph
    (spectral bisection; Fiedler, 1973), then single nodes change sides while that helps (Kernighan and Lin, 1970).
    """
    names = sorted({node for pair in weights for node in pair})
    if len(names) < 4:
        return set()
    place = {name: i for i, name in enumerate(names)}
    ends = np.array([[place[a], place[b]] for a, b in weights], dtype=np.int64)
    graph = _Graph(ends, np.array(list(weights.values())), len(names))
    random = np.random.default_rng(0)
    sides = (graph.improved(graph.spectral(random)) for _ in range(_STARTS))
    return {frozenset(name for name, side in zip(names, each, strict=True) if side > 0) for each in sides}


def groups_apart(weights: PairWeights) -> list[frozenset[str]]:
    """Groups of nodes with the least weights over pairs within, of any number: correlation clustering, greedily.

    Each node begins alone; the two groups between which the sum is lowest become one, as long as it is below zero
    (Bansal, Blum and Chawla, 2004; agglomerative as in Keuper et al., 2015).
    """
    between: dict[str, dict[str, float]] = defaultdict(dict)
    for (a, b), each in weights.items():
        between[a][b] = between[b][a] = each
    members = {node: {node} for node in between}
    lowest = [(sum_, a, b) for a, others in between.items() for b, sum_ in others.items() if a < b and sum_ < 0]
    heapify(lowest)
    while lowest:
        sum_, a, b = heappop(lowest)
        if a not in members or b not in members or between[a].get(b) != sum_:
            continue
        members[a] |= members.pop(b)
        for other, more in between.pop(b).items():
            del between[other][b]
            if other == a:
                continue
            between[a][other] = between[other][a] = between[a].get(other, 0.0) + more
            if between[a][other] < 0:
                heappush(lowest, (between[a][other], min(a, other), max(a, other)))
    return [frozenset(group) for group in members.values()]


def joined_by(tests: Sequence[GroupTest], fine: Bools) -> dict[str, str]:
    """Of each node, the first of those that chains of fine tests join it with."""
    above = {node: node for test in tests for node in test.nodes}

    def first(node: str) -> str:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for test, is_fine in zip(tests, fine, strict=True):
        for node in test.nodes[1:] if is_fine else ():
            above[first(node)] = first(test.nodes[0])
    return {node: first(node) for node in above}


class _Graph:
    """Nodes 0 to n - 1 with a weight for each pair; sides are +1 and -1."""

    def __init__(self, ends: Ints, weight: Floats, n: int) -> None:
        order = np.argsort(ends.T.ravel(), kind="stable")
        self._node, self._other = ends.T.ravel()[order], ends[:, ::-1].T.ravel()[order]
        self._weight, self._n = np.tile(weight, 2)[order], n
        self._first = np.searchsorted(self._node, np.arange(n + 1))

    def across(self, side: Floats) -> float:
        """The sum of the weights of pairs across."""
        return float(self._weight[side[self._node] != side[self._other]].sum()) / 2

    def pulls(self, side: Floats) -> Floats:
        """For each node, the sum of weight times the other end's side."""
        return np.bincount(self._node, self._weight * side[self._other], self._n).astype(np.float64)

    def spectral(self, random: np.random.Generator) -> Floats:
        """Signs of the eigenvector that pushes apart what is slow, by power iteration from a random start."""
        scale = np.bincount(self._node, np.abs(self._weight), self._n).clip(min=1e-9) ** -0.5
        vector = random.standard_normal(self._n)
        for _ in range(_STEPS):
            vector = vector - scale * self.pulls(scale * vector)
            vector /= max(float(np.linalg.norm(vector)), 1e-300)
        sides: Floats = np.copysign(np.ones(self._n), vector)
        return sides

    def improved(self, side: Floats) -> Floats:
        """The sides after single nodes have changed over, the one that gains most first."""
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
