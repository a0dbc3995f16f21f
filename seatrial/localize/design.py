"""The tests of all causes as flat arrays, so that all causes are weighed at once. Pure."""

from collections.abc import Sequence

import numpy as np

from seatrial.localize.cause import PENETRANCES, Column
from seatrial.localize.likelihood import SLOWDOWNS
from seatrial.localize.observations import Bools, Floats, Ints, Observed

_MAY_KILL = ("node", "gpu", "socket", "link")
_DEAD = 0.1  # share of the faults of those parts that make tests fail
# Uniform probabilities of the slowdowns; the last entry is the probability that tests fail
_EACH = np.full(len(SLOWDOWNS), 1 / len(SLOWDOWNS))
_SLOWS = np.append(_EACH, 0.0)
_SLOWS_OR_KILLS = np.append((1 - _DEAD) * _EACH, _DEAD)
_COVERED = 2.0  # a test counts as slowed by known causes from this multiple of its noise on


class Design:
    """The columns as flat arrays, with an entry for each cause and test of it.

    Entries are grouped in runs, one for each cause and kind of like tests. Adjacent runs of one
    cause and operation form a part: the effect of a cause on one operation.

    Of each cause:
        log_prior: the log of its prior probability.
    Of each entry:
        test: the index of its test.
        place: the index of its test within `used`.
        layer: the index of the penetrance of its cause.
    Of each run:
        starts: its first entry.
        run_like: its kind of like tests.
    Of each part:
        part_starts: its first run.
        part_cause: the index of its cause.
        weights: the prior probability of each slowdown, and of failing tests.
    """

    def __init__(self, candidates: Sequence[Column], observed: Observed) -> None:
        self.columns = tuple(candidates)
        self.causes = [column.cause for column in candidates]
        self.observed = observed
        self.test, run = _entries(self.columns, observed)
        # The tests that a cause may have slowed
        self.used = np.unique(self.test)
        self.place = np.searchsorted(self.used, self.test)
        self.starts = _firsts(run)
        # The number of a run encodes its cause, operation and kind
        kinds = len(observed.like_sizes)
        part, like = np.divmod(run, kinds)
        cause = part // _operations(observed)
        self.run_like = like[self.starts]
        self.part_starts = _firsts(part[self.starts])
        first_entries = self.starts[self.part_starts]
        self.part_cause = cause[first_entries]
        self.log_prior = np.array([each.log_prior for each in self.causes])
        # Index of the penetrance, which is that of its table of ratios
        penetrances = [each.penetrance for each in self.causes]
        layers = list(map(PENETRANCES.index, penetrances))
        self.layer = np.array(layers)[cause]
        kills = np.array([each.kind in _MAY_KILL for each in self.causes])
        may_kill = kills[self.part_cause]
        self.weights = np.where(may_kill[:, None], _SLOWS_OR_KILLS, _SLOWS)

    def doubts(self, base: Floats) -> Floats:
        """Return, for each run, the probability that its tests show nothing, because faults slow
        all like tests equally.

        `base` is the log slowdown of each test by known causes.
        """
        observed = self.observed
        levels = observed.levels
        shown = observed.compared
        number = self._by_run(shown)
        like = observed.like_sizes[self.run_like]
        sizes = like.clip(min=1)
        without = 1 - number / sizes
        doubt = levels.doubt(self.run_like, without)
        # Nodes known to be fine show that the level of these tests is not slow
        clear = self._like(levels.clear)
        has_clear_test_beside = clear > self._by_run(levels.clear)
        doubt[has_clear_test_beside] = 0.0
        # Without like tests outside of the run, nothing shows the level
        covered = _COVERED * observed.scale
        free = shown & (base < covered)
        has_all_free = self._by_run(free) == self._like(free)
        has_no_reference = levels.flat[self.run_like] & has_all_free
        has_no_reference &= number > 0
        doubt[has_no_reference] = 1.0
        return doubt

    def _by_run(self, some: Bools) -> Ints:
        """Return how many tests of the mask `some` each run has."""
        of_entries = some[self.test]
        return np.add.reduceat(of_entries, self.starts, dtype=np.int64)

    def _like(self, some: Bools) -> Ints:
        """Return, for each run, how many tests of the mask `some` are of its kind."""
        like = self.observed.like[some]
        kinds = len(self.observed.like_sizes)
        by_kind = np.bincount(like, minlength=kinds)
        number: Ints = by_kind[self.run_like]
        return number


def _entries(candidates: Sequence[Column], observed: Observed) -> tuple[Ints, Ints]:
    """Return the test and the run of each entry, in the order of the runs.

    Runs are numbered by cause, then by operation, then by kind of like tests.
    """
    tests = [column.tests for column in candidates]
    test = np.concatenate(tests)
    sizes = list(map(len, tests))
    causes = np.arange(len(sizes))
    cause = np.repeat(causes, sizes)
    kinds = len(observed.like_sizes)
    part = cause * _operations(observed) + observed.collective[test]
    run = part * kinds + observed.like[test]
    # Tests keep their order in a run, since the order affects the rounding of sums
    order = np.argsort(run, kind="stable")
    return test[order], run[order]


def _operations(observed: Observed) -> int:
    """Return the number of operations."""
    return int(observed.collective.max()) + 1


def _firsts(numbers: Ints) -> Ints:
    """Return the index of the first entry of each run of equal numbers."""
    return np.flatnonzero(np.diff(numbers, prepend=-1))
