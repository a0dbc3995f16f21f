"""The tests of all causes as flat arrays, so that every cause is weighed at once. Pure."""

from collections.abc import Sequence

import numpy as np

from seatrial.localize.cause import PENETRANCES, Column
from seatrial.localize.likelihood import SLOWDOWNS
from seatrial.localize.observations import Bools, Floats, Ints, Observed

_MAY_KILL = ("node", "gpu", "socket", "link")
_DEAD = 0.1  # of faults of those parts, those that make tests fail
# The probabilities of the slowdowns, each as likely, and last that tests fail
_EACH = np.full(len(SLOWDOWNS), 1 / len(SLOWDOWNS))
_SLOWS = np.append(_EACH, 0.0)
_SLOWS_OR_KILLS = np.append((1 - _DEAD) * _EACH, _DEAD)
_COVERED = 2.0  # times its noise, of a test that known causes slow


class Design:
    """The columns as flat arrays: one entry for each cause and test, in runs of one cause and one
    kind of like tests.

    Runs of one operation lie side by side, and are a part: what a cause does to one operation.

    Of each cause:
        log_prior: the log of its prior probability.
    Of each entry:
        test: the place of its test.
        place: where that is among the tests that are `used`.
        layer: the number of the penetrance of its cause.
    Of each run:
        starts: its first entry.
        run_like: its kind of like tests.
    Of each part:
        part_starts: its first run.
        part_cause: its cause.
        weights: how likely its cause slows tests by each of the slowdowns, or makes them fail.
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
        # The number of a run says what it is of
        kinds = len(observed.like_sizes)
        part, like = np.divmod(run, kinds)
        cause = part // _operations(observed)
        self.run_like = like[self.starts]
        self.part_starts = _firsts(part[self.starts])
        first_entries = self.starts[self.part_starts]
        self.part_cause = cause[first_entries]
        self.log_prior = np.array([each.log_prior for each in self.causes])
        # The number of a penetrance is that of its table of ratios
        penetrances = [each.penetrance for each in self.causes]
        layers = list(map(PENETRANCES.index, penetrances))
        self.layer = np.array(layers)[cause]
        kills = np.array([each.kind in _MAY_KILL for each in self.causes])
        may_kill = kills[self.part_cause]
        self.weights = np.where(may_kill[:, None], _SLOWS_OR_KILLS, _SLOWS)

    def doubts(self, base: Floats) -> Floats:
        """Return the probability that a run's tests show nothing: faults, with those of `base`,
        slow all alike.
        """
        observed = self.observed
        levels = observed.levels
        shown = observed.compared
        number = self._by_run(shown)
        like = observed.like_sizes[self.run_like]
        sizes = like.clip(min=1)
        without = 1 - number / sizes
        doubt = levels.doubt(self.run_like, without)
        # Clear nodes show that the level of these tests is not that of a fault
        clear = self._like(levels.clear)
        has_clear_test_beside = clear > self._by_run(levels.clear)
        doubt[has_clear_test_beside] = 0.0
        # Where all that could tell are of one run, nothing does
        covered = _COVERED * observed.scale
        free = shown & (base < covered)
        has_all_free = self._by_run(free) == self._like(free)
        has_no_reference = levels.flat[self.run_like] & has_all_free
        has_no_reference &= number > 0
        doubt[has_no_reference] = 1.0
        return doubt

    def _by_run(self, some: Bools) -> Ints:
        """Return how many of some tests each run has."""
        of_entries = some[self.test]
        return np.add.reduceat(of_entries, self.starts, dtype=np.int64)

    def _like(self, some: Bools) -> Ints:
        """Return for each run how many of some tests are like those in it."""
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
    # Tests keep their order in a run, by which sums of floating-point numbers are rounded
    order = np.argsort(run, kind="stable")
    return test[order], run[order]


def _operations(observed: Observed) -> int:
    """Return how many operations there are."""
    return int(observed.collective.max()) + 1


def _firsts(numbers: Ints) -> Ints:
    """Return the places at which sorted numbers change, and the first."""
    return np.flatnonzero(np.diff(numbers, prepend=-1))
