"""Tests of groups of nodes as numbers: the log ratio to the level of like tests, and its noise.

Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seatrial.localize.group_tests import GroupTest, Tests, faster_part
from seatrial.localize.level import SIGMA, fast_level, scale_of, shortest_half

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_SIZES = 3  # the plateau is the median of the largest sizes, as in a run
_LEAST_SCATTER = 4  # least number of tests to estimate scatter from
_LOWEST = -3.0  # the largest slowdown that a cause may have, about
_HIGHEST = 0.5
_FAST = 0.15
# Prior probabilities of one, two and three further faults, which may slow all tests of a kind
_MORE_FAULTS = (0.3, 0.15, 0.05)

# Bands of message sizes; `large` is the plateau
Band = Literal["large", "largest", "middle", "small"]
BANDS: tuple[Band, ...] = ("large", "largest", "middle", "small")


@dataclass(frozen=True)
class Levels:
    """Sets of like tests without a slow one: either all tests are fine, or faults slow all of them.

    Such tests are weak evidence about a part, and none if all of them touch the part or known
    faults. They are strong evidence next to a test of `clear` nodes, which were fine while like
    tests were slow.

    flat: for each set of like tests, whether none is slow.
    """

    flat: Bools
    clear: Bools  # whether each test has clear nodes only
    sets: Floats  # number of different groups of nodes in each set
    reach: Floats  # share of all nodes in one test of each set

    @classmethod
    def of(cls, observed: "Observed") -> "Levels":
        """Find the sets of like tests without a slow one, and the tests of clear nodes."""
        kinds = len(observed.like_sizes)
        bad = np.bincount(observed.like[observed.bad], minlength=kinds)
        flat: Bools = bad == 0
        groups = [set[frozenset[str]]() for _ in range(kinds)]
        for test, like in zip(observed.tests, observed.like.tolist(), strict=True):
            groups[like].add(frozenset(test.nodes))
        sets = list(map(len, groups))
        largest = [max(map(len, some)) for some in groups]
        return cls(
            flat=flat,
            clear=_clear(observed, flat),
            sets=np.array(sets, dtype=float),
            reach=np.array(largest) / len(observed.nodes),
        )

    def doubt(self, like: Ints, without: Floats) -> Floats:
        """Return the probability that other faults slow all like tests that do not touch a part.

        `like` are numbers of sets of like tests, and `without` is the share of each set that does
        not touch the part.
        """
        others = self.sets[like] * without
        missed = 1 - self.reach[like]
        chance = np.zeros(len(like))
        for faults, probability in enumerate(_MORE_FAULTS, start=1):
            touched = 1 - missed**faults
            chance += probability * touched**others
        return np.where(self.flat[like], chance, 0.0)


def _clear(observed: "Observed", flat: Bools) -> Bools:
    """Return the mask of fine tests whose nodes were all fine in tests while like tests
    were slow.
    """
    telling = observed.fine & ~observed.fast
    telling &= ~flat[observed.like]
    nodes = observed.nodes_of(np.flatnonzero(telling))
    fine = np.flatnonzero(observed.fine)
    clear = np.zeros(len(observed.tests), dtype=bool)
    clear[observed.within(nodes, fine)] = True
    return clear


@dataclass(frozen=True)
class Observed:
    """What each test shows, as arrays with an entry for each test.

    ratio: the speed as a share of the level of like tests; 1 if it has none.
    lead: the log ratio of fine tests with a part that is faster than all others, else 0.
    faster: that part: a node, or NODE/GPU; else empty.
    value: the log of the ratio less the lead, within what causes and noise explain.
    scale: the noise of the value.
    failed: whether it has no value.
    alone: whether it has no like test; then it shows nothing.
    weight: its weight as evidence. Tests of the same nodes on other GPUs are not independent: each
        of m slow ones has weight 1 / sqrt(m).
    share: its share among all tests of the same nodes.
    collective: the number of its collective, from 0.
    like: the number of its set of like tests, from 0.
    """

    tests: Tests
    ratio: Floats
    lead: Floats
    faster: str
    value: Floats
    scale: Floats
    failed: Bools
    alone: Bools
    weight: Floats
    share: Floats
    collective: Ints
    like: Ints

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that took part in a test."""
        return self.tests.nodes

    def nodes_of(self, places: Iterable[int]) -> set[str]:
        """Return the nodes of the tests at these places."""
        return {node for i in places for node in self.tests[i].nodes}

    def within(self, nodes: set[str], places: Iterable[int]) -> list[int]:
        """Return the indices in `places` of the tests that have no other nodes than `nodes`."""
        return [i for i in places if nodes.issuperset(self.tests[i].nodes)]

    def bad_of(self, tests: Ints) -> Ints:
        """Return the indices in `tests` of slow or failed tests."""
        return tests[self.bad[tests]]

    @cached_property
    def compared(self) -> Bools:
        """Tests that have both a value and a like test to compare it with."""
        return ~self.failed & ~self.alone

    @cached_property
    def like_sizes(self) -> Ints:
        """The number of compared tests in each set of like tests."""
        kinds = int(self.like.max(initial=-1)) + 1
        return np.bincount(self.like[self.compared], minlength=kinds)

    @cached_property
    def levels(self) -> Levels:
        """What is known of the level of each set of like tests."""
        return Levels.of(self)

    @cached_property
    def slow(self) -> Bools:
        """Whether each test is below the level by more than three times its noise."""
        least = -3 * self.scale
        return self.compared & (self.value < least)

    @cached_property
    def fine(self) -> Bools:
        """Whether each test is at the level of like tests, or faster."""
        return self.compared & ~self.slow

    @cached_property
    def bad(self) -> Bools:
        """Whether each test is slow or failed."""
        return self.slow | self.failed

    @cached_property
    def fast(self) -> Bools:
        """Whether each test is faster than the level by more than noise."""
        least = np.maximum(5 * self.scale, _FAST)
        return self.compared & (self.value > least)


class Comparison:
    """Tests with their like tests, from which each band of message sizes is observed.

    _group: for each test, the number of its nodes with their GPU counts.
    _setting: for each test, the number of its nodes with their GPU addresses.
    _kind: for each test, the number of its setting with its operation.
    _logs: for each set of like tests, their indices, and the log ratios to the level, a row for
        each test and a column for each message size.
    """

    def __init__(self, tests: Sequence[GroupTest]) -> None:
        """Number the groups, settings, kinds and sets of like tests."""
        self._tests = Tests(tests)
        self._failed = np.array([test.failed for test in tests], dtype=bool)
        self._collective = numbered(test.collective for test in tests)
        self._like = numbered(test.like for test in tests)
        nodes = numbered(frozenset(test.nodes) for test in tests)
        times = np.bincount(nodes)
        self._share = 1 / times[nodes]
        gpus = [test.gpus for test in tests]
        gpus_each = [len(each[0]) if each else 0 for each in gpus]
        self._group = _numbered_together(nodes, gpus_each)
        self._setting = _numbered_together(self._group, gpus)
        operations = [(test.collective, test.conditions) for test in tests]
        self._kind = _numbered_together(self._setting, operations)
        by_like: dict[int, list[int]] = defaultdict(list)
        for i, like in enumerate(self._like.tolist()):
            if not self._failed[i]:
                by_like[like].append(i)
        self._logs = []
        for members in by_like.values():
            sweeps = [tests[i].busbw_gb_s for i in members]
            self._logs.append((ints(members), _logs(sweeps)))

    def observed(self, band: Band = "large") -> Observed:
        """Return what the tests show at the sizes of a band."""
        value = np.zeros(len(self._tests))
        lead = np.zeros(len(self._tests))
        faster = ""
        scale = np.full(len(self._tests), SIGMA)
        alone = ~self._failed
        for members, logs in self._logs:
            ratio, noise = _ratios(logs, band)
            known = ~np.isnan(ratio)
            ratio = ratio[known]
            where = members[known]
            spread = scale_of(ratio, noise)
            like = [self._tests[i] for i in where]
            # The level is that of the faster tests, or else of the others
            part = faster_part(like, (ratio < -3 * spread).tolist())
            part = part or faster_part(like, (ratio < max(5 * spread, _FAST)).tolist())
            if part:
                faster = part
                ahead = np.array([part in test.parts for test in like])
                ratio -= fast_level(ratio[~ahead])
                lead[where[ahead]] = fast_level(ratio[ahead])
                spread = scale_of(ratio - lead[where], noise)
            value[where] = ratio
            scale[where] = spread
            alone[where] = False
        ratio = np.exp(value)
        value -= lead
        slow = value < -3 * scale
        return Observed(
            tests=self._tests,
            ratio=ratio,
            lead=lead,
            faster=faster,
            value=value.clip(_LOWEST, _HIGHEST),
            scale=scale,
            failed=self._failed,
            alone=alone,
            weight=self._weights(slow | self._failed),
            share=self._share,
            collective=self._collective,
            like=self._like,
        )

    def _weights(self, slow: Bools) -> Floats:
        """Return the weight of each test, lower if it is old or not independent of others.

        Each of m slow tests of the same nodes, on different GPUs or in different operations, is
        divided by sqrt(m), as is each of m fine tests of the same nodes and GPUs in different
        operations.
        """
        slow_alike = self._kinds(self._group, slow)
        fine_alike = self._kinds(self._setting, ~slow)
        alike = np.where(slow, slow_alike, fine_alike)
        own = np.array([test.weight for test in self._tests])
        return own * alike**-0.5

    def _kinds(self, within: Ints, some: Bools) -> Ints:
        """Return, for each test, the number of kinds among the tests of the mask `some` with the
        same number in `within`, at least 1.
        """
        _, first = np.unique(self._kind[some], return_index=True)
        of_kinds = within[some][first]
        number = np.bincount(of_kinds, minlength=len(within))
        return number[within].clip(min=1)


def ints(numbers: Sequence[int]) -> Ints:
    """Return the numbers as an integer array, even if it is empty."""
    return np.array(numbers, dtype=np.int64)


def numbered(keys: Iterable[object]) -> Ints:
    """Return a number for each key, from 0 in the order of first occurrence."""
    number: dict[object, int] = {}
    numbers = list[int]()
    for key in keys:
        numbers.append(number.setdefault(key, len(number)))
    return ints(numbers)


def _numbered_together(numbers: Ints, keys: Sequence[object]) -> Ints:
    """Return a number for each pair of a number and a key."""
    return numbered(zip(numbers.tolist(), keys, strict=True))


def _logs(sweeps: Sequence[Mapping[int, float]]) -> Floats:
    """Return the log of each sweep's rate over the level of all sweeps (sweeps, sizes); NaN for a
    size that no other sweep has.
    """
    sizes = sorted(set().union(*sweeps))
    rows = [[sweep.get(size, 0) for size in sizes] for sweep in sweeps]
    values = np.array(rows, dtype=float)
    measured = np.where(values > 0, values, np.nan)
    logs = np.log(measured)
    levels = np.full(len(sizes), np.nan)
    for i, column in enumerate(logs.T):
        known = column[~np.isnan(column)]
        if len(known) > 1:
            levels[i] = fast_level(known)
    logs -= levels
    return logs


def _ratios(logs: Floats, band: Band) -> tuple[Floats, float]:
    """Return the median log ratio of each sweep over the sizes of a band, NaN if it has none, and
    the noise from the scatter between sizes.
    """
    in_band = _of_band(~np.isnan(logs), band)
    plateau = np.where(in_band, logs, np.nan)
    ratios = np.full(len(logs), np.nan)
    some = in_band.any(axis=1)
    ratios[some] = np.nanmedian(plateau[some], axis=1)
    several = in_band.sum(axis=1) > 1
    return ratios, _scatter(plateau[several])


def _of_band(known: Bools, band: Band) -> Bools:
    """Return the mask of the known sizes of each sweep that are in the band."""
    largest_first = np.cumsum(known[:, ::-1], axis=1)
    from_top = largest_first[:, ::-1]
    from_bottom = np.cumsum(known, axis=1)
    is_large: Bools = from_top <= _SIZES
    is_small: Bools = from_bottom <= _SIZES
    is_largest: Bools = from_top == 1
    match band:
        case "large":
            return known & is_large
        case "largest":
            return known & is_largest
        case "small":
            return known & is_small & ~is_large
        case "middle":
            return known & ~is_small & ~is_large


def _scatter(plateau: Floats) -> float:
    """Return half of the scatter between the smallest and the largest size; 0 for too few tests.

    It is estimated from the shortest interval with half of the tests. A fault slows most tests at
    all sizes equally, so it does not count as noise.
    """
    if len(plateau) < _LEAST_SCATTER:
        return 0.0
    known = ~np.isnan(plateau)
    rows = np.arange(len(plateau))
    smallest = known.argmax(axis=1)
    from_end = known[:, ::-1].argmax(axis=1)
    last = known.shape[1] - 1
    largest = last - from_end
    between = plateau[rows, largest] - plateau[rows, smallest]
    return shortest_half(between) / 1.349 / 2
