"""The posterior over few causes of many slow tests. Pure.

Group testing with continuous, noisy results (Dorfman, 1943; adaptive and Bayesian: Aldridge,
Johnson and Scarlett, "Group Testing: An Information Theory Perspective", 2019, chapters 3 and 4).
The causes are a sum of single effects (SuSiE; Wang, Sarkar, Carbonetto and Stephens, J. R. Stat.
Soc. B 82, 2020): each effect is exactly one cause or none, so where tests cannot separate two
causes, the shares of both add up to one.

    share(c) = prior(c) BF(c) / (1 + sum over all causes k of prior(k) BF(k))
    BF(c)    = product over operations of 1 - q + q times the mean over slowdowns d of
               product over kinds of like tests of e + (1 - e) times
               product over tests t of c of p(t | d) / p(t | no such cause)

A cause slows an operation with probability q, and at least one. Of a kind of tests all may be slow,
with probability e (`Levels`). A test is as slow as the worst of its causes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from seatrial.localize.blocks import block_columns
from seatrial.localize.causes import (
    ALWAYS,
    PENETRANCES,
    Cause,
    CauseKind,
    Column,
    columns,
    cut_column,
    plausible,
    side_of,
    with_penetrances,
    with_reference_tests,
)
from seatrial.localize.cut import Pairs, best_side, groups_apart
from seatrial.localize.likelihood import (
    FAILS_IF_DEAD,
    SLOWDOWNS,
    SOUGHT,
    Likelihood,
    log_mean,
    width_of,
)
from seatrial.localize.observations import Bools, Floats, Ints, Observed, Switches

_MOST_EFFECTS = 12
_MOST_CUTS = 3
_SWEEPS = 2  # in which the effects are weighed anew
_SHOWN = 0.01  # the share from which a cause is told
_MAY_KILL = ("node", "gpu", "socket", "link")
_DEAD = 0.1  # of faults of those parts, those that make tests fail
_SLOWS = np.array([1 / len(SLOWDOWNS)] * len(SLOWDOWNS) + [0.0])
_SLOWS_OR_KILLS = np.append((1 - _DEAD) * _SLOWS[:-1], _DEAD)
_HOPELESS = 0.99
_ACTS = 0.5  # the probability that a cause slows one of several operations
_MAY_TIME_OUT = 0.3  # log slowdown of a cause whose tests fail, too
_COVERED = 2.0  # times its noise, of a test that known causes slow
_LEAST_GROUPS = 3  # of a spine
_LEAST_IN_GROUPS = 0.9  # the share of its nodes that are in groups of two or more
LEAST_OF_A_CUT = 4  # slow pairs across


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


class _Design:
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
        self.layer = penetrance[run // kinds // operations]
        self.log_prior = np.array([cause.log_prior for cause in causes])
        kills = np.array([cause.kind in _MAY_KILL for cause in causes])
        self.weights = np.where(kills[self.part_cause][:, None], _SLOWS_OR_KILLS, _SLOWS)

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
        doubt = levels.doubt(self.run_like, 1 - number / sizes)
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
        like = self.observed.like[some]
        number: Ints = np.bincount(like, minlength=len(self.observed.like_sizes))[self.run_like]
        return number


def infer(
    observed: Observed,
    groups: Switches,
    excluded: Collection[tuple[CauseKind, str]] = (),
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
    design = _Design(candidates, observed)
    pairs = Pairs.of(observed.tests)
    best = _with_more_effects([], design, observed)
    evidence = _evidence(best, design, observed)
    # Before all other causes, then beside those that always slow their tests: the rest may stand in
    # for a cut.
    for before_others in (True, False):
        known = list[Effect]()
        if not before_others:
            known = [effect for effect in best if effect.causes[0].penetrance == ALWAYS]
        for _ in range(_MOST_CUTS):
            old = {column.cause.key for column in design.columns}.union(excluded)
            cuts = _cuts(observed, pairs, known, with_single_nodes)
            new = [column for column in cuts if column.cause.key not in old]
            if not new:
                break
            cut = _single(_Design(new, observed), _likelihood(observed, known))
            if not cut.causes:
                break
            known = [*known, cut]
            with_cut = _Design([*design.columns, *new], observed)
            if before_others:
                grown = _with_more_effects(known, with_cut, observed)
            else:
                grown = _settled(known, with_cut, observed)
            likelier = _evidence(grown, with_cut, observed)
            if likelier <= evidence:
                break
            best = grown
            evidence = likelier
            design = with_cut
    best, design = _refined(best, design, observed)
    return Posterior(observed, tuple(best), design.columns)


def _refined(
    effects: list[Effect], design: _Design, observed: Observed
) -> tuple[list[Effect], _Design]:
    """Return the effects, or likelier ones that do without a node or GPU that has fine tests too.

    One cause at a time may take a node for two of its links (`refine` of susieR).
    """
    best = (effects, design)
    evidence = _evidence(effects, design, observed)
    for effect in effects:
        cause = effect.causes[0]
        if cause.kind not in ("node", "gpu"):
            continue
        part = (cause.kind, cause.nodes)
        others = [c for c in design.columns if (c.cause.kind, c.cause.nodes) != part]
        if not others or not observed.fine[_column(design.columns, cause).tests].any():
            continue
        without = _Design(others, observed)
        other = _with_more_effects([], without, observed)
        more = _evidence(other, without, observed)
        if more > evidence:
            best = (other, without)
            evidence = more
    return best


def _column(columns: Sequence[Column], cause: Cause) -> Column:
    """Return the column of a cause."""
    return next(column for column in columns if column.cause is cause)


def _with_more_effects(
    first: Sequence[Effect], design: _Design, observed: Observed
) -> list[Effect]:
    """Add effects while there may be another, then weigh each anew, given the others.

    One of several faults is hardly likelier than a stray as long as the others count as strays, so
    even the unlikely are added first, and weighed when all are there.
    """
    effects = list(first)
    every = design
    if first:
        odd = _unexplained(observed, first)
        explained, _ = _worst(first, len(observed.tests))
        left = plausible(design.columns, observed, odd, explained)
        left.append(_column(design.columns, first[-1].causes[0]))
        design = _Design(left, observed)
    while len(effects) < _MOST_EFFECTS:
        added = _single(design, _likelihood(observed, effects))
        known = {effect.causes[0] for effect in effects}
        if added.none > _HOPELESS or not added.causes or added.causes[0] in known:
            break
        effects.append(added)
    if first:
        effects = _settled(effects, design, observed)
    return _settled(effects, every, observed)


def _evidence(effects: Sequence[Effect], design: _Design, observed: Observed) -> float:
    """Return the log probability of all tests, each effect by its likeliest cause and given those
    before it.
    """
    tests = len(observed.tests)
    fitted = _worst(effects, tests)
    nothing = np.zeros(tests)
    total = Likelihood(observed, nothing, nothing, fitted).log_total
    for i, effect in enumerate(effects):
        before = Likelihood(observed, *_worst(effects[:i], tests), fitted)
        alone = _Design([_column(design.columns, effect.causes[0])], observed)
        weight, _, _ = _weights(alone, before)
        total += float(weight[0]) - np.log(effect.shares[0])
    return total


def _settled(known: Sequence[Effect], design: _Design, observed: Observed) -> list[Effect]:
    """Return the effects after each has been weighed anew, given the others; what has become
    nothing is dropped.

    With the effect there are fewer strays than without, so each of the two has its own share of
    them.
    """
    effects = list(known)
    tests = len(observed.tests)
    for _ in range(_SWEEPS):
        for i in reversed(range(len(effects))):
            fitted = _worst(effects, tests)
            others = _worst(effects[:i] + effects[i + 1 :], tests)
            without = Likelihood(observed, *others)
            with_it = Likelihood(observed, *others, fitted, without.stray)
            weighed = _single(design, with_it, without.log_total - with_it.log_total)
            effects[i] = weighed
            if weighed.none > 0.5 or not weighed.causes:
                del effects[i]
    return effects


def _unexplained(observed: Observed, effects: Sequence[Effect], limit: float = 3.0) -> Bools:
    """Return the tests that are slower than the effects make them, or fail without one of them."""
    explained, fails = _worst(effects, len(observed.tests))
    slow = observed.slow & (
        observed.value + explained < -limit * width_of(observed.scale, explained)
    )
    slow &= explained < -observed.value / 3  # or the worse part of it is explained
    failed = observed.failed & (fails < 0.5) & (explained < _MAY_TIME_OUT)
    odd: Bools = slow | failed
    return odd


def _likelihood(observed: Observed, effects: Sequence[Effect]) -> Likelihood:
    """Return the likelihood of the tests beside some effects."""
    return Likelihood(observed, *_worst(effects, len(observed.tests)))


def _worst(effects: Sequence[Effect], tests: int) -> tuple[Floats, Floats]:
    """Return the worst log slowdown and probability of failing of each test by any effect."""
    slowdown = np.zeros(tests)
    fails = np.zeros(tests)
    for effect in effects:
        slowdown = np.maximum(slowdown, effect.explained)
        fails = np.maximum(fails, effect.fails)
    return slowdown, fails


def _cuts(
    observed: Observed, pairs: Pairs, known: Sequence[Effect], with_single_nodes: bool
) -> list[Column]:
    """Return the best cut in two, and in more groups, of enough slow pairs that no known effect
    explains.
    """
    odd = _unexplained(observed, known)
    if odd.sum() < LEAST_OF_A_CUT:
        return []
    nodes = observed.nodes
    cuts = list[Column]()
    informative = ~observed.levels.flat[observed.like]  # a cut may slow all tests of a kind
    likelihood = _likelihood(observed, known)
    # Beside a known cause many an intermittent cut fits
    penetrances = (ALWAYS,) if known else SOUGHT
    for penetrance in penetrances:
        for ratio in likelihood.severities(penetrance):
            weight = informative * ratio
            side = best_side(pairs, weight)
            if 2 <= len(side) <= len(nodes) - 2:
                cuts.append(cut_column(observed, (side, nodes - side)))
            if penetrance != ALWAYS:  # with the freedom of a share too many groups fit
                continue
            groups = sorted(groups_apart(pairs, weight), key=min)
            several = [group for group in groups if len(group) > 1]
            if len(several) < _LEAST_GROUPS:
                continue
            if sum(map(len, several)) >= _LEAST_IN_GROUPS * len(nodes):
                cuts.append(cut_column(observed, several))
            elif with_single_nodes:
                cuts.append(cut_column(observed, groups))
    by_name = {column.cause.key: column for column in cuts}
    possible = [column for column in by_name.values() if _is_cut(observed, column, odd)]
    return with_penetrances(with_reference_tests(possible, observed), observed)


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


def _weights(design: _Design, likelihood: Likelihood) -> tuple[Floats, Floats, Floats]:
    """Return, for each cause, the log of prior times Bayes factor, and sums and log likelihood
    ratios of its tests.
    """
    penetrances = PENETRANCES[: design.layer.max() + 1]
    layers = likelihood.ratios(*penetrances, tests=design.used)
    sums = np.add.reduceat(layers[design.layer, design.place], design.starts, axis=0)
    doubt = design.doubts(likelihood.base)[:, None]
    # log of e + (1 - e) times the ratio of all tests of a run
    with np.errstate(divide="ignore"):
        mixed = np.logaddexp(np.log(doubt), np.log(1 - doubt) + sums)
    tempered = np.where(doubt > 0, mixed, sums)
    parts = np.add.reduceat(tempered, design.part_starts, axis=0)
    factor = _of_operations(log_mean(parts, design.weights), design)
    return design.log_prior + factor, parts, layers


def _of_operations(log_factors: Floats, design: _Design) -> Floats:
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
    with np.errstate(divide="ignore"):
        some = total + np.log1p(-np.exp(np.minimum(none - total, 0))) - np.log1p(-np.exp(none))
    return np.where(number > 1, some, total)


def _single(design: _Design, likelihood: Likelihood, log_none: float = 0.0) -> Effect:
    """Weigh every cause as the only one besides what is explained already."""
    weight, sums, layers = _weights(design, likelihood)
    top = max(float(weight.max()), log_none)
    weights = np.exp(weight - top)
    none = float(np.exp(log_none - top))
    total = float(weights.sum()) + none
    shares = weights / total
    shown = np.flatnonzero(shares >= _SHOWN)
    likeliest_first = shown[np.argsort(-shares[shown], kind="stable")]
    explained, fails = _explain(design, sums, layers, int(np.argmax(shares)))
    return Effect(
        causes=tuple(design.columns[i].cause for i in likeliest_first),
        shares=tuple(shares[likeliest_first].tolist()),
        none=none / total,
        explained=explained,
        fails=fails,
    )


def _explain(design: _Design, sums: Floats, layers: Floats, cause: int) -> tuple[Floats, Floats]:
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
        weight = np.exp(sums[part] - sums[part].max()) * design.weights[part]
        weight /= weight.sum()
        dead = weight[-1]
        fails[tests] = dead * FAILS_IF_DEAD
        if dead >= 0.5:
            continue
        # The probability that the cause has affected a test: where the ratio is least, it has not
        log_ratio = layers[design.layer[entries], design.place[entries]] @ weight
        affected = 1 - (1 - penetrance) / np.exp(np.maximum(log_ratio, np.log(1 - penetrance)))
        explained[tests] = affected * (weight[:-1] @ SLOWDOWNS) / max(1 - dead, 1e-9)
    return explained, fails
