"""Find the sides of a cut from tests of pairs: few slow pairs within a side, few fast ones across.

Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from seatrial.localize.group_tests import GroupTest, Names
from seatrial.localize.max_cut import max_cut
from seatrial.localize.observations import Floats, Ints, ints

_CAP = 6.0  # largest weight of one pair
_Sums = dict[int, float]  # sum of the weights between a group and each other group


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of nodes that were tested.

    names: the node names.
    ends: the indices in `names` of the two nodes, a row for each pair.
    tests: the indices of the tests with two nodes.
    pair: the index of the pair of each of these tests.
    """

    names: Sequence[str]
    ends: Ints
    tests: Ints
    pair: Ints

    @classmethod
    def of(cls, tests: Sequence[GroupTest]) -> "Pairs":
        """Number the pairs in the order of their first tests."""
        number: dict[Names, int] = {}
        places = list[int]()
        numbers = list[int]()
        for i, test in enumerate(tests):
            pair = tuple(sorted(set(test.nodes)))
            if len(pair) == 2:
                places.append(i)
                numbers.append(number.setdefault(pair, len(number)))
        names = sorted(set().union(*number))
        place = {name: i for i, name in enumerate(names)}
        ends = list[int]()
        for one, other in number:
            ends += (place[one], place[other])
        return cls(
            names=names,
            ends=ints(ends).reshape(-1, 2),
            tests=ints(places),
            pair=ints(numbers),
        )

    def summed(self, weight: Floats) -> Floats:
        """Return the sum, for each pair, of the weights of its tests."""
        of_tests = weight[self.tests]
        sums = np.bincount(self.pair, of_tests, len(self.ends))
        return sums.astype(np.float64)


def best_side(pairs: Pairs, weight: Floats) -> frozenset[str]:
    """Return the smaller side of the bisection with the largest sum of `weight` over the pairs
    across it.

    Empty if no bisection gains, or there are fewer than four nodes.
    """
    count = len(pairs.names)
    # Each side has at least two nodes
    if count < 4:
        return frozenset()
    of_pairs = pairs.summed(weight).clip(-_CAP, _CAP)
    best = max_cut(pairs.ends, of_pairs, count)
    smaller = best < 0
    if smaller.sum() > count / 2:
        smaller = best > 0
    places = np.flatnonzero(smaller).tolist()
    return frozenset(pairs.names[i] for i in places)


def groups_apart(pairs: Pairs, weight: Floats) -> list[frozenset[str]]:
    """Group nodes so that `weight` over pairs within groups is least: correlation clustering,
    greedily.

    Each node begins alone; the two groups between which the sum is lowest become one, as long as it
    is below zero (Bansal, Blum and Chawla, 2004; agglomerative as in Keuper et al., 2015).
    """
    between = [_Sums() for _ in pairs.names]
    # A heap of the sums below zero; those of groups that are gone stay in it
    lowest = []
    sums = pairs.summed(weight.clip(-_CAP, _CAP))
    for ends, sum_ in zip(pairs.ends.tolist(), sums.tolist(), strict=True):
        a, b = ends
        between[a][b] = sum_
        between[b][a] = sum_
        if sum_ < 0:
            lowest.append((sum_, a, b))
    heapify(lowest)
    members = [[name] for name in pairs.names]
    while lowest:
        sum_, a, b = heappop(lowest)
        # Else one of the two has become another group since
        if between[a].get(b) != sum_:
            continue
        members[a] += members[b]
        members[b] = []
        for other, joined in _join(between, a, b):
            if joined < 0:
                first, second = sorted((a, other))
                heappush(lowest, (joined, first, second))
    return [frozenset(group) for group in members if group]


def _join(between: list[_Sums], a: int, b: int) -> Iterator[tuple[int, float]]:
    """Join the second of two groups to the first; yield each of its neighbours with the new sum."""
    kept = between[a]
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
        yield other, joined
