"""Tests of groups of nodes as numbers: the log ratio to what like tests reach, and its noise. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_SIZES = 3  # the plateau is the median of the largest sizes, as in a run
_FAST_SHARE = 0.1  # of like tests, at the least: a cut or a placement slows most of them
_SIGMA, _SIGMA_FLOOR, _PRIOR_TESTS = 0.03, 0.01, 4  # what a healthy pair scatters by, until tests show it
_EFFICIENCY = 0.37  # of MAD, by which so many tests count
_LEAST_SCATTER = 4  # tests
_LOWEST, _HIGHEST = -4.0, 0.5
_FAST = 0.15


@dataclass(frozen=True, slots=True)
class GroupTest:
    """One collective over one group of nodes, in the order of its ranks.

    `gpus` are the addresses of the GPUs that took part, for each node; empty where they are not known. `busbw_gb_s` is
    by message bytes, and empty for a test that failed. Tests under other `conditions` are not compared.
    """

    name: str
    collective: str
    nodes: tuple[str, ...]
    busbw_gb_s: Mapping[int, float] = field(default_factory=dict)
    gpus: tuple[tuple[str, ...], ...] = ()
    conditions: str = ""

    @property
    def failed(self) -> bool:
        return not self.busbw_gb_s

    @property
    def like(self) -> tuple[str, str, int, tuple[int, ...]]:
        """The key that comparable tests share: collective, conditions, nodes, GPUs of each node."""
        return self.collective, self.conditions, len(self.nodes), tuple(sorted(len(each) for each in self.gpus))

    @property
    def crossed(self) -> bool:
        """Whether the nodes took part with GPUs of different addresses."""
        return len(set(self.gpus)) > 1 and len({frozenset(each) for each in self.gpus}) > 1

    @property
    def neighbours(self) -> Iterable[tuple[str, str]]:
        """The links of a ring over the nodes, which NCCL closes in the order of the ranks."""
        if len(self.nodes) < 2:
            return ()
        if len(self.nodes) == 2:
            return ((min(self.nodes), max(self.nodes)),)
        ring = zip(self.nodes, (*self.nodes[1:], self.nodes[0]), strict=True)
        return {(min(a, b), max(a, b)) for a, b in ring}


@dataclass(frozen=True)
class Observed:
    """What each test shows: `value`, the log ratio to like tests, with the `scale` of its noise.

    `failed` tests have no value. `alone` are those that nothing is comparable with: they show nothing. What else slowed
    a test slowed those of the same nodes on other GPUs: m of them that are slow have the `weight` of sqrt(m). `share`
    is that of a test among all of the same nodes.
    """

    tests: tuple[GroupTest, ...]
    value: Floats
    scale: Floats
    failed: Bools
    alone: Bools
    weight: Floats
    share: Floats

    @cached_property
    def collective(self) -> Ints:
        """The number of the collective of each test, from 0."""
        number = {name: i for i, name in enumerate(dict.fromkeys(test.collective for test in self.tests))}
        return np.array([number[test.collective] for test in self.tests], dtype=np.int64)

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


def observe(tests: Sequence[GroupTest]) -> Observed:
    """Compare each test with its like."""
    value, scale = np.zeros(len(tests)), np.full(len(tests), _SIGMA)
    failed = np.array([test.failed for test in tests], dtype=bool)
    alone = ~failed
    by_like: dict[object, list[int]] = defaultdict(list)
    for i, test in enumerate(tests):
        if not test.failed:
            by_like[test.like].append(i)
    for members in by_like.values():
        ratio, noise = _ratios([tests[i].busbw_gb_s for i in members])
        known = ~np.isnan(ratio)
        where = np.array(members)[known]
        value[where], alone[where] = np.clip(ratio[known], _LOWEST, _HIGHEST), False
        scale[where] = _scale_of(ratio[known], noise)
    slow = (value < -3 * scale) | failed
    gpus: dict[object, set[object]] = defaultdict(set)
    for i in np.flatnonzero(slow).tolist():
        gpus[tests[i].like, frozenset(tests[i].nodes)].add(tests[i].gpus)
    weight = np.ones(len(tests))
    for i in np.flatnonzero(slow).tolist():
        weight[i] = len(gpus[tests[i].like, frozenset(tests[i].nodes)]) ** -0.5
    times = Counter(frozenset(test.nodes) for test in tests)
    share = np.array([1 / times[frozenset(test.nodes)] for test in tests])
    return Observed(tuple(tests), value, scale, failed, alone, weight, share)


def _ratios(sweeps: Sequence[Mapping[int, float]]) -> tuple[Floats, float]:
    """The median log ratio over the largest sizes of each sweep, and its noise by how these sizes scatter.

    The ratio is NaN where no other has one of its sizes.
    """
    sizes = sorted({size for sweep in sweeps for size in sweep})
    logs = np.array([[np.log(sweep[size]) if sweep.get(size, 0) > 0 else np.nan for size in sizes] for sweep in sweeps])
    measured = [column[~np.isnan(column)] for column in logs.T]
    logs -= [fast_level(values) if len(values) > 1 else np.nan for values in measured]
    known = ~np.isnan(logs)
    largest = known & (np.cumsum(known[:, ::-1], axis=1)[:, ::-1] <= _SIZES)
    ratios, some = np.full(len(sweeps), np.nan), known.any(axis=1)
    plateau = np.where(largest, logs, np.nan)
    ratios[some] = np.nanmedian(plateau[some], axis=1)
    return ratios, _scatter(plateau[largest.sum(axis=1) > 1])


def _scatter(plateau: Floats) -> float:
    """Half of the scatter between the smallest and the largest size: the shortest interval with half of the tests.

    A fault slows most tests at all sizes alike, so it does not count as noise; 0 for tests of one size.
    """
    if len(plateau) < _LEAST_SCATTER:
        return 0.0
    ends = [row[~np.isnan(row)][[0, -1]] for row in plateau]
    ordered = np.sort([last - first for first, last in ends])
    half = len(ordered) // 2
    return float((ordered[half:] - ordered[: len(ordered) - half]).min()) / 1.349 / 2


def fast_level(values: Floats) -> float:
    """The level of the fast tests: the highest at which a tenth of them agree; of two or three tests the highest.

    A half-sample mode (Bickel and Fruehwirth, 2006) of a tenth, taken from above, then the median around it.
    """
    if len(values) < 4:
        return float(values.max())
    ordered = np.sort(values)[::-1]
    width = max(3 if len(values) >= 10 else 2, int(np.ceil(_FAST_SHARE * len(ordered))))
    spans = ordered[: len(ordered) - width + 1] - ordered[width - 1 :]
    apart = (ordered[0] - ordered[-1]) / 20  # next to a fault that slows tenfold, a tenth is agreement
    first = int(np.argmax(spans <= max(3 * spans.min(), 2 * _SIGMA, apart)))
    level, scale = float(np.median(ordered[first : first + width])), max(float(spans[first]) / 2, _SIGMA)
    for _ in range(5):
        near = ordered[np.abs(ordered - level) <= 3 * scale]
        level = float(np.median(near))
        scale = max(1.4826 * float(np.median(np.abs(near - level))), _SIGMA_FLOOR)
    return level


def _scale_of(ratios: Floats, least: float) -> float:
    """The noise of like tests around their level, by MAD, with a few tests' worth of what is usual; `least` or more.

    It is wider the fewer tests show it, as Student's t is at three times its scale (first term of its expansion).
    """
    near, scale = ratios, least
    for _ in range(5):
        near = ratios[np.abs(ratios) <= 3 * max(scale, _SIGMA)]
        scale = max(least, 1.4826 * float(np.median(np.abs(near)))) if len(near) else _SIGMA
    own, usual = len(near) * scale**2, _PRIOR_TESTS * _SIGMA**2
    degrees = _EFFICIENCY * len(near) + _PRIOR_TESTS
    return max(float(np.sqrt((own + usual) / (len(near) + _PRIOR_TESTS))), _SIGMA_FLOOR) * (1 + 2.5 / degrees)
