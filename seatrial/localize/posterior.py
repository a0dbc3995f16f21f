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
_SWEEPS = 2  # rounds in which each effect is weighed again
_HOPELESS = 0.99
_BLOCKS = ("leaf", "socket")


@dataclass(frozen=True, slots=True)
class Posterior:
    """The effects, the likeliest first, and the tests that they do not explain."""

    observed: Observed
    effects: tuple[Effect, ...]
    columns: tuple[Column, ...]

    def unexplained(self, without: Effect | None = None, limit: float = 3.0) -> Bools:
        """Return the mask of failed tests, and of tests slower than the effects explain by `limit`
        times their noise.

        The effect `without` is ignored.
        """
        others = [effect for effect in self.effects if effect is not without]
        return unexplained(others, self.observed, limit)

    def settled(self, confidence: float) -> "Posterior":
        """Return the posterior with only the effects whose confidence is at least `confidence`."""
        sure = [effect for effect in self.effects if effect.confidence >= confidence]
        return replace(self, effects=tuple(sure))

    def left_to(self, cause: Cause) -> Observed:
        """Return the tests as evidence for a cause: tests that other effects explain show
        nothing.
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
        """Return the mask of tests that are slower than the cause's effect explains by more than
        noise.
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
        """Return the effect that contains the cause; None if there is none."""
        for effect in self.effects:
            if cause in effect.causes:
                return effect
        return None

    def tests_of(self, cause: Cause) -> Ints:
        """Return the indices of the tests that a cause would slow; the cause is one of the columns,
        or a cut.
        """
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
    """Effects found among the causes of `design`, with the log probability of all tests
    given them.
    """

    effects: list[Effect]
    design: Design
    evidence: float

    @classmethod
    def of(cls, effects: list[Effect], design: Design, observed: Observed) -> Self:
        """Return the fit of known effects."""
        evidence = _evidence(effects, design, observed)
        return cls(effects, design, evidence)

    @classmethod
    def to(cls, design: Design, observed: Observed) -> Self:
        """Find the effects from scratch, and return their fit."""
        effects = _with_more_effects([], design, observed)
        return cls.of(effects, design, observed)


def infer(
    observed: Observed,
    groups: Switches,
    excluded: Collection[Key] = (),
    *,
    with_single_nodes: bool = False,
) -> Posterior:
    """Return the likeliest effects, including cuts as long as they increase the total likelihood.

    Causes with a key in `excluded` are left out. `with_single_nodes`: groups of a cut may be single
    nodes.
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
    # First cuts alone, then next to effects that always slow their tests: other effects may only
    # stand in for a cut.
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
    """Add one cut at a time to the `known` effects, as long as the total likelihood increases."""
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
    """Return the columns to try without the cause; empty if it needs no check.

    That is for a node or GPU that also has fine tests, without that node or its GPUs, and for a
    leaf or socket, without all of these.
    """
    if cause.kind in _BLOCKS:
        return [column for column in columns if column.cause.kind not in _BLOCKS]
    if cause.kind not in ("node", "gpu"):
        return []
    tests = _column(columns, cause).tests
    if not observed.fine[tests].any():
        return []
    return [
        column
        for column in columns
        if column.cause.kind != cause.kind or column.cause.nodes != cause.nodes
    ]


def _column(columns: Sequence[Column], cause: Cause) -> Column:
    """Return the column of a cause."""
    return next(column for column in columns if column.cause is cause)


def _with_more_effects(first: Sequence[Effect], design: Design, observed: Observed) -> list[Effect]:
    """Add effects while another one may exist, then weigh each again given the others.

    As long as other faults count as strays, one of several faults is hardly likelier than a stray,
    so unlikely effects are added too, and weighed once all are there.
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
        # Recomputed: given all others, an effect explains less than given those before it
        explained, fails = explained_by(weighed, 0)
        given.append(replace(effect, explained=explained, fails=fails))
    return total


def _settled(known: Sequence[Effect], design: Design, observed: Observed) -> list[Effect]:
    """Weigh each effect again given the others; drop effects that become unlikely.

    With the effect there are fewer strays than without it, so each case has its own share of
    strays.
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
