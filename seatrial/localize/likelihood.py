"""How likely a test's value is if a cause slows it, against if none does. Pure."""

from copy import copy

import numpy as np

from seatrial.localize.observations import Floats, Ints, Observed

# Log slowdowns that a cause may have: from 3 %, which people care about, to a twentieth, in steps of a third.
SLOWDOWNS = 0.031 * 1.35 ** np.arange(16)
_SEVERITIES = ((0, 5), (5, 11), (11, 16))  # of them, up to 10 % and up to a half, for which parts are sought
_LEAST_GAIN = 4.0  # log likelihood, without which nothing is sought
_SPREAD = 0.2  # of the slowdown: one cause does not slow all of its tests alike
_STRAYS, _STRAY_TESTS = 0.02, 50  # the share of tests slow for a reason of their own, known as from that many tests
_LEAST_STRAYS = 0.01
SHARES = ((0.01, 0.6), (0.06, 0.35), (0.3, 0.05))  # of strays, each with its prior
_WIDE = 1 / 4.5  # density of a stray's value: anything is as likely
_FAILS, FAILS_IF_DEAD, _FAILS_IF_SLOW = 0.05, 0.9, 3.0  # a share, a share, and how many times as often


class Likelihood:
    """Densities of the tests' values, given what other causes explain already.

    A value is normal around what the causes of its test leave of the speed, or with probability `strays` that of a
    stray. Where strays lie and the share of tests that fail are fitted to what nothing explains (empirical Bayes):
    many failed tests without a pattern are then no proof of any cause.
    """

    def __init__(self, observed: Observed, base: Floats, fails: Floats) -> None:
        """`base` is the log slowdown that is explained already, `fails` the probability of failing."""
        self._observed, self.base, self._explained_fails = observed, base, fails
        known = ~observed.failed & ~observed.alone
        others = observed.failed[fails < 0.5]
        self._fails = np.maximum(fails, np.clip(others.sum() / max(1, len(others)), _FAILS, FAILS_IF_DEAD))
        odd = known & (observed.value + base < -3 * width_of(observed.scale, base))
        count, of = float(observed.share[odd].sum()), float(observed.share[known].sum())  # as groups of nodes
        share = (count + _STRAYS * _STRAY_TESTS) / (of + _STRAY_TESTS)
        self.strays = float(np.clip(share, _LEAST_STRAYS, 0.5))
        self._stray = np.full(len(base), _WIDE)
        if count >= 5:  # they lie together
            centre = float(np.median(observed.value[odd]))
            self._stray = 0.5 * self._stray + 0.5 * _normal(observed.value - centre, np.abs(centre) * _SPREAD + 0.03)
        self._weigh()

    def _weigh(self) -> None:
        observed = self._observed
        self._faster: tuple[Floats, Floats] | None = None
        self._usual = self._density(self.base, np.arange(len(self.base)))
        usual = np.log(np.where(observed.failed, self._fails, (1 - self._fails) * self._usual))
        self.log_total = float((observed.weight * usual)[~observed.alone].sum())

    def with_strays(self, share: float, where: "Likelihood | None" = None) -> "Likelihood":
        """The same with another share of strays and of failures; strays lie where they lie in `where`."""
        other = copy(self)
        other.strays = share
        other._fails = np.maximum(self._explained_fails, max(_FAILS, share))
        other._stray = where._stray if where else self._stray
        other._weigh()
        return other

    @property
    def tests(self) -> int:
        """How many there are."""
        return len(self.base)

    def ratios(self, *penetrances: float, tests: Ints | None = None) -> Floats:
        """Log likelihood ratio of each test for each slowdown, and last for a cause that makes tests fail.

        One table for each of the probabilities `penetrances` with which a cause affects its tests. Default: all tests.
        """
        tests = np.arange(self.tests) if tests is None else tests
        slowed = np.maximum(self.base[tests, None], SLOWDOWNS[None, :])
        affected = self._density(slowed, tests) / self._usual[tests, None]
        failed, fails = self._observed.failed[tests], self._fails[tests]
        tables = np.zeros((len(penetrances), len(tests), len(SLOWDOWNS) + 1))
        failing = np.log(np.minimum(0.5, _FAILS_IF_SLOW * fails) / fails).clip(min=0)
        dead = np.where(failed, np.log(FAILS_IF_DEAD / fails), np.log(1 - FAILS_IF_DEAD))
        for table, penetrance in zip(tables, penetrances, strict=True):
            values = np.log(penetrance * affected + 1 - penetrance)
            table[:, :-1] = np.where(failed[:, None], penetrance * failing[:, None], values)
            table[:, -1] = dead.clip(max=3.0)
        tables[:, self._observed.alone[tests]] = 0
        tables *= self._observed.weight[tests, None]
        return tables

    def faster(self) -> tuple[Floats, Floats]:
        """Log likelihood ratio of each test if the level of its like is that of slowed ones, by each slowdown.

        A test that nothing slows is then faster than the level by as much. Last are the sums over like tests.
        """
        if self._faster:
            return self._faster
        tests = np.arange(self.tests)
        ratios = np.log(self._density(np.broadcast_to(-SLOWDOWNS, (self.tests, len(SLOWDOWNS))), tests))
        ratios -= np.log(self._usual)[:, None]
        ratios[self._observed.failed | self._observed.alone] = 0
        ratios *= self._observed.weight[:, None]
        order = np.argsort(self._observed.like, kind="stable")
        starts = np.searchsorted(self._observed.like[order], np.arange(len(self._observed.like_sizes)))
        self._faster = ratios, np.add.reduceat(ratios[order], starts, axis=0)
        return self._faster

    def severities(self, penetrance: float) -> list[Floats]:
        """The log likelihood ratios of the tests of one operation at its likeliest little, medium and large slowdown.

        Those of other tests are zero, since a cause may slow one operation alone.
        """
        ratios = self.ratios(penetrance)[0, :, :-1]
        found = []
        for operation in np.unique(self._observed.collective):
            of_operation = np.where((self._observed.collective == operation)[:, None], ratios, 0.0)
            gain = of_operation.clip(min=0).sum(axis=0)
            best = [first + int(np.argmax(gain[first:last])) for first, last in _SEVERITIES]
            found += [of_operation[:, slowdown] for slowdown in best if gain[slowdown] > _LEAST_GAIN]
        return found

    def _density(self, slowdown: Floats, tests: Ints) -> Floats:
        """Of those tests, for the slowdown of each or for several of them."""
        whole = (tests, None) if slowdown.ndim > 1 else tests
        value, stray = self._observed.value[whole], self._stray[whole]
        width = width_of(self._observed.scale[whole], slowdown)
        return (1 - self.strays) * _normal(value + slowdown, width) + self.strays * stray


def width_of(scale: Floats, slowdown: Floats) -> Floats:
    """The scatter of tests that are slowed: that of the others, and the spread of the slowdown."""
    return np.sqrt(scale**2 + (_SPREAD * slowdown) ** 2)


def _normal(distance: Floats, width: Floats | float) -> Floats:
    density: Floats = np.exp(-0.5 * (distance / width) ** 2) / (width * np.sqrt(2 * np.pi))
    return density


def log_mean(values: Floats, weights: Floats) -> Floats:
    """The log of the weighted mean of exp(values), by row."""
    top = values.max(axis=1)
    mean: Floats = top + np.log((np.exp(values - top[:, None]) * weights).sum(axis=1) + 1e-300)
    return mean
