"""Tests of groups of nodes as numbers: the log ratio to what like tests reach, and its noise.

Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seatrial.localize.group_tests import GroupTest, Tests

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_SIZES = 3  # the plateau is the median of the largest sizes, as in a run
_FAST_SHARE = 0.05  # of like tests, at the least: groups of nodes slow most of them
_SIGMA = 0.03  # what a healthy pair scatters by, until tests show it
_SIGMA_FLOOR = 0.01
_PRIOR_TESTS = 4  # that it counts for
_FAR = 6 * _SIGMA  # below the fastest tests, what lies so low is slow and no noise
_MAD = 1.4826  # sigma of normal values, of which the median absolute deviation is 1
_EFFICIENCY = 0.37  # of MAD, by which so many tests count
_HALVES = 20  # tests from which their shortest half is wide enough
_SHORTH = 1.15  # its bias
_LEAST_SCATTER = 4  # tests
_LOWEST = -4.0
_HIGHEST = 0.5
_FAST = 0.15
# How likely one, two or three faults more are, which may slow all tests of a kind
_MORE_FAULTS = (0.3, 0.15, 0.05)

# Of message sizes; the large ones are the plateau
Band = Literal["large", "largest", "middle", "small"]
BANDS: tuple[Band, ...] = ("large", "largest", "middle", "small")


@dataclass(frozen=True)
class Levels:
    """Like tests of which none is slow: either all are fine, or faults slow all of them, and the
    level is theirs.

    Such tests say little for a part, and nothing if the known faults and this part touch every one
    of them. They say much beside a test of nodes that are `clear`: fine in tests like which others
    are slow.
    """

    flat: Bools
    clear: Bools  # of each test
    sets: Floats  # how many different groups of nodes they have
    reach: Floats  # the share of all nodes that one test has

    @classmethod
    def of(cls, observed: "Observed") -> "Levels":
        """Find the like tests of which none is slow, and the nodes that are clear."""
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
        """Return the probability that faults elsewhere slow all tests without a part.

        They are the share `without` of like tests.
        """
        others = self.sets[like] * without
        missed = 1 - self.reach[like]
        chance = np.zeros(len(like))
        for faults, probability in enumerate(_MORE_FAULTS, start=1):
            touched = 1 - missed**faults
            chance += probability * touched**others
        return np.where(self.flat[like], chance, 0.0)


def _clear(observed: "Observed", flat: Bools) -> Bools:
    """Return the fine tests of nodes that were fine in tests like which others are slow."""
    telling = observed.fine & ~observed.fast
    telling &= ~flat[observed.like]
    nodes = observed.nodes_of(np.flatnonzero(telling))
    fine = np.flatnonzero(observed.fine)
    clear = np.zeros(len(observed.tests), dtype=bool)
    clear[observed.within(nodes, fine)] = True
    return clear


@dataclass(frozen=True)
class Observed:
    """What each test shows.

    value: the log ratio to like tests.
    scale: the noise of that.
    failed: whether it has no value.
    alone: whether nothing is comparable with it; then it shows nothing.
    weight: what it counts. What else slowed a test slowed those of the same nodes on other GPUs:
        m of them that are slow have the weight of sqrt(m).
    share: that of a test among all of the same nodes.
    collective: the number of its collective, from 0.
    like: the number of its set of like tests, from 0.
    """

    tests: Tests
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
        nodes = set[str]()
        for i in places:
            nodes.update(self.tests[i].nodes)
        return nodes

    def within(self, nodes: set[str], places: Iterable[int]) -> list[int]:
        """Return those of the tests at these places that are of the nodes alone."""
        within = list[int]()
        for i in places:
            if nodes.issuperset(self.tests[i].nodes):
                within.append(i)
        return within

    def bad_of(self, tests: Ints) -> Ints:
        """Return those of the tests that are slow or failed."""
        return tests[self.bad[tests]]

    @cached_property
    def compared(self) -> Bools:
        """Tests that have a value, and others that it is compared with."""
        return ~self.failed & ~self.alone

    @cached_property
    def like_sizes(self) -> Ints:
        """How many like tests there are that are compared."""
        kinds = int(self.like.max(initial=-1)) + 1
        return np.bincount(self.like[self.compared], minlength=kinds)

    @cached_property
    def levels(self) -> Levels:
        """What is known of like tests of which none is slow, by the number of these."""
        return Levels.of(self)

    @cached_property
    def slow(self) -> Bools:
        """Below like tests by more than noise: three times its scale."""
        least = -3 * self.scale
        return self.compared & (self.value < least)

    @cached_property
    def fine(self) -> Bools:
        """As fast as like tests, or faster."""
        return self.compared & ~self.slow

    @cached_property
    def bad(self) -> Bools:
        """Slow or failed."""
        return self.slow | self.failed

    @cached_property
    def fast(self) -> Bools:
        """Faster than what is taken for the usual speed."""
        least = np.maximum(5 * self.scale, _FAST)
        return self.compared & (self.value > least)


class Comparison:
    """Tests beside those that are like them, of which each band of message sizes is observed.

    _group: of each test, the number of its nodes with how many GPUs each takes part with.
    _setting: of each test, the number of its nodes with these GPUs themselves.
    _kind: of each test, the number of its setting with an operation.
    _logs: of each set of like tests, their places, and the log ratio of each to the level of all,
        a column for each message size.
    """

    def __init__(self, tests: Sequence[GroupTest]) -> None:
        """Number what the tests have in common."""
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
        scale = np.full(len(self._tests), _SIGMA)
        alone = ~self._failed
        for members, logs in self._logs:
            ratio, noise = _ratios(logs, band)
            known = ~np.isnan(ratio)
            ratio = ratio[known]
            where = members[known]
            value[where] = ratio.clip(_LOWEST, _HIGHEST)
            scale[where] = _scale_of(ratio, noise)
            alone[where] = False
        slow = value < -3 * scale
        return Observed(
            tests=self._tests,
            value=value,
            scale=scale,
            failed=self._failed,
            alone=alone,
            weight=self._weights(slow | self._failed),
            share=self._share,
            collective=self._collective,
            like=self._like,
        )

    def _weights(self, slow: Bools) -> Floats:
        """Return the weight of each test: less if it is old, or if others of its nodes are no
        independent evidence.

        m that are slow on different GPUs or in different operations count as sqrt(m), as do m
        operations that are fine.
        """
        slow_alike = self._kinds(self._group, slow)
        fine_alike = self._kinds(self._setting, ~slow)
        alike = np.where(slow, slow_alike, fine_alike)
        own = np.array([test.weight for test in self._tests])
        return own * alike**-0.5

    def _kinds(self, within: Ints, some: Bools) -> Ints:
        """Return for each test how many kinds `some` of the same number `within` are, at least
        1.
        """
        _, first = np.unique(self._kind[some], return_index=True)
        of_kinds = within[some][first]
        number = np.bincount(of_kinds, minlength=len(within))
        return number[within].clip(min=1)


def ints(numbers: Sequence[int]) -> Ints:
    """Return the numbers as an array, of integers even if there are none."""
    return np.array(numbers, dtype=np.int64)


def numbered(keys: Iterable[object]) -> Ints:
    """Number the keys from 0 in the order in which they come."""
    number: dict[object, int] = {}
    numbers = list[int]()
    for key in keys:
        numbers.append(number.setdefault(key, len(number)))
    return ints(numbers)


def _numbered_together(numbers: Ints, keys: Sequence[object]) -> Ints:
    """Number the pairs of a number and a key."""
    return numbered(zip(numbers.tolist(), keys, strict=True))


def _logs(sweeps: Sequence[Mapping[int, float]]) -> Floats:
    """Return the log ratio of each sweep to the level of all, a column for each size; NaN if no
    other has it.
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
    """Return the median log ratio of each sweep over the sizes of a band, NaN without any, and the
    noise by scatter.
    """
    in_band = _of_band(~np.isnan(logs), band)
    plateau = np.where(in_band, logs, np.nan)
    ratios = np.full(len(logs), np.nan)
    some = in_band.any(axis=1)
    ratios[some] = np.nanmedian(plateau[some], axis=1)
    several = in_band.sum(axis=1) > 1
    return ratios, _scatter(plateau[several])


def _of_band(known: Bools, band: Band) -> Bools:
    """Return which of the sizes of each sweep are in the band, of those that have a value."""
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
    """Return half of the scatter between sizes: the shortest interval with half of the tests.

    It is that between the smallest and the largest size. A fault slows most tests at all sizes
    alike, so it does not count as noise; 0 for tests of one size.
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
    return _shortest_half(between) / 1.349 / 2


def _shortest_half(values: Floats) -> float:
    """Return the width of the shortest interval with half of the values, 1.349 sigma of normal ones
    (the shorth).
    """
    ordered = np.sort(values)
    half = len(ordered) // 2
    starts = ordered[: len(ordered) - half]
    widths = ordered[half:] - starts
    return float(widths.min())


def fast_level(values: Floats) -> float:
    """Return the level of the fast tests: the highest at which a twentieth of them agree.

    With two or three tests it is the highest. A half-sample mode (Bickel and Fruehwirth, 2006) of a
    twentieth, taken from above, then the median around it.
    """
    if len(values) < 4:
        return float(values.max())
    ordered = np.sort(values)[::-1]
    width = ceil(_FAST_SHARE * len(ordered))
    least = 2
    if len(ordered) >= 10:
        least = 3
    width = max(least, width)
    ends = ordered[width - 1 :]
    spans = ordered[: len(ends)] - ends
    fast = ordered[ordered >= ends[0] - _FAR]
    sigma = min(_SIGMA, max(_SIGMA_FLOOR / 2, _sigma_of_half(fast)))
    gaps = ends[:-1] - ends[1:]
    # Above a gap five times as wide, tests agree however much they scatter
    apart = max(gaps, default=0.0) / 5
    widest = max(3 * spans.min(), 2 * sigma, apart)
    first = int(np.argmax(spans <= widest))
    top = ordered[first : first + width]
    level = float(np.median(top))
    scale = max(float(spans[first]) / 2, sigma)
    floor = min(_SIGMA_FLOOR, sigma)
    # The median of what is near, until it stays
    for _ in range(5):
        is_near = np.abs(ordered - level) <= 3 * scale
        near = ordered[is_near]
        level = float(np.median(near))
        scale = max(_sigma_by_mad(near - level), floor)
    return level


def _sigma_of_half(values: Floats) -> float:
    """Return sigma by the shortest half of the values; infinite if these are too few."""
    if len(values) < _HALVES:
        return inf
    return _SHORTH * _shortest_half(values) / 1.349


def _sigma_by_mad(deviations: Floats) -> float:
    """Return sigma by the median absolute deviation."""
    median = np.median(np.abs(deviations))
    return _MAD * float(median)


def _scale_of(ratios: Floats, least: float) -> float:
    """Return the noise of like tests around their level, by MAD, with a few tests' worth of what is
    usual.

    `least` or more. It is wider the fewer tests show it, as Student's t is at three times its scale
    (first term of its expansion).
    """
    near = ratios
    scale = least
    for _ in range(5):
        is_near = np.abs(ratios) <= 3 * max(scale, _SIGMA)
        near = ratios[is_near]
        scale = _SIGMA
        if len(near):
            scale = max(least, _sigma_by_mad(near))
    # Half of the tests a little slower is a fault and no noise
    scale = min(scale, max(least, _sigma_of_half(near)))
    own = len(near) * scale**2
    usual = _PRIOR_TESTS * _SIGMA**2
    variance = (own + usual) / (len(near) + _PRIOR_TESTS)
    pooled = float(np.sqrt(variance))
    degrees = _EFFICIENCY * len(near) + _PRIOR_TESTS
    wider = 1 + 2.5 / degrees
    return max(pooled, _SIGMA_FLOOR) * wider
