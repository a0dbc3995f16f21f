"""One effect: the cause of slow tests that is likeliest, of all that may be. Pure.

    share(c) = prior(c) BF(c) / (1 + sum over all causes k of prior(k) BF(k))
    BF(c)    = product over operations of 1 - q + q times the mean over slowdowns d of
               product over kinds of like tests of e + (1 - e) times
               product over tests t of c of p(t | d) / p(t | no such cause)

A cause slows an operation with probability q, and at least one. Of a kind of tests all may be slow,
with probability e (`Levels`). A test is as slow as the worst of its causes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.localize.causes import PENETRANCES, Cause, CauseKind, Column
from seatrial.localize.likelihood import FAILS_IF_DEAD, SLOWDOWNS, Likelihood, log_mean
from seatrial.localize.observations import Bools, Floats, Ints, Observed

_SHOWN = 0.01  # the share from which a cause is told
_MAY_KILL = ("node", "gpu", "socket", "link")
_DEAD = 0.1  # of faults of those parts, those that make tests fail
_SLOWS = np.array([1 / len(SLOWDOWNS)] * len(SLOWDOWNS) + [0.0])
_SLOWS_OR_KILLS = np.append((1 - _DEAD) * _SLOWS[:-1], _DEAD)
_ACTS = 0.5  # the probability that a cause slows one of several operations
_COVERED = 2.0  # times its noise, of a test that known causes slow


@dataclass(frozen=True, slots=True)
class Effect:
    """One of the causes of slow tests: which it is, with shares that add up to one with that of
    `none`.

    Those that differ from the first in the nodes that are `unsure` alone count with it.
    """

    causes: tuple[Cause, ...]
    shares: tuple[float, ...]
    none: float
    explained: Floats  # of each test, the log slowdown that follows
    fails: Floats  # of each test, the probability of failing that follows
    unsure: frozenset[str] = frozenset()

    @property
    def parts(self) -> dict[tuple[CauseKind, str], float]:
        """The shares by the part that is blamed."""
        shares: dict[tuple[CauseKind, str], float] = {}
        for cause, share in zip(self.causes, self.shares, strict=True):
            shares[cause.key] = shares.get(cause.key, 0.0) + share
        return shares


class Design:
    """The columns as flat arrays: one entry for each cause and test, in runs of one cause and one
    kind of like tests.

    Runs of one operation lie side by side, and are a part: what a cause does to one operation.

    Of each entry, `test` is its test, `place` where that is among the tests that are `used`, and
    `layer` the number of the penetrance of its cause. Of each run, `starts` is its first entry, and
    `run_like` its kind of like tests. Of each part, `part_starts` is its first run, `part_cause`
    its cause, and `weights` how likely its cause slows tests by each of the slowdowns, or makes
    them fail. `log_prior` is that of each cause.
    """

    def __init__(self, candidates: Sequence[Column], observed: Observed) -> None:
        self.columns = tuple(candidates)
        self.observed = observed
        test = np.concatenate([column.tests for column in candidates])
        cause = np.repeat(np.arange(len(candidates)), [len(column.tests) for column in candidates])
        operations = int(observed.collective.max()) + 1
        kinds = len(observed.like_sizes)
        part = cause * operations + observed.collective[test]
        run = part * kinds + observed.like[test]
        order = np.argsort(run, kind="stable")
        self.test = test[order]
        run = run[order]
        self.used = np.unique(self.test)  # the tests that a cause may have slowed
        self.place = np.searchsorted(self.used, self.test)
        self.starts = np.flatnonzero(np.diff(run, prepend=-1))
        self.run_like = run[self.starts] % kinds
        part = run[self.starts] // kinds
        self.part_starts = np.flatnonzero(np.diff(part, prepend=-1))  # in runs
        self.part_cause = part[self.part_starts] // operations
        causes = [column.cause for column in candidates]
        penetrance = np.array([PENETRANCES.index(cause.penetrance) for cause in causes])
        cause_of_entry = run // kinds // operations
        self.layer = penetrance[cause_of_entry]
        self.log_prior = np.array([cause.log_prior for cause in causes])
        kills = np.array([cause.kind in _MAY_KILL for cause in causes])
        may_kill = kills[self.part_cause][:, None]
        self.weights = np.where(may_kill, _SLOWS_OR_KILLS, _SLOWS)

    def doubts(self, base: Floats) -> Floats:
        """Return the probability that a run's tests show nothing: faults, with those of `base`,
        slow all alike.
        """
        observed = self.observed
        levels = observed.levels
        shown = observed.compared
        free = shown & (base < _COVERED * observed.scale)
        number = self._by_run(shown)
        sizes = observed.like_sizes[self.run_like].clip(min=1)
        without = 1 - number / sizes
        doubt = levels.doubt(self.run_like, without)
        has_clear_test_beside = self._like(levels.clear) > self._by_run(levels.clear)
        # Clear nodes show that the level of these tests is not that of a fault
        doubt[has_clear_test_beside] = 0.0
        is_all = (self._by_run(free) == self._like(free)) & (number > 0)
        return np.where(levels.flat[self.run_like] & is_all, 1.0, doubt)

    def _by_run(self, some: Bools) -> Ints:
        """Return how many of some tests each run has."""
        return np.add.reduceat(some[self.test], self.starts, dtype=np.int64)

    def _like(self, some: Bools) -> Ints:
        """Return for each run how many of some tests are like those in it."""
        kinds = len(self.observed.like_sizes)
        by_kind = np.bincount(self.observed.like[some], minlength=kinds)
        number: Ints = by_kind[self.run_like]
        return number


def worst_of(effects: Sequence[Effect], tests: int) -> tuple[Floats, Floats]:
    """Return the worst log slowdown and probability of failing of each test by any effect."""
    slowdown = np.zeros(tests)
    fails = np.zeros(tests)
    for effect in effects:
        slowdown = np.maximum(slowdown, effect.explained)
        fails = np.maximum(fails, effect.fails)
    return slowdown, fails


def weights_of(design: Design, likelihood: Likelihood) -> tuple[Floats, Floats, Floats]:
    """Return, for each cause, the log of prior times Bayes factor, and sums and log likelihood
    ratios of its tests.
    """
    penetrances = PENETRANCES[: design.layer.max() + 1]
    layers = likelihood.ratios(*penetrances, tests=design.used)
    sums = np.add.reduceat(layers[design.layer, design.place], design.starts, axis=0)
    doubt = design.doubts(likelihood.base)[:, None]
    # log of e + (1 - e) times the ratio of all tests of a run
    with np.errstate(divide="ignore"):
        shown = np.log(1 - doubt) + sums
        mixed = np.logaddexp(np.log(doubt), shown)
    tempered = np.where(doubt > 0, mixed, sums)
    parts = np.add.reduceat(tempered, design.part_starts, axis=0)
    factor = _of_operations(log_mean(parts, design.weights), design)
    return design.log_prior + factor, parts, layers


def _of_operations(log_factors: Floats, design: Design) -> Floats:
    """Return the log Bayes factor of each cause from those of its operations, of which it slows at
    least one.
    """
    log_spared = np.log(1 - _ACTS)
    number = np.bincount(design.part_cause, minlength=len(design.columns))
    several = number[design.part_cause] > 1
    mixed = np.logaddexp(log_spared, np.log(_ACTS) + log_factors)
    factors = np.where(several, mixed, log_factors)
    total = np.bincount(design.part_cause, factors, len(design.columns))
    none = number * log_spared
    # That it slows none of them is left out, of the sum and of the prior
    share_of_none = np.exp(np.minimum(none - total, 0))
    with np.errstate(divide="ignore"):
        some = total + np.log1p(-share_of_none) - np.log1p(-np.exp(none))
    return np.where(number > 1, some, total)


def single_effect(design: Design, likelihood: Likelihood, log_none: float = 0.0) -> Effect:
    """Weigh every cause as the only one besides what is explained already."""
    weight, sums, layers = weights_of(design, likelihood)
    top = max(float(weight.max()), log_none)
    weights = np.exp(weight - top)
    none = float(np.exp(log_none - top))
    total = float(weights.sum()) + none
    shares = weights / total
    shown = np.flatnonzero(shares >= _SHOWN)
    likeliest_first = shown[np.argsort(-shares[shown], kind="stable")]
    explained, fails = explained_by(design, sums, layers, int(np.argmax(shares)))
    return Effect(
        causes=tuple(design.columns[i].cause for i in likeliest_first),
        shares=tuple(shares[likeliest_first].tolist()),
        none=none / total,
        explained=explained,
        fails=fails,
    )


def explained_by(design: Design, sums: Floats, layers: Floats, cause: int) -> tuple[Floats, Floats]:
    """Return, for each test, the log slowdown and the probability of failing that follow from the
    likeliest cause.
    """
    explained = np.zeros(len(design.observed.tests))
    fails = explained.copy()
    penetrance = design.columns[cause].cause.penetrance
    starts = design.starts[design.part_starts]
    ends = np.append(starts[1:], len(design.test))
    parts = np.flatnonzero(design.part_cause == cause)
    for part in parts:
        if len(parts) > 1 and log_mean(sums[[part]], design.weights[[part]])[0] < 0:
            continue  # it does not slow this operation
        entries = slice(starts[part], ends[part])
        tests = design.test[entries]
        # The probability of each slowdown, given the tests
        relative = np.exp(sums[part] - sums[part].max())
        weight = relative * design.weights[part]
        weight /= weight.sum()
        dead = weight[-1]
        fails[tests] = dead * FAILS_IF_DEAD
        if dead >= 0.5:
            continue
        # The probability that the cause has affected a test: where the ratio is least, it has not
        log_ratio = layers[design.layer[entries], design.place[entries]] @ weight
        spared = 1 - penetrance
        affected = 1 - spared / np.exp(np.maximum(log_ratio, np.log(spared)))
        slowdown = weight[:-1] @ SLOWDOWNS
        explained[tests] = affected * slowdown / max(1 - dead, 1e-9)
    return explained, fails
