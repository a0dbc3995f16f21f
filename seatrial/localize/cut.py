"""The two sides of a cut, from pairs alone: few slow pairs inside a side, few fast ones across. Pure."""

from collections.abc import Sequence

import numpy as np

from seatrial.localize.observations import Floats, GroupTest, Ints

_STARTS, _STEPS, _CAP = 4, 80, 6.0  # tries, steps of power iteration, and what one pair counts at most


def best_side(tests: Sequence[GroupTest], weight: Floats) -> frozenset[str]:
    """One side of the partition of nodes with the largest sum of `weight` over the pairs across it; may be empty.

    A maximum cut with weights of both signs: sides by the sign of the leading eigenvector (spectral bisection; Fiedler,
    1973), then single nodes change sides while that helps (Kernighan and Lin, 1970).
    """
    pairs = [i for i, test in enumerate(tests) if len(set(test.nodes)) == 2]
    names = sorted({node for i in pairs for node in tests[i].nodes})
    place = {name: i for i, name in enumerate(names)}
    ends = np.array([[place[node] for node in tests[i].nodes] for i in pairs], dtype=np.int64).reshape(-1, 2)
    graph = _Graph(ends, np.clip(weight[pairs], -_CAP, _CAP), len(names))
    if len(names) < 4:
        return frozenset()
    random = np.random.default_rng(0)
    sides = [graph.improved(graph.spectral(random)) for _ in range(_STARTS)]
    best = max(sides, key=graph.across)
    smaller = best < 0 if (best < 0).sum() <= len(names) / 2 else best > 0
    return frozenset(name for name, inside in zip(names, smaller, strict=True) if inside)


class _Graph:
    """Nodes 0 to n - 1 with a weight for each pair; sides are +1 and -1."""

    def __init__(self, ends: Ints, weight: Floats, n: int) -> None:
        self._a, self._b, self._weight, self._n = ends[:, 0], ends[:, 1], weight, n

    def across(self, side: Floats) -> float:
        """The sum of the weights of pairs across."""
        return float(self._weight[side[self._a] != side[self._b]].sum())

    def pulls(self, side: Floats) -> Floats:
        """For each node, the sum of weight times the other end's side."""
        a = np.bincount(self._a, self._weight * side[self._b], self._n)
        b = np.bincount(self._b, self._weight * side[self._a], self._n)
        return np.asarray(a + b, dtype=np.float64)

    def spectral(self, random: np.random.Generator) -> Floats:
        """Signs of the eigenvector that pushes apart what is slow, by power iteration from a random start."""
        weight = np.abs(self._weight)
        shift = np.bincount(self._a, weight, self._n) + np.bincount(self._b, weight, self._n)
        vector = random.standard_normal(self._n)
        for _ in range(_STEPS):
            vector = shift * vector - self.pulls(vector)
            vector /= max(float(np.linalg.norm(vector)), 1e-300)
        sides: Floats = np.copysign(np.ones(self._n), vector)
        return sides

    def improved(self, side: Floats) -> Floats:
        """The sides after single nodes have changed over, the one that gains most first."""
        side = side.copy()
        for _ in range(2 * self._n):
            gain = side * self.pulls(side)
            best = int(np.argmax(gain))
            if gain[best] <= 1e-9:
                break
            side[best] = -side[best]
        return side
