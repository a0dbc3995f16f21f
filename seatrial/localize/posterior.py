"""The posterior over few causes of many slow tests. Pure.

Group testing with continuous, noisy results (Dorfman, 1943; adaptive and Bayesian: Aldridge,
Johnson and Scarlett, "Group Testing: An Information Theory Perspective", 2019, chapters 3 and 4).
The causes are a sum of single effects (SuSiE; Wang, Sarkar, Carbonetto and Stephens, J. R. Stat.
Soc. B 82, 2020): each effect is exactly one cause or none, so where tests cannot separate two
causes, the shares of both add up to one.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
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
    side_of,
    with_penetrances,
    with_reference_tests,
)
from seatrial.localize.causes import columns
from seatrial.localize.cut import Pairs, best_side, groups_apart
from seatrial.localize.design import Design
from seatrial.localize.effects import (
    Effect,
    explained_by,
    single_effect,
    weights_of,
    worst_of,
)
from seatrial.localize.group_tests import Switches
from seatrial.localize.likelihood import (
    SOUGHT,
    Likelihood,
    width_of,
)
from seatrial.localize.observations import Bools, Ints, Observed

_MOST_EFFECTS = 12
_MOST_CUTS = 3
_SWEEPS = 2  # in which the effects are weighed anew
_HOPELESS = 0.99
_MAY_TIME_OUT = 0.3  # log slowdown of a cause whose tests fail, too
_LEAST_GROUPS = 3  # of a spine
_LEAST_IN_GROUPS = 0.9  # the share of its nodes that are in groups of two or more
_BLOCKS = ("leaf", "socket")
LEAST_OF_A_CUT = 4  # slow pairs across


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
        return _unexplained(self.observed, others, limit)

    def settled(self, confidence: float) -> "Posterior":
        """Return the same with those effects alone of which one part has this share or more."""
        sure = tuple(e for e in self.effects if max(e.parts.values()) >= confidence)
        return replace(self, effects=sure)

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
        slower: Bools = observed.slow & (observed.value + own.explained < -3 * noise)
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
        return cls(effects, design, _evidence(effects, design, observed))


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
    candidates = columns(observed, groups) if observed.bad.any() else []
    if candidates:
        blocks = with_reference_tests(block_columns(observed, _likelihood(observed, [])), observed)
        candidates += with_penetrances(blocks, observed)
    candidates = [column for column in candidates if column.cause.key not in excluded]
    if not candidates:  # such as where all tests are fine
        return Posterior(observed, (), ())
    design = Design(candidates, observed)
    fit = _Fit.of(_with_more_effects([], design, observed), design, observed)
    search = _CutSearch(observed, Pairs.of(observed.tests), excluded, with_single_nodes)
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
    search: "_CutSearch",
    weigh: Callable[[Sequence[Effect], Design, Observed], list[Effect]],
) -> _Fit:
    """Add to the `known` effects one cut after the other, as long as the whole becomes likelier."""
    observed = search.observed
    best = fit
    for _ in range(_MOST_CUTS):
        new = search.new_beside(known, best.design)
        if not new:
            break
        cut = single_effect(Design(new, observed), _likelihood(observed, known))
        if not cut.causes:
            break
        known = [*known, cut]
        design = Design([*best.design.columns, *new], observed)
        grown = _Fit.of(weigh(known, design, observed), design, observed)
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
        design = Design(others, observed)
        without = _Fit.of(_with_more_effects([], design, observed), design, observed)
        if without.evidence > best.evidence:
            best = without
    return best


def _others(columns: Sequence[Column], cause: Cause, observed: Observed) -> list[Column]:
    """Return the columns to do without a node or GPU that has fine tests too, or without GPUs of
    several nodes; none for other causes.
    """
    if cause.kind in _BLOCKS:
        return [column for column in columns if column.cause.kind not in _BLOCKS]
    if cause.kind in ("node", "gpu") and observed.fine[_column(columns, cause).tests].any():
        part = (cause.kind, cause.nodes)
        return [c for c in columns if (c.cause.kind, c.cause.nodes) != part]
    return []


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
        odd = _unexplained(observed, first)
        explained, _ = worst_of(first, len(observed.tests))
        left = plausible(design.columns, observed, odd, explained)
        left.append(_column(design.columns, first[-1].likeliest))
        design = Design(left, observed)
    while len(effects) < _MOST_EFFECTS:
        added = single_effect(design, _likelihood(observed, effects))
        known = {effect.likeliest for effect in effects}
        if added.none > _HOPELESS or not added.causes or added.likeliest in known:
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
        alone = Design([_column(design.columns, effect.likeliest)], observed)
        weighed = weights_of(alone, before)
        total += float(weighed.log_weights[0]) - np.log(effect.shares[0])
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
            others = worst_of(effects[:i] + effects[i + 1 :], tests)
            without = Likelihood(observed, *others)
            with_it = Likelihood(observed, *others, fitted, without.stray)
            weighed = single_effect(design, with_it, without.log_total - with_it.log_total)
            effects[i] = weighed
            if weighed.none > 0.5 or not weighed.causes:
                del effects[i]
    return effects


def _unexplained(observed: Observed, effects: Sequence[Effect], limit: float = 3.0) -> Bools:
    """Return the tests that are slower than the effects make them, or fail without one of them."""
    explained, fails = worst_of(effects, len(observed.tests))
    slow = observed.slow & (
        observed.value + explained < -limit * width_of(observed.scale, explained)
    )
    slow &= explained < -observed.value / 3  # or the worse part of it is explained
    failed = observed.failed & (fails < 0.5) & (explained < _MAY_TIME_OUT)
    odd: Bools = slow | failed
    return odd


def _likelihood(observed: Observed, effects: Sequence[Effect]) -> Likelihood:
    """Return the likelihood of the tests beside some effects."""
    return Likelihood(observed, *worst_of(effects, len(observed.tests)))


@dataclass(frozen=True, slots=True)
class _CutSearch:
    """Where cuts of the tests may be; those that are `excluded` by their key are none."""

    observed: Observed
    pairs: Pairs
    excluded: Collection[Key]
    with_single_nodes: bool

    def new_beside(self, known: Sequence[Effect], design: Design) -> list[Column]:
        """Return the best cuts beside the `known` effects that are not yet in the design."""
        odd = _unexplained(self.observed, known)
        if odd.sum() < LEAST_OF_A_CUT:
            return []
        old = {column.cause.key for column in design.columns}.union(self.excluded)
        by_name = {column.cause.key: column for column in self._splits(known)}
        cuts = [c for c in by_name.values() if _is_cut(self.observed, c, odd)]
        weighed = with_penetrances(with_reference_tests(cuts, self.observed), self.observed)
        return [column for column in weighed if column.cause.key not in old]

    def _splits(self, known: Sequence[Effect]) -> Iterator[Column]:
        """Yield the best cut in two, and in more groups, by each severity."""
        observed = self.observed
        nodes = observed.nodes
        informative = ~observed.levels.flat[observed.like]  # a cut may slow all tests of a kind
        likelihood = _likelihood(observed, known)
        # Beside a known cause many an intermittent cut fits
        penetrances = (ALWAYS,) if known else SOUGHT
        for penetrance in penetrances:
            for ratio in likelihood.severities(penetrance):
                weight = informative * ratio
                side = best_side(self.pairs, weight)
                if 2 <= len(side) <= len(nodes) - 2:
                    yield cut_column(observed, (side, nodes - side))
                if penetrance != ALWAYS:  # with the freedom of a share too many groups fit
                    continue
                groups = sorted(groups_apart(self.pairs, weight), key=min)
                several = [group for group in groups if len(group) > 1]
                if len(several) < _LEAST_GROUPS:
                    continue
                if sum(map(len, several)) >= _LEAST_IN_GROUPS * len(nodes):
                    yield cut_column(observed, several)
                elif self.with_single_nodes:
                    yield cut_column(observed, groups)


def _is_cut(observed: Observed, column: Column, odd: Bools) -> bool:
    """Return whether enough pairs across are odd, and within each side no more tests than are
    fine.
    """
    slow_across = column.tests[odd[column.tests]]
    pairs = {frozenset(observed.tests[i].nodes) for i in slow_across}
    if len(pairs) < LEAST_OF_A_CUT:
        return False
    sides = column.cause.sides
    side = side_of(observed.tests, sides)
    side[column.tests] = len(sides)
    odd_in = np.bincount(side, odd)[: len(sides)]
    fine_in = np.bincount(side, observed.fine)[: len(sides)]
    return bool((odd_in <= fine_in).all())
