"""The maximum cut of a graph with weights of both signs. Pure.

Sides by the sign of the leading eigenvector of the normalized graph (spectral bisection; Fiedler,
1973), then single nodes change sides while that helps (Kernighan and Lin, 1970).
"""

import numpy as np

from seatrial.localize.observations import Floats, Ints

_STARTS = 4  # of the search for a partition
_STEPS = 200  # of power iteration
_DENSE = 16  # cells of a matrix for each pair, up to which it is quicker than the list of pairs


def max_cut(ends: Ints, weight: Floats, n: int) -> Floats:
    """Return the side of each node, +1 or -1, with the largest sum of weights of pairs across.

    `ends` are the two nodes of each pair, a row for each.
    """
    graph = _Graph(ends, weight, n)
    random = np.random.default_rng(0)
    starts = graph.spectral(random)
    found = [graph.improved(start) for start in starts]  # one may end in a local maximum
    return max(found, key=graph.across)


class _Graph:
    """Nodes 0 to n - 1 with a weight for each pair; sides are +1 and -1.

    Each pair is there from both of its ends, in the order of the nodes.

    _node: the end of each pair.
    _other: its other end.
    _weight: its weight.
    _first: of each node, the place of its first pair.
    _matrix: the weights by both ends, of a graph that has most pairs.
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
        """Return the sum of the weights of pairs across."""
        is_across = side[self._node] != side[self._other]
        # Each pair is there from both of its ends
        twice = self._weight[is_across].sum()
        return float(twice) / 2

    def pulls(self, sides: Floats) -> Floats:
        """Return for each node the sum of weight times the other end's side, for each row of
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
        """Return signs of the eigenvector that pushes apart what is slow, by power iteration from
        random starts, a row for each.
        """
        strength = np.abs(self._weight)
        degree = np.bincount(self._node, strength, self._n)
        scale = degree.clip(min=1e-9) ** -0.5
        vectors = random.standard_normal((_STARTS, self._n))
        # By the normalized Laplacian, whose leading eigenvector it is; a step at most doubles it
        for _ in range(_STEPS):
            scaled = scale * vectors
            vectors -= scale * self.pulls(scaled)
        ones = np.ones(self._n)
        sides: Floats = np.copysign(ones, vectors)
        return sides

    def improved(self, side: Floats) -> Floats:
        """Return the sides after single nodes have changed over, the one that gains most first."""
        side = side.copy()
        (pulls,) = self.pulls(side[None])
        gain = side * pulls
        for _ in range(2 * self._n):
            best = int(np.argmax(gain))
            if gain[best] <= 1e-9:
                break
            side[best] = -side[best]
            gain[best] = -gain[best]
            # What the nodes that it has pairs with would gain now
            first = self._first[best]
            end = self._first[best + 1]
            others = self._other[first:end]
            same_side = side[best] * side[others]
            weight = self._weight[first:end]
            gain[others] += 2 * same_side * weight
        return side
