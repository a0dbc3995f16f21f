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

from seatrial.localize.cause import PENETRANCES, Cause, Key
from seatrial.localize.design import Design
from seatrial.localize.likelihood import FAILS_IF_DEAD, SLOWDOWNS, Likelihood, log_mean, width_of
from seatrial.localize.observations import Bools, Floats, Ints, Observed

_SHOWN = 0.01  # least share of a cause that is reported
_MAY_TIME_OUT = 0.3  # from this log slowdown on, a cause also explains failures, as timeouts
_ACTS = 0.5  # the probability that a cause slows one of several operations


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect: causes that exclude each other, with their shares; these and `none` add up to
    one.

    Causes that differ from the likeliest one only in the nodes `unsure` are counted with it.
    """

    causes: tuple[Cause, ...]
    shares: tuple[float, ...]
    none: float
    explained: Floats  # log slowdown of each test by this effect
    fails: Floats  # probability that each test fails by this effect
    unsure: frozenset[str] = frozenset()

    @property
    def likeliest(self) -> Cause:
        """The cause with the largest share."""
        return self.causes[0]

    @property
    def confidence(self) -> float:
        """The share of the likeliest part."""
        return max(self.parts.values())

    @property
    def parts(self) -> dict[Key, float]:
        """The share of each part that may be to blame, by its key."""
        shares: dict[Key, float] = {}
        for cause, share in zip(self.causes, self.shares, strict=True):
            before = shares.get(cause.key, 0.0)
            shares[cause.key] = before + share
        return shares


@dataclass(frozen=True, slots=True)
class Weights:
    """How well each cause of a design explains the tests.

    log_weights: of each cause, the log of prior times Bayes factor.
    sums: of each part and slowdown, the log likelihood ratio of its tests.
    layers: of each penetrance, test and slowdown, the log likelihood ratio.
    """

    design: Design
    log_weights: Floats
    sums: Floats
    layers: Floats


def worst_of(effects: Sequence[Effect], tests: int) -> tuple[Floats, Floats]:
    """Return the largest log slowdown and failure probability of each test over all effects."""
    slowdown = np.zeros(tests)
    fails = np.zeros(tests)
    for effect in effects:
        slowdown = np.maximum(slowdown, effect.explained)
        fails = np.maximum(fails, effect.fails)
    return slowdown, fails


def unexplained(effects: Sequence[Effect], observed: Observed, limit: float = 3.0) -> Bools:
    """Return the mask of tests that are slower than the effects explain, or that fail without such
    an effect.

    A test is slow by `limit` times its noise.
    """
    explained, fails = worst_of(effects, len(observed.tests))
    noise = width_of(observed.scale, explained)
    slow = observed.slow & (observed.value + explained < -limit * noise)
    # A test is explained if known causes account for a third of its slowdown
    slow &= explained < -observed.value / 3
    failed = observed.failed & (fails < 0.5)
    failed &= explained < _MAY_TIME_OUT
    odd: Bools = slow | failed
    return odd


def likelihood_beside(effects: Sequence[Effect], observed: Observed) -> Likelihood:
    """Return the likelihood of the tests, given some effects."""
    explained, fails = worst_of(effects, len(observed.tests))
    return Likelihood(observed, explained, fails)


def weights_of(design: Design, likelihood: Likelihood) -> Weights:
    """Weigh each cause of a design."""
    # Without intermittent causes one table is enough
    highest = design.layer.max()
    penetrances = PENETRANCES[: highest + 1]
    layers = likelihood.ratios(*penetrances, tests=design.used)
    ratios = layers[design.layer, design.place]
    of_runs = np.add.reduceat(ratios, design.starts, axis=0)
    doubt = design.doubts(likelihood.base)
    tempered = _tempered(of_runs, doubt[:, None])
    sums = np.add.reduceat(tempered, design.part_starts, axis=0)
    of_operations = log_mean(sums, design.weights)
    log_factors = _of_operations(of_operations, design)
    return Weights(design, design.log_prior + log_factors, sums, layers)


def _tempered(sums: Floats, doubt: Floats) -> Floats:
    """Return log(doubt + (1 - doubt) * exp(sums)): the ratio of a run, allowing for tests that show
    nothing.
    """
    # Where there is no doubt, its log is not used
    with np.errstate(divide="ignore"):
        log_doubt = np.log(doubt)
        shown = np.log(1 - doubt) + sums
        mixed = np.logaddexp(log_doubt, shown)
    return np.where(doubt > 0, mixed, sums)


def _of_operations(log_factors: Floats, design: Design) -> Floats:
    """Return the log Bayes factor of each cause from its factors for each operation, of which it
    slows at least one.
    """
    log_spared = np.log(1 - _ACTS)
    cause = design.part_cause
    operations = np.bincount(cause, minlength=len(design.causes))
    several = operations > 1
    slowed = np.log(_ACTS) + log_factors
    mixed = np.logaddexp(log_spared, slowed)
    factors = np.where(several[cause], mixed, log_factors)
    total = np.bincount(cause, factors, len(design.causes))
    # The case that it slows none of them is excluded, from the sum and from the prior
    log_none = operations * log_spared
    share_of_none = np.exp(np.minimum(log_none - total, 0))
    with np.errstate(divide="ignore"):
        log_some = total + np.log1p(-share_of_none)
        log_prior_of_some = np.log1p(-np.exp(log_none))
    factor_of_some = log_some - log_prior_of_some
    return np.where(several, factor_of_some, total)


def single_effect(design: Design, likelihood: Likelihood, log_none: float = 0.0) -> Effect:
    """Weigh every cause as the only one in addition to those already explained."""
    weighed = weights_of(design, likelihood)
    log_weights = weighed.log_weights
    # Against overflow
    top = max(float(log_weights.max()), log_none)
    weights = np.exp(log_weights - top)
    none = float(np.exp(log_none - top))
    total = float(weights.sum()) + none
    shares = weights / total
    shown = _likeliest_first(shares)
    likeliest = int(np.argmax(shares))
    explained, fails = explained_by(weighed, likeliest)
    return Effect(
        causes=tuple(design.causes[i] for i in shown),
        shares=tuple(shares[shown].tolist()),
        none=none / total,
        explained=explained,
        fails=fails,
    )


def _likeliest_first(shares: Floats) -> Ints:
    """Return the indices of the causes with a share of at least `_SHOWN`, largest share first."""
    shown = np.flatnonzero(shares >= _SHOWN)
    order = np.argsort(-shares[shown], kind="stable")
    return shown[order]


def explained_by(weighed: Weights, cause: int) -> tuple[Floats, Floats]:
    """Return, for each test, the log slowdown and the failure probability due to the cause."""
    design = weighed.design
    explained = np.zeros(len(design.observed.tests))
    fails = explained.copy()
    starts = design.starts[design.part_starts]
    ends = np.append(starts[1:], len(design.test))
    for part in _slowed_parts(weighed, cause):
        entries = slice(starts[part], ends[part])
        tests = design.test[entries]
        shares = _shares_of_slowdowns(weighed.sums[part], design.weights[part])
        dead = shares[-1]
        fails[tests] = dead * FAILS_IF_DEAD
        # Tests that fail have no speed
        if dead >= 0.5:
            continue
        layer = design.layer[entries]
        place = design.place[entries]
        ratios = weighed.layers[layer, place]
        affected = _affected(ratios @ shares, design.causes[cause])
        slowdown = shares[:-1] @ SLOWDOWNS
        alive = max(1 - dead, 1e-9)
        explained[tests] = affected * slowdown / alive
    return explained, fails


def _slowed_parts(weighed: Weights, cause: int) -> Ints:
    """Return the indices of the parts of a cause whose operations it slows."""
    design = weighed.design
    parts = np.flatnonzero(design.part_cause == cause)
    # A cause slows at least one operation
    if len(parts) == 1:
        return parts
    log_factors = log_mean(weighed.sums[parts], design.weights[parts])
    return parts[log_factors >= 0]


def _shares_of_slowdowns(sums: Floats, weights: Floats) -> Floats:
    """Return the probability of each slowdown, given the tests of a part."""
    top = sums.max()
    relative = np.exp(sums - top)
    shares: Floats = relative * weights
    shares /= shares.sum()
    return shares


def _affected(log_ratio: Floats, cause: Cause) -> Floats:
    """Return the probability that a cause affected each test; 0 where the likelihood ratio is
    lowest.
    """
    spared = 1 - cause.penetrance
    least = np.log(spared)
    ratio = np.exp(np.maximum(log_ratio, least))
    affected: Floats = 1 - spared / ratio
    return affected
