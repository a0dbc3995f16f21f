"""The posterior over few causes of many slow tests. Pure.

Group testing with continuous, noisy results (Dorfman, 1943; adaptive and Bayesian: Aldridge, Johnson and Scarlett,
"Group Testing: An Information Theory Perspective", 2019, chapters 3 and 4). The causes are a sum of single effects
(SuSiE; Wang, Sarkar, Carbonetto and Stephens, J. R. Stat. Soc. B 82, 2020): each effect is exactly one cause or none,
so where tests cannot separate two causes, the shares of both add up to one.

    share(c) = prior(c) BF(c) / (1 + sum over all causes k of prior(k) BF(k))
    BF(c)    = product over collectives of the mean over slowdowns d of
               product over tests t of c of p(t | d) / p(t | no such cause)

A test is as slow as the worst of its causes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.localize.causes import ALWAYS, PENETRANCES, Cause, Column, columns, cut_columns
from seatrial.localize.cut import best_side
from seatrial.localize.likelihood import FAILS_IF_DEAD, SLOWDOWNS, Likelihood, log_mean, width_of
from seatrial.localize.observations import Bools, Floats, Ints, Observed

_MOST_EFFECTS, _SWEEPS, _SHOWN = 12, 3, 0.01
_DEAD = 0.1  # of faults of a node, GPU or link, those that make tests fail
_SLOWS = np.array([1 / len(SLOWDOWNS)] * len(SLOWDOWNS) + [0.0])
_SLOWS_OR_KILLS = np.append((1 - _DEAD) * _SLOWS[:-1], _DEAD)
_HOPELESS = 0.95
LEAST_OF_A_CUT = 4  # slow tests across


@dataclass(frozen=True, slots=True)
class Effect:
    """One of the causes of slow tests: which it is, with shares that add up to one with that of `none`."""

    causes: tuple[Cause, ...]
    shares: tuple[float, ...]
    none: float
    explained: Floats  # of each test, the log slowdown that follows
    fails: Floats  # of each test, the probability of failing that follows


@dataclass(frozen=True, slots=True)
class Posterior:
    """The effects, the likeliest first, and the tests that they do not explain."""

    observed: Observed
    effects: tuple[Effect, ...]
    columns: tuple[Column, ...]

    def unexplained(self, without: Effect | None = None, limit: float = 3.0) -> Bools:
        """Slow tests, slower than the effects account for by `limit` times their noise, and failed ones.

        The effect `without` does not count.
        """
        effects = [effect for effect in self.effects if effect is not without]
        explained, fails = _worst(effects, len(self.observed.tests))
        rest = self.observed.value + explained < -limit * width_of(self.observed.scale, explained)
        odd: Bools = (self.observed.slow & rest) | (self.observed.failed & (fails < 0.5))
        return odd

    def tests_of(self, cause: Cause) -> Ints:
        return next(column.tests for column in self.columns if column.cause == cause)


class _Design:
    """The columns as flat arrays: one entry for each cause and test, in runs of one cause and one collective."""

    def __init__(self, found: Sequence[Column], collective: Ints) -> None:
        self.columns, self._collective = tuple(found), collective
        cause = np.concatenate([np.full(len(c.tests), i) for i, c in enumerate(found)]).astype(np.int64)
        self.test = np.concatenate([c.tests for c in found]).astype(np.int64)
        order = np.lexsort((collective[self.test], cause))
        self.test, self.entry_cause = self.test[order], cause[order]
        run = self.entry_cause * (collective.max() + 1) + collective[self.test]
        self.starts = np.flatnonzero(np.diff(run, prepend=-1))
        self.run_cause = self.entry_cause[self.starts]
        penetrance = [PENETRANCES.index(c.cause.penetrance) for c in found]
        self.layer = np.array(penetrance)[self.entry_cause]
        self.log_prior = np.log([c.cause.prior for c in found])
        kills = np.array([c.cause.kind in ("node", "gpu", "link") for c in found])
        self.weights = np.where(kills[self.run_cause][:, None], _SLOWS_OR_KILLS, _SLOWS)

    def extended(self, more: Sequence[Column]) -> "_Design":
        known = {column.cause for column in self.columns}
        return _Design([*self.columns, *(column for column in more if column.cause not in known)], self._collective)


def infer(observed: Observed, groups: Mapping[str, frozenset[str]]) -> Posterior:
    """Add effects while one is likelier than none, then let each give way to the others in turn."""
    tests = observed.tests
    names = sorted({test.collective for test in tests})
    collective = np.array([names.index(test.collective) for test in tests], dtype=np.int64)
    found = columns(observed, groups)
    if not found:  # all tests are fine
        return Posterior(observed, (), ())
    design, effects = _Design(found, collective), list[Effect]()
    while len(effects) < _MOST_EFFECTS:
        added, design = _next(design, observed, _likelihood(observed, effects))
        known = {effect.causes[0] for effect in effects}
        if added.none > _HOPELESS or not added.causes or added.causes[0] in known:
            break
        settled = _settled([*effects, added], design, observed, sweeps=1)
        if len(settled) <= len(effects):
            break
        effects = settled
    effects = _settled(effects, design, observed, _SWEEPS)
    return Posterior(observed, tuple(effects), design.columns)


def _next(design: _Design, observed: Observed, likelihood: Likelihood) -> tuple[Effect, _Design]:
    """The next effect, and the design with the cut that it may be."""
    cut = _cut(observed, likelihood)
    with_cut = design.extended(cut) if cut else design
    effect = _single(with_cut, likelihood)
    is_cut = cut is not None and cut[0].cause in effect.causes
    return (effect, with_cut) if is_cut else (_single(design, likelihood), design)


def _settled(effects: list[Effect], design: _Design, observed: Observed, sweeps: int) -> list[Effect]:
    """The effects after each has been weighed anew, given the others; what has become nothing is dropped.

    With the effect there are fewer strays than without, so each of the two has its own share of them.
    """
    for _ in range(sweeps):
        fitted = _worst(effects, len(observed.tests))[0]
        for i in range(len(effects)):
            others = _worst(effects[:i] + effects[i + 1 :], len(observed.tests))
            without, with_it = Likelihood(observed, *others), Likelihood(observed, *others, fitted)
            effects[i] = _single(design, with_it, without.log_total - with_it.log_total)
    return [effect for effect in effects if effect.none <= 0.5 and effect.causes]


def _likelihood(observed: Observed, effects: Sequence[Effect]) -> Likelihood:
    return Likelihood(observed, *_worst(effects, len(observed.tests)))


def _worst(effects: Sequence[Effect], tests: int) -> tuple[Floats, Floats]:
    zero = np.zeros(tests)
    slowdown = np.max([zero, *(effect.explained for effect in effects)], axis=0)
    return slowdown, np.max([zero, *(effect.fails for effect in effects)], axis=0)


def _cut(observed: Observed, likelihood: Likelihood) -> tuple[Column, Column] | None:
    """The best cut of the nodes in two and its rival, if enough tests across it are slow and each side has two."""
    if observed.slow.sum() < LEAST_OF_A_CUT:
        return None
    nodes = len({node for test in observed.tests for node in test.nodes})
    ratios = likelihood.ratios(ALWAYS)[:, :-1]
    weight = ratios[:, int(np.argmax(ratios.clip(min=0).sum(axis=0)))]
    side = best_side(observed.tests, weight)
    cut, rival = cut_columns(observed.tests, side, nodes)
    within = np.setdiff1d(rival.tests, cut.tests)
    slow_inside = observed.slow[within].sum() > observed.fine[within].sum()  # then they are slow nodes
    enough = observed.slow[cut.tests].sum() >= LEAST_OF_A_CUT
    return (cut, rival) if enough and not slow_inside and 2 <= len(side) <= nodes - 2 else None


def _single(design: _Design, likelihood: Likelihood, log_none: float = 0.0) -> Effect:
    """Weigh every cause as the only one besides what is explained already."""
    layers = np.stack([likelihood.ratios(penetrance) for penetrance in PENETRANCES])
    sums = np.add.reduceat(layers[design.layer, design.test], design.starts, axis=0)
    factor = np.bincount(design.run_cause, log_mean(sums, design.weights), len(design.columns))
    weight = design.log_prior + factor
    top = max(float(weight.max()), log_none)
    weights = np.exp(weight - top)
    none = float(np.exp(log_none - top))
    total = float(weights.sum()) + none
    shares = weights / total
    chosen = np.flatnonzero(shares >= _SHOWN)
    chosen = chosen[np.argsort(-shares[chosen], kind="stable")]
    explained, fails = _follows(design, sums, layers, int(np.argmax(shares)))
    causes = tuple(design.columns[i].cause for i in chosen)
    return Effect(causes, tuple(shares[chosen].tolist()), none / total, explained, fails)


def _follows(design: _Design, sums: Floats, layers: Floats, cause: int) -> tuple[Floats, Floats]:
    """Of each test, the log slowdown and the probability of failing that follow from the likeliest cause."""
    explained, fails = np.zeros(layers.shape[1]), np.zeros(layers.shape[1])
    penetrance = design.columns[cause].cause.penetrance
    ends = np.append(design.starts[1:], len(design.test))
    for run in np.flatnonzero(design.run_cause == cause):
        entries = slice(design.starts[run], ends[run])
        tests = design.test[entries]
        weight = np.exp(sums[run] - sums[run].max()) * design.weights[run]
        weight /= weight.sum()
        log_ratio = layers[design.layer[entries], tests] @ weight
        affected = 1 - (1 - penetrance) / np.exp(np.maximum(log_ratio, np.log(1 - penetrance)))
        dead = weight[-1]
        explained[tests] = affected * (weight[:-1] @ SLOWDOWNS) / max(1 - dead, 1e-9) if dead < 0.5 else 0.0
        fails[tests] = dead * FAILS_IF_DEAD
    return explained, fails
