"""How likely a test's value is if a cause slows it, against if none does. Pure."""

from itertools import product

import numpy as np

from seatrial.localize.causes import ALWAYS
from seatrial.localize.observations import Bools, Floats, Ints, Observed

# Log slowdowns that a cause may have: from 3 %, which people care about, to a twentieth, in steps
# of a third.
SLOWDOWNS = 0.031 * 1.35 ** np.arange(16)
# Ranges of SLOWDOWNS, up to 10 %, up to a half and above, for which parts are sought
_SEVERITIES = ((0, 5), (5, 11), (11, 16))
# Probabilities with which a cause slows its tests, for which parts are sought
SOUGHT = (ALWAYS, 0.5)
_LEAST_GAIN = 4.0  # log likelihood, without which nothing is sought
_SPREAD = 0.2  # of the slowdown: one cause does not slow all of its tests alike
_STRAYS = 0.02  # the share of tests slow for a reason of their own
_STRAY_TESTS = 50  # that share is known as from so many
_LEAST_STRAYS = 0.01
_WIDE = 1 / 4.5  # density of a stray's value: anything is as likely
_FAILS = 0.05  # the share of tests that fail for a reason of their own, at the least
FAILS_IF_DEAD = 0.9  # the share of tests of a cause that makes them fail
_FAILS_IF_SLOW = 3.0  # times as often as others


class Likelihood:
    """Densities of the tests' values, given what other causes explain already.

    A value is normal around what the causes of its test leave of the speed, or with probability
    `strays` that of a stray. The share of strays, where they lie, and the share of tests that fail
    are fitted to what nothing explains (empirical Bayes): many slow or failed tests without a
    pattern are then no proof of any cause.

    Of each test, `base` is the log slowdown that other causes explain, `stray` the density of its
    value as a stray, `_fails` the probability that it fails without a further cause, and `_usual`
    the density of its value without one. `log_total` is the log probability of all tests so.
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

        `base` is the log slowdown that is explained already, `fails` the probability of failing.
        Strays are fitted to what those two of `fitted` leave unexplained; default: to what `base`
        and `fails` do. `stray` is the density of each test as a stray; default: fitted as well.
        """
        self._observed = observed
        self.base = base
        known = observed.compared
        explained, failing = fitted or (base, fails)
        others = observed.failed[failing < 0.5]
        share_failed = float(others.sum()) / max(1, len(others))
        self._fails = np.maximum(fails, max(_FAILS, share_failed))
        odd = known & (observed.value + explained < -3 * width_of(observed.scale, explained))
        # As groups of nodes
        count = float(observed.share[odd].sum())
        of = float(observed.share[known].sum())
        share = (count + _STRAYS * _STRAY_TESTS) / (of + _STRAY_TESTS)
        self.strays = float(np.clip(share, _LEAST_STRAYS, 0.5))
        self.stray = _stray_density(observed, odd, count) if stray is None else stray
        self._usual = self._density(base, np.arange(len(base)))
        passed = (1 - self._fails) * self._usual
        usual = np.log(np.where(observed.failed, self._fails, passed))
        self.log_total = float((observed.weight * usual)[~observed.alone].sum())

    def ratios(self, *penetrances: float, tests: Ints | None = None) -> Floats:
        """Return the log likelihood ratio of each test for each slowdown, and last for a cause that
        makes tests fail.

        One table for each of the probabilities `penetrances` with which a cause affects its tests.
        Default: all tests.
        """
        if tests is None:
            tests = np.arange(len(self.base))
        slowed = np.maximum(self.base[tests, None], SLOWDOWNS[None, :])
        # Of values, the ratio of their densities with and without the cause
        affected = self._density(slowed, tests) / self._usual[tests, None]
        failed = self._observed.failed[tests]
        fails = self._fails[tests]
        # Of failures: a cause that slows tests makes some time out, and one may make most fail
        failing = np.log(np.minimum(0.5, _FAILS_IF_SLOW * fails) / fails).clip(min=0)
        dead = np.where(failed, np.log(FAILS_IF_DEAD / fails), np.log(1 - FAILS_IF_DEAD))
        tables = np.zeros((len(penetrances), len(tests), len(SLOWDOWNS) + 1))
        for table, penetrance in zip(tables, penetrances, strict=True):
            values = np.log(penetrance * affected + 1 - penetrance)
            table[:, :-1] = np.where(failed[:, None], penetrance * failing[:, None], values)
            table[:, -1] = dead.clip(max=3.0)
        tables[:, self._observed.alone[tests]] = 0
        tables *= self._observed.weight[tests, None]
        return tables

    def severities(self, *penetrances: float) -> list[Floats]:
        """Return the log likelihood ratios of an operation's tests at its likeliest small, medium
        and large slowdown.

        Those of other tests are zero, since a cause may slow one operation alone. Those of each
        penetrance follow.
        """
        tables = []
        collective = self._observed.collective
        for ratios, operation in product(self.ratios(*penetrances), np.unique(collective)):
            is_of_operation = (collective == operation)[:, None]
            of_operation = np.where(is_of_operation, ratios[:, :-1], 0.0)
            gain = of_operation.clip(min=0).sum(axis=0)
            for first, last in _SEVERITIES:
                best = first + int(np.argmax(gain[first:last]))
                if gain[best] > _LEAST_GAIN:
                    tables.append(of_operation[:, best])
        return tables

    def _density(self, slowdown: Floats, tests: Ints) -> Floats:
        """Return the density of those tests, for the slowdown of each or for several of them."""
        value = self._observed.value[tests]
        scale = self._observed.scale[tests]
        stray = self.stray[tests]
        if slowdown.ndim > 1:
            value = value[:, None]
            scale = scale[:, None]
            stray = stray[:, None]
        usual = _normal(value + slowdown, width_of(scale, slowdown))
        return (1 - self.strays) * usual + self.strays * stray


def width_of(scale: Floats, slowdown: Floats) -> Floats:
    """Return the scatter of tests that are slowed: that of the others, and the spread of the
    slowdown.
    """
    return np.sqrt(scale**2 + (_SPREAD * slowdown) ** 2)


def _stray_density(observed: Observed, odd: Bools, count: float) -> Floats:
    """Return the density of each test as a stray, of which those that are `odd` show where they
    lie.
    """
    wide = np.full(len(odd), _WIDE)
    if count < 5:
        return wide
    # They lie together
    centre = float(np.median(observed.value[odd]))
    near = _normal(observed.value - centre, np.abs(centre) * _SPREAD + 0.03)
    return 0.5 * wide + 0.5 * near


def _normal(distance: Floats, width: Floats | float) -> Floats:
    """Return the density of normal values at a distance from their mean."""
    height = np.exp(-0.5 * (distance / width) ** 2)
    density: Floats = height / (width * np.sqrt(2 * np.pi))
    return density


def log_mean(values: Floats, weights: Floats) -> Floats:
    """Return the log of the weighted mean of exp(values), by row."""
    top = values.max(axis=1)
    terms = np.exp(values - top[:, None]) * weights
    mean: Floats = top + np.log(terms.sum(axis=1) + 1e-300)
    return mean
