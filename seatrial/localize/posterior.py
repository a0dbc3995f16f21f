"""The posterior over few causes of many slow tests. Pure.

Group testing with continuous, noisy results (Dorfman, 1943; adaptive and Bayesian: Aldridge,
Johnson and Scarlett, "Group Testing: An Information Theory Perspective", 2019, chapters 3 and 4).
The causes are a sum of single effects (SuSiE; Wang, Sarkar, Carbonetto and Stephens, J. R. Stat.
Soc. B 82, 2020): each effect is exactly one cause or none, so where tests cannot separate two
causes, the shares of both add up to one.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seatrial.localize.blocks import block_columns
from seatrial.localize.cause import (
    ALWAYS,
    Cause,
    Column,
    Key,
    cut_column,
    plausible,
    possible_causes,
    with_reference_tests,
)
from seatrial.localize.causes import columns
from seatrial.localize.cut import Pairs
from seatrial.localize.cut_search import CutSearch
from seatrial.localize.design import Design
from seatrial.localize.effects import (
    Effect,
    explained_by,
    likelihood_beside,
    single_effect,
    unexplained,
    weights_of,
    worst_of,
)
from seatrial.localize.group_tests import Switches
from seatrial.localize.likelihood import (
    Likelihood,
    width_of,
)
from seatrial.localize.observations import Bools, Ints, Observed

_MOST_EFFECTS = 12
_MOST_CUTS = 3
_SWEEPS = 2  # in which the effects are weighed anew
_HOPELESS = 0.99
_BLOCKS = ("leaf", "socket")


@dataclass(frozen=True, slots=True)
class Posterior:
    """The effects, the likeliest first, and the tests that they do not explain."""

    observed: Observed
    effects: tuple[Effect, ...]
    columns: tuple[Column, ...]

    def unexplained(self, without: Effect | None = None, limit: float = 3.0) -> Bools:
        """Return slow tests, slower than the effects account for by `limit` times their noise, and
        failed ones.

        The effect `without` does not count.
        """
        others = [effect for effect in self.effects if effect is not without]
        return unexplained(others, self.observed, limit)

    def settled(self, confidence: float) -> "Posterior":
        """Return the same with those effects alone of which one part has this share or more."""
        sure = [effect for effect in self.effects if effect.confidence >= confidence]
        return replace(self, effects=tuple(sure))

    def left_to(self, cause: Cause) -> Observed:
        """Return the tests for the effect of a cause: those that other effects slow show nothing of
        it.
        """
        observed = self.observed
        own = self._effect_of(cause)
        if own is None:
            return observed
        explained = observed.bad & ~self.unexplained(without=own)
        return replace(
            observed,
            alone=observed.alone | explained,
            failed=observed.failed & ~explained,
        )

    def slower_than_by(self, cause: Cause) -> Bools:
        """Return tests slower than the effect of a cause makes them, by more than noise: they have
        another reason.
        """
        own = self._effect_of(cause)
        observed = self.observed
        if own is None:
            return np.zeros(len(observed.tests), dtype=bool)
        noise = width_of(observed.scale, own.explained)
        left = observed.value + own.explained
        slower: Bools = observed.slow & (left < -3 * noise)
        return slower

    def _effect_of(self, cause: Cause) -> Effect | None:
        """Return the effect that a cause is of, if any."""
        for effect in self.effects:
            if cause in effect.causes:
                return effect
        return None

    def tests_of(self, cause: Cause) -> Ints:
        """Return the tests that a cause of an effect would slow, or any cut."""
        for column in self.columns:
            if column.cause is cause:
                return column.tests
        others = self.observed.nodes.difference(cause.nodes)
        column = cut_column(self.observed, (cause.nodes, others))
        for telling in with_reference_tests([column], self.observed):
            return telling.tests
        return column.tests


@dataclass(frozen=True, slots=True)
class _Fit:
    """The effects, of all causes of the `design`, and the log probability of all tests by them."""

    effects: list[Effect]
    design: Design
    evidence: float

    @classmethod
    def of(cls, effects: list[Effect], design: Design, observed: Observed) -> Self:
        """Weigh the whole."""
        evidence = _evidence(effects, design, observed)
        return cls(effects, design, evidence)

    @classmethod
    def to(cls, design: Design, observed: Observed) -> Self:
        """Find the effects, none of which is known."""
        effects = _with_more_effects([], design, observed)
        return cls.of(effects, design, observed)


def infer(
    observed: Observed,
    groups: Switches,
    excluded: Collection[Key] = (),
    *,
    with_single_nodes: bool = False,
) -> Posterior:
    """Return the likeliest effects, with as many cuts as make the whole likelier than without.

    Causes that are `excluded`, by their key, are none of them. Groups of a cut may be single nodes,
    if asked for.
    """
    every = list[Column]()
    if observed.bad.any():
        every = columns(observed, groups)
    if every:
        blocks = block_columns(observed, likelihood_beside([], observed))
        every += possible_causes(blocks, observed)
    candidates = [column for column in every if column.cause.key not in excluded]
    if not candidates:
        return Posterior(observed, (), ())
    fit = _Fit.to(Design(candidates, observed), observed)
    pairs = Pairs.of(observed.tests)
    search = CutSearch(observed, pairs, excluded, with_single_nodes)
    # Before all other causes, then beside those that always slow their tests: the rest may stand in
    # for a cut.
    fit = _with_cuts(fit, [], search, _with_more_effects)
    always = [effect for effect in fit.effects if effect.likeliest.penetrance == ALWAYS]
    fit = _with_cuts(fit, always, search, _settled)
    fit = _refined(fit, observed)
    return Posterior(observed, tuple(fit.effects), fit.design.columns)


def _with_cuts(
    fit: _Fit,
    known: Sequence[Effect],
    search: CutSearch,
    weigh: Callable[[Sequence[Effect], Design, Observed], list[Effect]],
) -> _Fit:
    """Add to the `known` effects one cut after the other, as long as the whole becomes likelier."""
    observed = search.observed
    best = fit
    for _ in range(_MOST_CUTS):
        new = search.new_beside(known, best.design)
        if not new:
            break
        likelihood = likelihood_beside(known, observed)
        cut = single_effect(Design(new, observed), likelihood)
        if not cut.causes:
            break
        known = [*known, cut]
        design = Design([*best.design.columns, *new], observed)
        effects = weigh(known, design, observed)
        grown = _Fit.of(effects, design, observed)
        if grown.evidence <= best.evidence:
            break
        best = grown
    return best


def _refined(fit: _Fit, observed: Observed) -> _Fit:
    """Return the fit, or a likelier one that does without one of its causes.

    One cause at a time may take a node for two of its links, or a leaf switch for a few nodes
    (`refine` of susieR).
    """
    best = fit
    for effect in fit.effects:
        others = _others(fit.design.columns, effect.likeliest, observed)
        if not others:
            continue
        without = _Fit.to(Design(others, observed), observed)
        if without.evidence > best.evidence:
            best = without
    return best


def _others(columns: Sequence[Column], cause: Cause, observed: Observed) -> list[Column]:
    """Return the columns to do without a node or GPU that has fine tests too, or without GPUs of
    several nodes; none for other causes.
    """
    if cause.kind in _BLOCKS:
        return [column for column in columns if column.cause.kind not in _BLOCKS]
    if cause.kind not in ("node", "gpu"):
        return []
    tests = _column(columns, cause).tests
    if not observed.fine[tests].any():
        return []
    others = list[Column]()
    for column in columns:
        if column.cause.kind != cause.kind or column.cause.nodes != cause.nodes:
            others.append(column)
    return others


def _column(columns: Sequence[Column], cause: Cause) -> Column:
    """Return the column of a cause."""
    return next(column for column in columns if column.cause is cause)


def _with_more_effects(first: Sequence[Effect], design: Design, observed: Observed) -> list[Effect]:
    """Add effects while there may be another, then weigh each anew, given the others.

    One of several faults is hardly likelier than a stray as long as the others count as strays, so
    even the unlikely are added first, and weighed when all are there.
    """
    effects = list(first)
    every = design
    if first:
        odd = unexplained(first, observed)
        explained, _ = worst_of(first, len(observed.tests))
        left = plausible(design.columns, observed, odd, explained)
        last = first[-1].likeliest
        left.append(_column(design.columns, last))
        design = Design(left, observed)
    while len(effects) < _MOST_EFFECTS:
        likelihood = likelihood_beside(effects, observed)
        added = single_effect(design, likelihood)
        if added.none > _HOPELESS or not added.causes:
            break
        known = {effect.likeliest for effect in effects}
        if added.likeliest in known:
            break
        effects.append(added)
    if first:
        effects = _settled(effects, design, observed)
    return _settled(effects, every, observed)


def _evidence(effects: Sequence[Effect], design: Design, observed: Observed) -> float:
    """Return the log probability of all tests, each effect by its likeliest cause and given those
    before it.
    """
    tests = len(observed.tests)
    fitted = worst_of(effects, tests)
    nothing = np.zeros(tests)
    total = Likelihood(observed, nothing, nothing, fitted).log_total
    given: list[Effect] = []
    for effect in effects:
        before = Likelihood(observed, *worst_of(given, tests), fitted)
        column = _column(design.columns, effect.likeliest)
        weighed = weights_of(Design([column], observed), before)
        log_share = np.log(effect.shares[0])
        total += float(weighed.log_weights[0]) - log_share
        # What an effect explains beside all others is less than beside those before it
        explained, fails = explained_by(weighed, 0)
        given.append(replace(effect, explained=explained, fails=fails))
    return total


def _settled(known: Sequence[Effect], design: Design, observed: Observed) -> list[Effect]:
    """Return the effects after each has been weighed anew, given the others; what has become
    nothing is dropped.

    With the effect there are fewer strays than without, so each of the two has its own share of
    them.
    """
    effects = list(known)
    tests = len(observed.tests)
    for _ in range(_SWEEPS):
        for i in reversed(range(len(effects))):
            fitted = worst_of(effects, tests)
            others = effects[:i] + effects[i + 1 :]
            explained = worst_of(others, tests)
            without = Likelihood(observed, *explained)
            with_it = Likelihood(observed, *explained, fitted, without.stray)
            log_none = without.log_total - with_it.log_total
            weighed = single_effect(design, with_it, log_none)
            effects[i] = weighed
            if weighed.none > 0.5 or not weighed.causes:
                del effects[i]
    return effects
