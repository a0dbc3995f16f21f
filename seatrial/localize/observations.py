"""Tests of groups of nodes as numbers: the log ratio to what like tests reach, and its noise.

Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
        groups: list[set[frozenset[str]]] = [set() for _ in range(kinds)]
        for test, like in zip(observed.tests, observed.like.tolist(), strict=True):
            groups[like].add(frozenset(test.nodes))
        largest = [max(map(len, some)) for some in groups]
        reach = [size / len(observed.nodes) for size in largest]
        telling = observed.fine & ~observed.fast & ~flat[observed.like]
        fine = observed.nodes_of(np.flatnonzero(telling))
        clear = np.array([fine.issuperset(test.nodes) for test in observed.tests], dtype=bool)
        return cls(
            flat=flat,
            clear=clear & observed.fine,
            sets=np.array(list(map(len, groups)), dtype=float),
            reach=np.array(reach),
        )

    def doubt(self, like: Ints, without: Floats) -> Floats:
        """Return the probability that faults elsewhere slow all tests without a part.

        They are the share `without` of like tests.
        """
        others = self.sets[like] * without
        missed = 1 - self.reach[like]
        chance = np.zeros(len(like))
        for faults, probability in enumerate(_MORE_FAULTS, start=1):
            chance += probability * (1 - missed**faults) ** others
        return np.where(self.flat[like], chance, 0.0)


@dataclass(frozen=True)
class Observed:
    """What each test shows: `value`, the log ratio to like tests, with the `scale` of its noise.

    `failed` tests have no value. `alone` are those that nothing is comparable with: they show
    nothing. What else slowed a test slowed those of the same nodes on other GPUs: m of them that
    are slow have the `weight` of sqrt(m). `share` is that of a test among all of the same nodes.
    `collective` and `like` number the collectives and the sets of like tests, from 0.
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
        return {node for i in places for node in self.tests[i].nodes}

    def within(self, nodes: set[str], places: Iterable[int]) -> list[int]:
        """Return those of the tests at these places that are of the nodes alone."""
        return [i for i in places if nodes.issuperset(self.tests[i].nodes)]

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
        kinds = int(self.like.max()) + 1 if len(self.tests) else 0
        return np.bincount(self.like[self.compared], minlength=kinds)

    @cached_property
    def levels(self) -> Levels:
        """What is known of like tests of which none is slow, by the number of these."""
        return Levels.of(self)

    @cached_property
    def slow(self) -> Bools:
        """Below like tests by more than noise: three times its scale."""
        return self.compared & (self.value < -3 * self.scale)

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

    Of each test, `_group` numbers its nodes with the number of GPUs that each takes part with,
    `_setting` its nodes with these GPUs themselves, and `_kind` a setting with an operation.
    `_logs` has an entry for each set of like tests: their places, and the log ratio of each to the
    level of all, a column for each message size.
    """

    def __init__(self, tests: Sequence[GroupTest]) -> None:
        """Number what the tests have in common."""
        self._tests = Tests(tests)
        self._failed = np.array([test.failed for test in tests], dtype=bool)
        self._collective = numbered(test.collective for test in tests)
        self._like = numbered(test.like for test in tests)
        nodes = numbered(frozenset(test.nodes) for test in tests)
        self._share = 1 / np.bincount(nodes)[nodes]
        gpus_each = [len(test.gpus[0]) if test.gpus else 0 for test in tests]
        self._group = _numbered_together(nodes, gpus_each)
        self._setting = _numbered_together(self._group, [test.gpus for test in tests])
        operations = [(test.collective, test.conditions) for test in tests]
        self._kind = _numbered_together(self._setting, operations)
        by_like: dict[int, list[int]] = defaultdict(list)
        for i in np.flatnonzero(~self._failed).tolist():
            by_like[int(self._like[i])].append(i)
        self._logs = []
        for members in by_like.values():
            logs = _logs([tests[i].busbw_gb_s for i in members])
            self._logs.append((np.array(members), logs))

    def observed(self, band: Band = "large") -> Observed:
        """Return what the tests show at the sizes of a band."""
        value = np.zeros(len(self._tests))
        scale = np.full(len(self._tests), _SIGMA)
        alone = ~self._failed
        for members, logs in self._logs:
            ratio, noise = _ratios(logs, band)
            known = ~np.isnan(ratio)
            where = members[known]
            value[where] = np.clip(ratio[known], _LOWEST, _HIGHEST)
            scale[where] = _scale_of(ratio[known], noise)
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
        number = np.bincount(within[some][first], minlength=len(within))
        return number[within].clip(min=1)


def ints(numbers: Sequence[int]) -> Ints:
    """Return the numbers as an array, of integers even if there are none."""
    return np.array(numbers, dtype=np.int64)


def numbered(keys: Iterable[object]) -> Ints:
    """Number the keys from 0 in the order in which they come."""
    number: dict[object, int] = {}
    numbers = [number.setdefault(key, len(number)) for key in keys]
    return ints(numbers)


def _numbered_together(numbers: Ints, keys: Sequence[object]) -> Ints:
    """Number the pairs of a number and a key."""
    return numbered(zip(numbers.tolist(), keys, strict=True))


def _logs(sweeps: Sequence[Mapping[int, float]]) -> Floats:
    """Return the log ratio of each sweep to the level of all, a column for each size; NaN if no
    other has it.
    """
    sizes = sorted(set().union(*sweeps))
    values = np.array([[sweep.get(size, 0) for size in sizes] for sweep in sweeps], dtype=float)
    logs = np.log(np.where(values > 0, values, np.nan))
    levels = np.full(len(sizes), np.nan)
    for i, column in enumerate(logs.T):
        measured = column[~np.isnan(column)]
        if len(measured) > 1:
            levels[i] = fast_level(measured)
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
    from_top = np.cumsum(known[:, ::-1], axis=1)[:, ::-1]
    from_bottom = np.cumsum(known, axis=1)
    in_band: Bools = from_top <= _SIZES
    if band == "largest":
        in_band = from_top == 1
    elif band == "small":
        in_band = (from_bottom <= _SIZES) & (from_top > _SIZES)
    elif band == "middle":
        in_band = (from_bottom > _SIZES) & (from_top > _SIZES)
    return known & in_band


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
    largest = known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    between = plateau[rows, largest] - plateau[rows, smallest]
    return _shortest_half(between) / 1.349 / 2


def _shortest_half(values: Floats) -> float:
    """Return the width of the shortest interval with half of the values, 1.349 sigma of normal ones
    (the shorth).
    """
    ordered = np.sort(values)
    half = len(ordered) // 2
    widths = ordered[half:] - ordered[: len(ordered) - half]
    return float(widths.min())


def fast_level(values: Floats) -> float:
    """Return the level of the fast tests: the highest at which a twentieth of them agree.

    With two or three tests it is the highest. A half-sample mode (Bickel and Fruehwirth, 2006) of a
    twentieth, taken from above, then the median around it.
    """
    if len(values) < 4:
        return float(values.max())
    ordered = np.sort(values)[::-1]
    least = 3 if len(values) >= 10 else 2
    width = max(least, int(np.ceil(_FAST_SHARE * len(ordered))))
    ends = ordered[width - 1 :]
    spans = ordered[: len(ends)] - ends
    sigma = _SIGMA
    fast = ordered[ordered >= ends[0] - _FAR]
    if len(fast) >= _HALVES:
        narrow = _SHORTH * _shortest_half(fast) / 1.349
        sigma = min(_SIGMA, max(_SIGMA_FLOOR / 2, narrow))
    gaps = ends[:-1] - ends[1:]
    # Above a gap five times as wide, tests agree however much they scatter
    apart = max(gaps, default=0.0) / 5
    first = int(np.argmax(spans <= max(3 * spans.min(), 2 * sigma, apart)))
    level = float(np.median(ordered[first : first + width]))
    scale = max(float(spans[first]) / 2, sigma)
    floor = min(_SIGMA_FLOOR, sigma)
    for _ in range(5):
        near = ordered[np.abs(ordered - level) <= 3 * scale]
        level = float(np.median(near))
        scale = max(_MAD * float(np.median(np.abs(near - level))), floor)
    return level


def _scale_of(ratios: Floats, least: float) -> float:
    """Return the noise of like tests around their level, by MAD, with a few tests' worth of what is
    usual.

    `least` or more. It is wider the fewer tests show it, as Student's t is at three times its scale
    (first term of its expansion).
    """
    near = ratios
    scale = least
    for _ in range(5):
        near = ratios[np.abs(ratios) <= 3 * max(scale, _SIGMA)]
        scale = _SIGMA
        if len(near):
            scale = max(least, _MAD * float(np.median(np.abs(near))))
    if len(near) >= _HALVES:  # half of the tests a little slower is a fault and no noise
        narrow = _SHORTH * _shortest_half(near) / 1.349
        scale = min(scale, max(least, narrow))
    own = len(near) * scale**2
    usual = _PRIOR_TESTS * _SIGMA**2
    pooled = float(np.sqrt((own + usual) / (len(near) + _PRIOR_TESTS)))
    degrees = _EFFICIENCY * len(near) + _PRIOR_TESTS
    return max(pooled, _SIGMA_FLOOR) * (1 + 2.5 / degrees)
