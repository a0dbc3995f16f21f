"""Likelihood of a test's value if a cause slows it, relative to that without the cause. Pure."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from seatrial.localize.cause import ALWAYS
from seatrial.localize.observations import Bools, Floats, Ints, Observed

# Log slowdowns that a cause may have: from 3 %, which people care about, to a twentieth of the
# speed, each a third larger than the one before.
SLOWDOWNS = 0.031 * 1.35 ** np.arange(16)
# Ranges of indices in SLOWDOWNS for small (up to 10 %), medium (up to a half) and large slowdowns
_SEVERITIES = ((0, 5), (5, 11), (11, 16))
# Penetrances that searches for cuts and blocks try
SOUGHT = (ALWAYS, 0.5)
_LEAST_GAIN = 4.0  # least gain in log likelihood that starts a search
_SPREAD = 0.2  # relative spread of a slowdown: one cause does not slow all of its tests equally
_STRAYS = 0.02  # prior share of strays: tests that are slow for unrelated reasons
_STRAY_TESTS = 50  # number of tests that the prior share of strays counts as
_LEAST_STRAYS = 0.01
_WIDE = 1 / 4.5  # uniform density of a stray's value
_FAILS = 0.05  # least share of tests that fail for unrelated reasons
FAILS_IF_DEAD = 0.9  # probability that a test fails under a cause that makes tests fail
_FAILS_IF_SLOW = 3.0  # how many times as often slowed tests fail
_MOST_BY_FAILURE = 3.0  # largest log likelihood ratio of one failed test for such a cause


class Likelihood:
    """Densities of the tests' values, given the effects already found.

    A value is normal around the speed that known causes leave, or, with probability `strays`, a
    stray: slow for an unrelated reason. The share and location of strays and the share of failing
    tests are fitted to the unexplained tests (empirical Bayes), so many slow or failed tests
    without a pattern are no evidence for any cause.

    base: the log slowdown of each test by known causes.
    stray: the density of each test's value as a stray.
    strays: the share of strays.
    log_total: the log probability of all tests without a further cause.
    """

    def __init__(
        self,
        observed: Observed,
        base: Floats,
        fails: Floats,
        fitted: tuple[Floats, Floats] | None = None,
        stray: Floats | None = None,
    ) -> None:
        """Fit the strays of the tests.

        base: the log slowdown of each test by known causes.
        fails: the probability that known causes make each test fail.
        fitted: (base, fails) to fit the strays with; default: `base` and `fails`.
        stray: the density of each test as a stray; default: fitted too.
        """
        self._observed = observed
        self.base = base
        explained, failing = fitted or (base, fails)
        # Probability that each test fails without a further cause
        others = observed.failed[failing < 0.5]
        share_failed = float(others.sum()) / max(1, len(others))
        usual_share = max(_FAILS, share_failed)
        self._fails = np.maximum(fails, usual_share)
        width = width_of(observed.scale, explained)
        odd = observed.compared & (observed.value + explained < -3 * width)
        self.strays = _share_of_strays(observed, odd)
        if stray is None:
            stray = _stray_density(observed, odd)
        self.stray = stray
        # Density of each test's value without a further cause
        self._usual = self._density(base, np.arange(len(base)))
        passed = (1 - self._fails) * self._usual
        usual = np.where(observed.failed, self._fails, passed)
        weighted = observed.weight * np.log(usual)
        shown = weighted[~observed.alone]
        self.log_total = float(shown.sum())

    def ratios(self, *penetrances: float, tests: Ints | None = None) -> Floats:
        """Return the log likelihood ratio of each test for each slowdown; the last column is for a
        cause that makes tests fail.

        There is one table for each of the `penetrances`, the probabilities that a cause affects a
        test. `tests` are indices (default: all tests).
        """
        if tests is None:
            tests = np.arange(len(self.base))
        slowed = np.maximum(self.base[tests, None], SLOWDOWNS)
        # Ratio of the densities with and without the cause
        usual = self._usual[tests, None]
        affected = self._density(slowed, tests) / usual
        failed = self._observed.failed[tests, None]
        failing, dead = _of_failures(failed, self._fails[tests, None])
        columns = len(SLOWDOWNS) + 1
        tables = np.zeros((len(penetrances), len(tests), columns))
        tables[:, :, -1:] = dead
        for table, penetrance in zip(tables, penetrances, strict=True):
            values = np.log(penetrance * affected + 1 - penetrance)
            table[:, :-1] = np.where(failed, penetrance * failing, values)
        alone = self._observed.alone[tests]
        tables[:, alone] = 0
        weight = self._observed.weight[tests, None]
        tables *= weight
        return tables

    def severities(self, *penetrances: float) -> list[Floats]:
        """Return the log likelihood ratios of each operation's tests at its likeliest small, medium
        and large slowdown, for each penetrance.

        Each array has zeros for the tests of other operations, since a cause may slow one operation
        alone.
        """
        tables = list[Floats]()
        collective = self._observed.collective
        layers = self.ratios(*penetrances)
        # The last column is for a cause that makes tests fail
        layers = layers[:, :, :-1]
        for ratios, operation in product(layers, np.unique(collective)):
            is_of_operation = collective == operation
            of_operation = np.where(is_of_operation[:, None], ratios, 0.0)
            tables += _at_severities(of_operation)
        return tables

    def _density(self, slowdown: Floats, tests: Ints) -> Floats:
        """Return the density of the values of `tests`, given a slowdown, or several (columns), of
        each.
        """
        value = self._observed.value[tests]
        scale = self._observed.scale[tests]
        stray = self.stray[tests]
        if slowdown.ndim > 1:
            value = value[:, None]
            scale = scale[:, None]
            stray = stray[:, None]
        width = width_of(scale, slowdown)
        usual = _normal(value + slowdown, width)
        return (1 - self.strays) * usual + self.strays * stray


def _of_failures(failed: Bools, fails: Floats) -> tuple[Floats, Floats]:
    """Return the log likelihood ratios of a failure for causes that slow tests, and of each test
    for causes that make tests fail.

    `fails` is the probability that a test fails without the cause.
    """
    # A cause that slows tests makes some time out
    fails_if_slow = np.minimum(0.5, _FAILS_IF_SLOW * fails)
    slows = np.log(fails_if_slow / fails).clip(min=0)
    fails_if_dead = np.log(FAILS_IF_DEAD / fails)
    passes_if_dead = np.log(1 - FAILS_IF_DEAD)
    dead = np.where(failed, fails_if_dead, passes_if_dead)
    return slows, dead.clip(max=_MOST_BY_FAILURE)


def _at_severities(ratios: Floats) -> Iterator[Floats]:
    """Yield the column at the likeliest small, medium and large slowdown, if its gain is large
    enough.
    """
    raised = ratios.clip(min=0)
    gain = raised.sum(axis=0)
    for first, last in _SEVERITIES:
        likeliest = np.argmax(gain[first:last])
        best = first + int(likeliest)
        if gain[best] > _LEAST_GAIN:
            yield ratios[:, best]


def width_of(scale: Floats, slowdown: Floats) -> Floats:
    """Return the standard deviation of slowed tests: the noise combined with the spread of the
    slowdown.
    """
    spread = _SPREAD * slowdown
    return np.sqrt(scale**2 + spread**2)


def _groups(observed: Observed, tests: Bools) -> float:
    """Return the number of tests, counting all tests of the same nodes as one."""
    return float(observed.share[tests].sum())


def _share_of_strays(observed: Observed, odd: Bools) -> float:
    """Return the estimated share of strays; `odd` is the mask of slow tests without a
    known cause.
    """
    # The prior counts as `_STRAY_TESTS` more tests
    strays = _groups(observed, odd) + _STRAYS * _STRAY_TESTS
    tests = _groups(observed, observed.compared) + _STRAY_TESTS
    return float(np.clip(strays / tests, _LEAST_STRAYS, 0.5))


def _stray_density(observed: Observed, odd: Bools) -> Floats:
    """Return the density of each test as a stray, fitted to the `odd` tests."""
    wide = np.full(len(odd), _WIDE)
    if _groups(observed, odd) < 5:
        return wide
    # The odd tests have similar values
    centre = float(np.median(observed.value[odd]))
    width = np.abs(centre) * _SPREAD + 0.03
    near = _normal(observed.value - centre, width)
    return 0.5 * wide + 0.5 * near


def _normal(distance: Floats, width: Floats | float) -> Floats:
    """Return the normal density at a distance from the mean, with standard deviation `width`."""
    height = np.exp(-0.5 * (distance / width) ** 2)
    area = width * np.sqrt(2 * np.pi)
    density: Floats = height / area
    return density


def log_mean(values: Floats, weights: Floats) -> Floats:
    """Return the log of the weighted mean of exp(values), by row."""
    # Against overflow
    top = values.max(axis=1)
    relative = np.exp(values - top[:, None])
    terms = relative * weights
    total = terms.sum(axis=1)
    mean: Floats = top + np.log(total + 1e-300)
    return mean
