"""The maximum cut of a graph with weights of both signs. Pure.

Sides by the sign of the leading eigenvector of the normalized graph (spectral bisection; Fiedler,
1973), then single nodes change sides while that helps (Kernighan and Lin, 1970).
"""

import numpy as np

from seatrial.localize.observations import Floats, Ints

_STARTS = 4  # random starts of the search
_STEPS = 200  # steps of power iteration
_DENSE = 16  # most matrix cells per pair at which a dense matrix is faster than a list of pairs


def max_cut(ends: Ints, weight: Floats, n: int) -> Floats:
    """Return the side of each node, +1 or -1, that maximizes the sum of weights across.

    `ends` are the two node numbers of each pair, a row for each; no pair is there twice.
    """
    graph = _Graph(ends, weight, n)
    random = np.random.default_rng(0)
    starts = graph.spectral(random)
    found = [graph.improved(start) for start in starts]  # one may end in a local maximum
    return max(found, key=graph.across)


class _Graph:
    """Nodes 0 to n - 1 with a weight for each pair; sides are +1 and -1.

    Each pair is stored twice, once for each of its nodes, ordered by node.

    _node: a node of each pair.
    _other: the other node.
    _weight: the weight of the pair.
    _first: the index of the first pair of each node.
    _matrix: the weights as a dense matrix; None for a sparse graph.
    """

    def __init__(self, ends: Ints, weight: Floats, n: int) -> None:
        self._n = n
        node = ends.T.ravel()
        other = ends[:, ::-1].T.ravel()
        order = np.argsort(node, kind="stable")
        self._node = node[order]
        self._other = other[order]
        self._weight = np.tile(weight, 2)[order]
        nodes = np.arange(n + 1)
        self._first = np.searchsorted(self._node, nodes)
        self._matrix = None
        if n * n <= _DENSE * len(weight):
            self._matrix = np.zeros((n, n))
            self._matrix[self._node, self._other] = self._weight

    def across(self, side: Floats) -> float:
        """Return the sum of the weights of pairs with nodes on different sides."""
        is_across = side[self._node] != side[self._other]
        # Each pair is stored twice
        twice = self._weight[is_across].sum()
        return float(twice) / 2

    def pulls(self, sides: Floats) -> Floats:
        """Return, for each node, the sum of weight times the other end's side, for each row of
        `sides`.
        """
        if self._matrix is not None:
            return sides @ self._matrix  # which is symmetric
        pulls = np.empty_like(sides)
        for row, side in enumerate(sides):
            pull = self._weight * side[self._other]
            pulls[row] = np.bincount(self._node, pull, self._n)
        return pulls

    def spectral(self, random: np.random.Generator) -> Floats:
        """Return the signs of the leading eigenvector of the normalized Laplacian, by power
        iteration: a row for each random start.
        """
        strength = np.abs(self._weight)
        degree = np.bincount(self._node, strength, self._n)
        scale = degree.clip(min=1e-9) ** -0.5
        vectors = random.standard_normal((_STARTS, self._n))
        # Multiply by the normalized Laplacian; a step at most doubles the vector
        for _ in range(_STEPS):
            scaled = scale * vectors
            vectors -= scale * self.pulls(scaled)
        ones = np.ones(self._n)
        sides: Floats = np.copysign(ones, vectors)
        return sides

    def improved(self, side: Floats) -> Floats:
        """Return the sides after moving single nodes, the one with the largest gain first, until
        none gains.
        """
        side = side.copy()
        (pulls,) = self.pulls(side[None])
        gain = side * pulls
        for _ in range(2 * self._n):
            best = int(np.argmax(gain))
            if gain[best] <= 1e-9:
                break
            side[best] = -side[best]
            gain[best] = -gain[best]
            # Update the gains of its neighbours
            first = self._first[best]
            end = self._first[best + 1]
            others = self._other[first:end]
            same_side = side[best] * side[others]
            weight = self._weight[first:end]
            gain[others] += 2 * same_side * weight
        return side
