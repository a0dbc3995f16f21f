"""Tests of groups of nodes as numbers: the log ratio to what like tests reach, and its noise.

Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_SIZES = 3  # the plateau is the median of the largest sizes, as in a run
_FAST_SHARE = 0.1  # of like tests, at the least: a cut or a placement slows most of them
# What a healthy pair scatters by, until tests show it
_SIGMA, _SIGMA_FLOOR, _PRIOR_TESTS = 0.03, 0.01, 4
_FAR = 6 * _SIGMA  # below the fastest tests, what lies so low is slow and no noise
_EFFICIENCY = 0.37  # of MAD, by which so many tests count
_HALVES, _SHORTH = 20, 1.15  # tests from which their shortest half is wide enough, with its bias
_LEAST_SCATTER = 4  # tests
_LOWEST, _HIGHEST = -4.0, 0.5
_FAST = 0.15
_MESH = 32  # nodes; of more, single links make no difference to an alltoall
# How likely one, two or three faults more are, which may slow all tests of a kind
_MORE_FAULTS = (0.3, 0.15, 0.05)

# Of message sizes; the large ones are the plateau
Band = Literal["large", "largest", "middle", "small"]
Switches = Mapping[str, frozenset[str]]  # nodes, by the switch, rack or block that they share
Addresses = tuple[tuple[str, ...], ...]  # of the GPUs of each node
TestsByName = dict[str, list[int]]  # the places of tests
Ends = dict[str, TestsByName]  # by node and address
BANDS: tuple[Band, ...] = ("large", "largest", "middle", "small")


@dataclass(frozen=True, slots=True)
class GroupTest:
    """One collective over one group of nodes, in the order of its ranks.

    `gpus` are the addresses of the GPUs that took part, for each node; empty where they are not
    known. `busbw_gb_s` is by message bytes, and empty for a test that failed. Tests under other
    `conditions` are not compared. `weight` is what it counts for, less the older it is, and `day`
    its date, where that is known.
    """

    name: str
    collective: str
    nodes: tuple[str, ...]
    busbw_gb_s: Mapping[int, float] = field(default_factory=dict)
    gpus: Addresses = ()
    conditions: str = ""
    weight: float = 1.0
    day: str = ""

    @property
    def failed(self) -> bool:
        return not self.busbw_gb_s

    @property
    def like(self) -> tuple[str, str, int, tuple[int, ...]]:
        """The number of the like tests of each test, from 0."""
        return self.collective, self.conditions, len(self.nodes), tuple(sorted(map(len, self.gpus)))

    @property
    def crossed(self) -> bool:
        """Whether the nodes took part with GPUs of different addresses."""
        return len(set(self.gpus)) > 1 and len({frozenset(each) for each in self.gpus}) > 1

    @property
    def neighbours(self) -> Iterable[tuple[str, str]]:
        """The links of a ring over the nodes, closed in the order of the ranks; of alltoall all
        links.
        """
        if len(self.nodes) < 2:
            return ()
        if len(self.nodes) == 2:
            return ((min(self.nodes), max(self.nodes)),)
        if self.collective.startswith("alltoall") and len(self.nodes) <= _MESH:
            return set(combinations(sorted(set(self.nodes)), 2))
        ring = zip(self.nodes, (*self.nodes[1:], self.nodes[0]), strict=True)
        return {(min(a, b), max(a, b)) for a, b in ring}


class Tests(tuple[GroupTest, ...]):
    """The tests, in their order.

    What was tested is the same for messages of all sizes, and found once.
    """

    @cached_property
    def nodes(self) -> frozenset[str]:
        """All nodes that took part in a test."""
        return frozenset(node for test in self for node in test.nodes)

    @cached_property
    def ends(self) -> Ends:
        """The places of the tests in which each node took part with each address of a GPU."""
        ends: Ends = {}
        for i, test in enumerate(self):
            for node, addresses in zip(test.nodes, test.gpus, strict=False):
                of_node = ends.setdefault(node, {})
                for address in addresses:
                    of_node.setdefault(address, []).append(i)
        return ends


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
        kinds = len(observed.like_sizes)
        bad = np.bincount(observed.like[observed.bad], minlength=kinds)
        groups: list[set[frozenset[str]]] = [set() for _ in range(kinds)]
        for test, like in zip(observed.tests, observed.like.tolist(), strict=True):
            groups[like].add(frozenset(test.nodes))
        reach = [max(map(len, some)) / len(observed.nodes) for some in groups]
        flat: Bools = bad == 0
        telling = observed.fine & ~observed.fast & ~flat[observed.like]
        fine = observed.nodes_of(np.flatnonzero(telling))
        clear = np.array([fine.issuperset(test.nodes) for test in observed.tests], dtype=bool)
        return cls(
            flat,
            clear & observed.fine,
            np.array([len(some) for some in groups], dtype=float),
            np.array(reach),
        )

    def doubt(self, like: Ints, without: Floats) -> Floats:
        """Return the probability that faults elsewhere slow all tests without a part.

        They are the share `without` of like tests.
        """
        others = self.sets[like] * without
        chance = np.zeros(len(like))
        for faults, probability in enumerate(_MORE_FAULTS, start=1):
            chance += probability * (1 - (1 - self.reach[like]) ** faults) ** others
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

    @cached_property
    def like_sizes(self) -> Ints:
        """How many like tests there are, save those that failed or are alone."""
        kinds = int(self.like.max()) + 1 if len(self.tests) else 0
        return np.bincount(self.like[~self.failed & ~self.alone], minlength=kinds)

    @cached_property
    def levels(self) -> Levels:
        """What is known of like tests of which none is slow, by the number of these."""
        return Levels.of(self)

    @cached_property
    def slow(self) -> Bools:
        """Below like tests by more than noise: three times its scale."""
        return ~self.failed & ~self.alone & (self.value < -3 * self.scale)

    @cached_property
    def fine(self) -> Bools:
        return ~self.failed & ~self.alone & ~self.slow

    @cached_property
    def bad(self) -> Bools:
        return self.slow | self.failed

    @cached_property
    def fast(self) -> Bools:
        """Faster than what is taken for the usual speed."""
        return ~self.failed & ~self.alone & (self.value > np.maximum(5 * self.scale, _FAST))


class Comparison:
    """Tests beside those that are like them, of which each band of message sizes is observed."""

    def __init__(self, tests: Sequence[GroupTest]) -> None:
        self._tests = Tests(tests)
        self._failed = np.array([test.failed for test in tests], dtype=bool)
        self._collective = numbered(test.collective for test in tests)
        self._like = numbered(test.like for test in tests)
        nodes = numbered(frozenset(test.nodes) for test in tests)
        self._share = 1 / np.bincount(nodes)[nodes]
        several = (len(test.gpus[0]) if test.gpus else 0 for test in tests)
        self._group = numbered(zip(nodes.tolist(), several, strict=True))
        self._setting = numbered(
            zip(self._group.tolist(), (test.gpus for test in tests), strict=True)
        )
        self._kind = numbered(
            (i, t.collective, t.conditions)
            for i, t in zip(self._setting.tolist(), tests, strict=True)
        )
        by_like: dict[int, list[int]] = defaultdict(list)
        for i in np.flatnonzero(~self._failed).tolist():
            by_like[int(self._like[i])].append(i)
        self._logs = [
            (np.array(some), _logs([tests[i].busbw_gb_s for i in some]))
            for some in by_like.values()
        ]

    def observed(self, band: Band = "large") -> Observed:
        """Return what the tests show at the sizes of a band."""
        value, scale = np.zeros(len(self._tests)), np.full(len(self._tests), _SIGMA)
        alone = ~self._failed
        for members, logs in self._logs:
            ratio, noise = _ratios(logs, band)
            known = ~np.isnan(ratio)
            where = members[known]
            value[where], alone[where] = np.clip(ratio[known], _LOWEST, _HIGHEST), False
            scale[where] = _scale_of(ratio[known], noise)
        weight = self._weights((value < -3 * scale) | self._failed)
        return Observed(
            self._tests,
            value,
            scale,
            self._failed,
            alone,
            weight,
            self._share,
            self._collective,
            self._like,
        )

    def _weights(self, slow: Bools) -> Floats:
        """Return the weight of each test: less if it is old, or if others of its nodes are no
        independent evidence.

        m that are slow on different GPUs or in different operations count as sqrt(m), as do m
        operations that are fine.
        """
        alike = np.where(slow, self._kinds(self._group, slow), self._kinds(self._setting, ~slow))
        return np.array([test.weight for test in self._tests]) * alike**-0.5

    def _kinds(self, within: Ints, some: Bools) -> Ints:
        """Return for each test how many kinds `some` of the same number `within` are, at least
        1.
        """
        _, first = np.unique(self._kind[some], return_index=True)
        return np.bincount(within[some][first], minlength=len(within))[within].clip(min=1)


def numbered(keys: Iterable[object]) -> Ints:
    """Number the keys from 0 in the order in which they come."""
    number: dict[object, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)


def _logs(sweeps: Sequence[Mapping[int, float]]) -> Floats:
    """Return the log ratio of each sweep to the level of all, a column for each size; NaN if no
    other has it.
    """
    sizes = sorted({size for sweep in sweeps for size in sweep})
    values = np.array([[sweep.get(size, 0) for size in sizes] for sweep in sweeps], dtype=float)
    logs = np.log(np.where(values > 0, values, np.nan))
    measured = [column[~np.isnan(column)] for column in logs.T]
    logs -= [fast_level(column) if len(column) > 1 else np.nan for column in measured]
    return logs


def _ratios(logs: Floats, band: Band) -> tuple[Floats, float]:
    """Return the median log ratio of each sweep over the sizes of a band, NaN without any, and the
    noise by scatter.
    """
    largest = _of_band(~np.isnan(logs), band)
    ratios, some = np.full(len(logs), np.nan), largest.any(axis=1)
    plateau = np.where(largest, logs, np.nan)
    ratios[some] = np.nanmedian(plateau[some], axis=1)
    return ratios, _scatter(plateau[largest.sum(axis=1) > 1])


def _of_band(known: Bools, band: Band) -> Bools:
    """Return which of the sizes of each sweep are in the band, of those that have a value."""
    from_top = np.cumsum(known[:, ::-1], axis=1)[:, ::-1]
    from_bottom = np.cumsum(known, axis=1)
    chosen: Bools = known & (from_top <= _SIZES)
    if band == "largest":
        chosen = known & (from_top == 1)
    elif band == "small":
        chosen = known & (from_bottom <= _SIZES) & (from_top > _SIZES)
    elif band == "middle":
        chosen = known & (from_bottom > _SIZES) & (from_top > _SIZES)
    return chosen


def _scatter(plateau: Floats) -> float:
    """Return half of the scatter between sizes: the shortest interval with half of the tests.

    It is that between the smallest and the largest size. A fault slows most tests at all sizes
    alike, so it does not count as noise; 0 for tests of one size.
    """
    if len(plateau) < _LEAST_SCATTER:
        return 0.0
    known, rows = ~np.isnan(plateau), np.arange(len(plateau))
    smallest, largest = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return _shortest_half(plateau[rows, largest] - plateau[rows, smallest]) / 1.349 / 2


def _shortest_half(values: Floats) -> float:
    """Return the width of the shortest interval with half of the values, 1.349 sigma of normal ones
    (the shorth).
    """
    ordered = np.sort(values)
    half = len(ordered) // 2
    return float((ordered[half:] - ordered[: len(ordered) - half]).min())


def fast_level(values: Floats) -> float:
    """Return the level of the fast tests: the highest at which a tenth of them agree.

    With two or three tests it is the highest. A half-sample mode (Bickel and Fruehwirth, 2006) of a
    tenth, taken from above, then the median around it.
    """
    if len(values) < 4:
        return float(values.max())
    ordered = np.sort(values)[::-1]
    width = max(3 if len(values) >= 10 else 2, int(np.ceil(_FAST_SHARE * len(ordered))))
    spans = ordered[: len(ordered) - width + 1] - ordered[width - 1 :]
    sigma = _SIGMA
    fast = ordered[ordered >= ordered[width - 1] - _FAR]
    if len(fast) >= _HALVES:
        sigma = min(_SIGMA, max(_SIGMA_FLOOR / 2, _SHORTH * _shortest_half(fast) / 1.349))
    gaps = ordered[width - 1 : -1] - ordered[width:]
    # Above a gap five times as wide, tests agree however much they scatter
    apart = max(gaps, default=0.0) / 5
    first = int(np.argmax(spans <= max(3 * spans.min(), 2 * sigma, apart)))
    level, scale = (
        float(np.median(ordered[first : first + width])),
        max(float(spans[first]) / 2, sigma),
    )
    for _ in range(5):
        near = ordered[np.abs(ordered - level) <= 3 * scale]
        level = float(np.median(near))
        scale = max(1.4826 * float(np.median(np.abs(near - level))), min(_SIGMA_FLOOR, sigma))
    return level


def _scale_of(ratios: Floats, least: float) -> float:
    """Return the noise of like tests around their level, by MAD, with a few tests' worth of what is
    usual.

    `least` or more. It is wider the fewer tests show it, as Student's t is at three times its scale
    (first term of its expansion).
    """
    near, scale = ratios, least
    for _ in range(5):
        near = ratios[np.abs(ratios) <= 3 * max(scale, _SIGMA)]
        scale = max(least, 1.4826 * float(np.median(np.abs(near)))) if len(near) else _SIGMA
    if len(near) >= _HALVES:  # half of the tests a little slower is a fault and no noise
        scale = min(scale, max(least, _SHORTH * _shortest_half(near) / 1.349))
    own, usual = len(near) * scale**2, _PRIOR_TESTS * _SIGMA**2
    degrees = _EFFICIENCY * len(near) + _PRIOR_TESTS
    return max(float(np.sqrt((own + usual) / (len(near) + _PRIOR_TESTS))), _SIGMA_FLOOR) * (
        1 + 2.5 / degrees
    )
