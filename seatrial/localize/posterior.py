"""The posterior over few causes of many slow tests. Pure.

Group testing with continuous, noisy results (Dorfman, 1943; adaptive and Bayesian: Aldridge, Johnson and Scarlett,
"Group Testing: An Information Theory Perspective", 2019, chapters 3 and 4). The causes are a sum of single effects
(SuSiE; Wang, Sarkar, Carbonetto and Stephens, J. R. Stat. Soc. B 82, 2020): each effect is exactly one cause or none,
so where tests cannot separate two causes, the shares of both add up to one.

    share(c) = prior(c) BF(c) / (1 + sum over all causes k of prior(k) BF(k))
    BF(c)    = product over operations of 1 - q + q times the mean over slowdowns d of
               product over kinds of like tests of e + (1 - e) times
               product over tests t of c of p(t | d) / p(t | no such cause)

A cause slows an operation with probability q, and at least one. Of a kind of tests all may be slow, with probability
e (`Levels`). A test is as slow as the worst of its causes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from seatrial.localize.blocks import block_columns
from seatrial.localize.causes import (
    ALWAYS,
    PENETRANCES,
    Cause,
    Column,
    columns,
    cut_column,
    groups_column,
    plausible,
    telling,
    with_penetrances,
)
from seatrial.localize.cut import best_sides, groups_apart, joined_by, pair_weights
from seatrial.localize.likelihood import FAILS_IF_DEAD, SHARES, SLOWDOWNS, Likelihood, log_mean, width_of
from seatrial.localize.membership import Start, likeliest
from seatrial.localize.observations import Bools, Floats, GroupTest, Ints, Observed

_MOST_EFFECTS, _MOST_CUTS, _SWEEPS, _SHOWN = 12, 3, 2, 0.01
_DEAD = 0.1  # of faults of a node, GPU or link, those that make tests fail
_SLOWS = np.array([1 / len(SLOWDOWNS)] * len(SLOWDOWNS) + [0.0])
_SLOWS_OR_KILLS = np.append((1 - _DEAD) * _SLOWS[:-1], _DEAD)
_HOPELESS = 0.99
_MOSTLY, _SELDOM, _NEARLY_ALL = 0.5, 0.03, 0.85  # shares of tests
_ALIKE = 2.2  # log odds of nine to one
_LEAST_BEHIND = 1 / 6  # of the nodes, that are behind a switch
_MANY_ENTRIES, _WEIGHED = 30_000, 300  # of which causes, the likeliest by the share of strays that is fitted
_ACTS = 0.5  # the probability that a cause slows one of several operations
_MAY_TIME_OUT = 0.3  # log slowdown of a cause whose tests fail, too
_COVERED = 2.0  # times its noise, of a test that known causes slow
_STEEP = 4  # power of the share of like tests that a cause slows, as the probability that their level is slowed
_LEAST_IN_GROUPS = 0.9  # the share of nodes that are in groups of two or more, of a spine
LEAST_OF_A_CUT = 4  # slow pairs across


@dataclass(frozen=True, slots=True)
class Effect:
    """One of the causes of slow tests: which it is, with shares that add up to one with that of `none`."""

    causes: tuple[Cause, ...]
    shares: tuple[float, ...]
    none: float
    explained: Floats  # of each test, the log slowdown that follows
    fails: Floats  # of each test, the probability of failing that follows
    touched: Bools  # the tests that it may have slowed


@dataclass(frozen=True, slots=True)
class Posterior:
    """The effects, the likeliest first, and the tests that they do not explain."""

    observed: Observed
    effects: tuple[Effect, ...]
    columns: tuple[Column, ...]
    either: frozenset[str] = frozenset()  # nodes that are slow, or behind one slow switch

    def unexplained(self, without: Effect | None = None, limit: float = 3.0) -> Bools:
        """Slow tests, slower than the effects account for by `limit` times their noise, and failed ones.

        The effect `without` does not count, nor those that are less sure than it.
        """
        others = self.effects if without is None else [e for e in self.effects if e.shares[0] > without.shares[0]]
        return _unexplained(self.observed, others, limit)

    @property
    def touched(self) -> Bools:
        """The tests that an effect may have slowed."""
        touched: Bools = np.zeros(len(self.observed.tests), dtype=bool)
        for effect in self.effects:
            touched |= effect.touched
        return touched

    def tests_of(self, cause: Cause) -> Ints:
        """The tests that a cause of an effect would slow, or any cut."""
        known = next((column.tests for column in self.columns if column.cause is cause), None)
        if known is not None:
            return known
        column = cut_column(self.observed.tests, frozenset(cause.nodes), len(cause.nodes))
        return next((some.tests for some in telling([column], self.observed)), column.tests)


class _Design:
    """The columns as flat arrays: one entry for each cause and test, in runs of one cause and one kind of like tests.

    Runs of one operation lie side by side.
    """

    def __init__(self, candidates: Sequence[Column], observed: Observed) -> None:
        self.columns, self.observed = tuple(candidates), observed
        test = np.concatenate([column.tests for column in candidates])
        cause = np.repeat(np.arange(len(candidates)), [len(column.tests) for column in candidates])
        self.operations = int(observed.collective.max()) + 1
        kinds = len(observed.like_sizes)
        run = (cause * self.operations + observed.collective[test]) * kinds + observed.like[test]
        order = np.argsort(run, kind="stable")
        self.test, run = test[order], run[order]
        self.used = np.unique(self.test)  # the tests that a cause may have slowed
        self.place = np.searchsorted(self.used, self.test)
        self.starts = np.flatnonzero(np.diff(run, prepend=-1))
        self.run_like = run[self.starts] % kinds
        part = run[self.starts] // kinds
        self.part_starts = np.flatnonzero(np.diff(part, prepend=-1))  # in runs
        self.part_cause = part[self.part_starts] // self.operations
        penetrance = [PENETRANCES.index(c.cause.penetrance) for c in candidates]
        self.layer = np.array(penetrance)[run // kinds // self.operations]
        shown = ~observed.failed & ~observed.alone
        number = np.add.reduceat(shown[self.test], self.starts, dtype=np.int64)
        share = np.minimum(1.0, number / observed.like_sizes[self.run_like].clip(min=1))
        always = np.array([1.0, *PENETRANCES[1:]])
        self.slowed = share * always[self.layer[self.starts]]  # the share of the like tests, of each run
        self.log_prior = np.array([c.cause.log_prior for c in candidates])
        kills = np.array([c.cause.kind in ("node", "gpu", "socket", "link") for c in candidates])
        self.weights = np.where(kills[self.part_cause][:, None], _SLOWS_OR_KILLS, _SLOWS)

    def doubts(self, base: Floats) -> Floats:
        """Of each run, the probability that its tests say nothing: faults, with what `base` knows, slow all alike."""
        observed = self.observed
        shown = ~observed.failed & ~observed.alone
        free = shown & (base < _COVERED * observed.scale)
        number = np.add.reduceat(shown[self.test], self.starts, dtype=np.int64)
        uncovered = np.add.reduceat(free[self.test], self.starts, dtype=np.int64)
        left = np.bincount(observed.like[free], minlength=len(observed.like_sizes))[self.run_like]
        sizes = observed.like_sizes[self.run_like].clip(min=1)
        doubt = observed.levels.doubt(self.run_like, 1 - number / sizes)
        clear = observed.levels.clear
        cleared = np.bincount(observed.like[clear], minlength=len(observed.like_sizes))[self.run_like]
        doubt[cleared > np.add.reduceat(clear[self.test], self.starts, dtype=np.int64)] = 0.0
        nothing_left = observed.levels.flat[self.run_like] & (uncovered == left) & (number > 0)
        return np.where(nothing_left, 1.0, doubt)


def infer(observed: Observed, groups: Mapping[str, frozenset[str]]) -> Posterior:
    """The likeliest effects, with as many cuts as make all of it likelier than the same tests without."""
    candidates = columns(observed, groups)
    if not candidates:  # all tests are fine
        return Posterior(observed, (), ())
    nothing = _likelihood(observed, [])
    blocks = telling(block_columns(observed, nothing, partial(_weighed, observed, nothing)), observed)
    design, cuts = _Design([*candidates, *with_penetrances(blocks, observed)], observed), list[Effect]()
    best = _grown([], design, observed)
    evidence = _evidence(best, design, observed)
    for _ in range(_MOST_CUTS):
        likelihood = _likelihood(observed, cuts)
        some = _cuts(observed, likelihood) if _unexplained(observed, cuts).sum() >= LEAST_OF_A_CUT else []
        known = {column.cause.name for column in design.columns if column.cause.kind == "cut"}
        some = [column for column in some if column.cause.name not in known]
        if not some:
            break
        with_cut = _Design([*design.columns, *some], observed)
        before = evidence
        for of_kind in _by_sides(some):  # one of more groups may be placement and a cut in two
            cut = _single(_Design(of_kind, observed), likelihood)
            if not cut.causes:
                continue
            grown = _grown([*cuts, cut], with_cut, observed)
            if (more := _evidence(grown, with_cut, observed)) > evidence:
                best, evidence, chosen = grown, more, cut
        if evidence <= before:
            break
        cuts.append(chosen)
        design = with_cut
    best, design, either = _refined(best, design, observed)
    return Posterior(observed, tuple(best), design.columns, either)


def _by_sides(cuts: Sequence[Column]) -> list[list[Column]]:
    """The cuts in two and those in more groups, where there are any."""
    in_two = [column for column in cuts if not column.cause.sides]
    return [some for some in (in_two, [column for column in cuts if column.cause.sides]) if some]


def _refined(
    effects: list[Effect], design: _Design, observed: Observed
) -> tuple[list[Effect], _Design, frozenset[str]]:
    """The effects, or likelier ones that do without nodes or GPUs that have fine tests too.

    One cause at a time may take a node for two of its links (`refine` of susieR), or a side of a cut for slow nodes.
    Last are nodes of which slow nodes and one slow switch are about as likely.
    """
    named = [effect.causes[0] for effect in effects if effect.causes[0].kind in ("node", "gpu")]
    doubtful = [cause for cause in named if observed.fine[_column(design.columns, cause).tests].any()]
    tries = list[tuple[list[Effect], _Design]]()
    for kind, nodes in ((cause.kind, cause.nodes) for cause in doubtful):
        others = [column for column in design.columns if (column.cause.kind, column.cause.nodes) != (kind, nodes)]
        tries += [([], _Design(others, observed))] if others else []
    behind = _behind_one_switch(named, design, observed)
    tries += [behind] if behind else []
    best, evidence = (effects, design), _evidence(effects, design, observed) if tries else 0.0
    of_nodes, of_switch = evidence, -np.inf
    for first, tried in tries:
        other = _grown(first, tried, observed)
        more = _evidence(other, tried, observed)
        if first:
            of_switch = more
        else:
            of_nodes = max(of_nodes, more)
        if more > evidence:
            best, evidence = (other, tried), more
    alike = abs(of_nodes - of_switch) < _ALIKE
    return *best, frozenset(behind[0][0].causes[0].nodes) if behind and alike else frozenset()


def _behind_one_switch(
    named: Sequence[Cause], design: _Design, observed: Observed
) -> tuple[list[Effect], _Design] | None:
    """The cut around the nodes that are named, as the effect to begin with; None where it explains nothing.

    Few nodes that were never fine together are more likely slow than behind a switch of their own.
    """
    everywhere = {node for test in observed.tests for node in test.nodes}
    side = {node for cause in named for node in cause.nodes}
    within = [i for i, test in enumerate(observed.tests) if len(set(test.nodes)) > 1 and side.issuperset(test.nodes)]
    likely = observed.fine[within].any() if within else len(side) >= _LEAST_BEHIND * len(everywhere)
    if not likely or not 1 < len(side) < len(everywhere):
        return None
    columns = _with_shares([cut_column(observed.tests, frozenset(side), len(everywhere))], observed)
    if not columns:
        return None
    effect = _single(_Design(columns, observed), _likelihood(observed, []))
    return ([effect], _Design([*design.columns, *columns], observed)) if effect.causes else None


def _column(columns: Sequence[Column], cause: Cause) -> Column:
    return next(column for column in columns if column.cause is cause)


def _grown(first: Sequence[Effect], design: _Design, observed: Observed) -> list[Effect]:
    """Add effects while there may be another, then let each give way to the others in turn.

    One of several faults is hardly likelier than a stray as long as the others count as strays, so even the unlikely
    are added first, and weighed when all are there.
    """
    effects, every = list(first), design
    if first:
        left = plausible(design.columns, observed, _unexplained(observed, first), _worst(first, len(observed.tests))[0])
        design = _Design(
            [*left, *(column for column in design.columns if column.cause is first[-1].causes[0])], observed
        )
    while len(effects) < _MOST_EFFECTS:
        added = _single(design, _likelihood(observed, effects))
        known = {effect.causes[0].key for effect in effects}
        if added.none > _HOPELESS or not added.causes or added.causes[0].key in known:
            break
        effects.append(added)
    return _settled(_settled(effects, design, observed) if first else effects, every, observed)


def _evidence(effects: Sequence[Effect], design: _Design, observed: Observed) -> float:
    """The log probability of all tests with the effects, each by its likeliest cause and given those before it."""
    columns = [_Design([_column(design.columns, effect.causes[0])], observed) for effect in effects]
    before = [_likelihood(observed, effects[:i]) for i in range(len(effects))] or [_likelihood(observed, [])]
    after = _likelihood(observed, effects)
    totals = []
    for share, prior in SHARES:
        total = before[0].with_strays(share, after).log_total + np.log(prior)
        for column, likelihood in zip(columns, before, strict=False):
            total += float(_weights(column, likelihood.with_strays(share, after))[0][0])
        totals.append(total)
    shares = sum(np.log(effect.shares[0]) for effect in effects)
    return float(np.logaddexp.reduce(totals) - shares)


def _settled(effects: list[Effect], design: _Design, observed: Observed) -> list[Effect]:
    """The effects after each has been weighed anew, given the others; what has become nothing is dropped."""
    for _ in range(_SWEEPS):
        for i in reversed(range(len(effects))):
            effects[i] = _single(design, _likelihood(observed, effects[:i] + effects[i + 1 :]))
            if effects[i].none > 0.5 or not effects[i].causes:
                del effects[i]
    return effects


def _unexplained(observed: Observed, effects: Sequence[Effect], limit: float = 3.0) -> Bools:
    explained, fails = _worst(effects, len(observed.tests))
    rest = observed.value + explained < -limit * width_of(observed.scale, explained)
    rest &= explained < -observed.value / 3  # or the worse part of it is explained
    odd: Bools = (observed.slow & rest) | (observed.failed & (fails < 0.5) & (explained < _MAY_TIME_OUT))
    return odd


def _likelihood(observed: Observed, effects: Sequence[Effect]) -> Likelihood:
    return Likelihood(observed, *_worst(effects, len(observed.tests)))


def _worst(effects: Sequence[Effect], tests: int) -> tuple[Floats, Floats]:
    zero = np.zeros(tests)
    slowdown = np.max([zero, *(effect.explained for effect in effects)], axis=0)
    return slowdown, np.max([zero, *(effect.fails for effect in effects)], axis=0)


def _cuts(observed: Observed, likelihood: Likelihood) -> list[Column]:
    """The likeliest cuts of the nodes in two and in more groups, with those near them.

    Enough pairs across must be slow, and be no slow nodes'.
    """
    names = sorted({node for test in observed.tests for node in test.nodes})
    place = {name: i for i, name in enumerate(names)}
    build, starts = partial(_divided, observed.tests, names), []
    told = ~observed.levels.flat[observed.like]  # of others all may be slow
    for penetrance in (ALWAYS, PENETRANCES[2]):
        for found_in, weight in enumerate(likelihood.severities(penetrance)):
            weights = pair_weights(observed.tests, np.where(told, weight, 0.0))
            many = [group for group in groups_apart(weights) if len(group) > 1]
            for groups in (*([side] for side in best_sides(weights)), many if len(many) > 2 else []):
                labels = np.full(len(names), -1 if len(groups) > 1 else 0, dtype=np.int64)
                for label, group in enumerate(groups, start=labels[0] + 1):
                    labels[[place[node] for node in group]] = label
                starts.append(Start(found_in if len(groups) == 1 else -1 - found_in, build, labels, names))
    found = likeliest(starts, partial(_weighed, observed, likelihood))
    joined = joined_by(observed.tests, observed.fine & told)
    found = [_joined_only(column, joined, observed.tests) if column.cause.sides else column for column in found]
    possible = [column for column in found if _is_cut(observed, column, place)]
    return _with_shares(possible, observed)


def _with_shares(cuts: Sequence[Column], observed: Observed) -> list[Column]:
    """Cuts, and those that slow a share of their tests if no more are slow within the sides than strays are.

    Else any pattern fits such a cut.
    """
    kept = []
    for column in with_penetrances(telling(cuts, observed), observed):
        within = np.setdiff1d(np.flatnonzero(~observed.alone), column.tests)
        is_quiet = observed.slow[within].sum() <= 1 + _SELDOM * len(within)
        if column.cause.penetrance == ALWAYS or is_quiet:
            kept.append(column)
    return kept


def _divided(tests: Sequence[GroupTest], names: Sequence[str], labels: Ints) -> Column | None:
    """The cut between the nodes of different labels, where -1 is none of them; None if it has a side of one node."""
    sides = [frozenset(names[int(i)] for i in np.flatnonzero(labels == label)) for label in range(labels.max() + 1)]
    sides = [side for side in sides if side]
    if len(sides) < 2 or min(map(len, sides)) < 2:
        return None
    if len(sides) > 2:
        return groups_column(tests, sides, len(names))
    return cut_column(tests, min(sides, key=lambda side: (len(side), min(side))), len(names))


def _joined_only(column: Column, joined: Mapping[str, str], tests: Sequence[GroupTest]) -> Column:
    """More than two groups without nodes that no chain of fine tests joins with theirs: these may be in any."""
    sides = []
    for side in column.cause.sides:
        (first, _), *_ = Counter(joined[node] for node in side).most_common(1)
        sides.append(frozenset(node for node in side if joined[node] == first))
    kept = groups_column(tests, sides, len(joined))
    cause = replace(kept.cause, near=column.cause.near, moved=column.cause.moved)
    return Column(cause, kept.tests)


def _is_cut(observed: Observed, column: Column, place: Mapping[str, int]) -> bool:
    """Whether enough tests across are slow, and most of those within each side are not.

    Without a fine test within each side, groups of more than two nodes tell of slow nodes as well.
    """
    groups = column.cause.sides or (column.cause.nodes, tuple(set(place).difference(column.cause.nodes)))
    if min(map(len, groups)) < 2 or sum(map(len, groups)) < _LEAST_IN_GROUPS * len(place):
        return False
    labels, sides = np.full(len(place), -1), len(groups)
    for label, some in enumerate(groups):
        labels[[place[node] for node in some]] = label
    side = np.array([labels[place[test.nodes[0]]] if len(set(test.nodes)) > 1 else -1 for test in observed.tests])
    side[column.tests] = -1
    fine_in = np.bincount(side[(side >= 0) & observed.fine], minlength=sides)
    slow = column.tests[observed.slow[column.tests]]
    across = {frozenset(observed.tests[i].nodes) for i in slow}
    if sum(len(nodes) == 2 or bool(fine_in.all()) for nodes in across) < LEAST_OF_A_CUT:
        return False
    if column.cause.sides and not _is_slow_throughout(observed, column.tests):
        return False
    usual = float(np.median(observed.value[slow]))
    as_slow = observed.slow & (observed.value < usual / 2) & (observed.value > 2 * usual)
    slow_in = np.bincount(side[(side >= 0) & as_slow], minlength=sides)
    others_in = np.bincount(side[(side >= 0) & ~as_slow & ~observed.failed], minlength=sides)
    return bool((slow_in <= others_in).all())


def _is_slow_throughout(observed: Observed, tests: Ints) -> bool:
    """Whether hardly a test is fine, in the operations in which most are slow. More groups fit too much else."""
    fine, number = 0, 0
    share = np.bincount(observed.like[tests], minlength=len(observed.like_sizes)) / observed.like_sizes.clip(min=1)
    tests = tests[(share < _NEARLY_ALL)[observed.like[tests]]]  # of others the level may be slow
    for operation in np.unique(observed.collective[tests]):
        some = tests[observed.collective[tests] == operation]
        if observed.slow[some].mean() > _MOSTLY:
            fine += int(observed.fine[some].sum())
            number += len(some)
    return number > 0 and fine <= _SELDOM * number


def _weights(design: _Design, likelihood: Likelihood) -> tuple[Floats, Floats, Floats]:
    """The log of prior times Bayes factor of each cause; the sums of its tests, and their log likelihood ratios."""
    layers = likelihood.ratios(*PENETRANCES[: design.layer.max() + 1], tests=design.used)
    sums = np.add.reduceat(layers[design.layer, design.place], design.starts, axis=0)
    with np.errstate(divide="ignore"):
        sums[:, :-1] = _at_either_level(design, likelihood, sums[:, :-1])
        doubt = design.doubts(likelihood.base)[:, None]
        tempered = np.where(doubt > 0, np.logaddexp(np.log(doubt), np.log(1 - doubt) + sums), sums)
    parts = np.add.reduceat(tempered, design.part_starts, axis=0)
    factor = _of_operations(log_mean(parts, design.weights), design)
    return design.log_prior + factor, parts, layers


def _weighed(observed: Observed, likelihood: Likelihood, candidates: Sequence[Column]) -> Floats:
    """The log of prior times Bayes factor of each cause."""
    weight, _, _ = _weights(_Design(candidates, observed), likelihood)
    return weight


def _at_either_level(design: _Design, likelihood: Likelihood, sums: Floats) -> Floats:
    """The log likelihood ratios of runs, where the level of like tests is that of the others or of the slowed ones.

    The more of the like tests a cause slows, the more likely it is the second: of all, its tests say nothing.
    """
    faster, of_like = likelihood.faster()
    rows = []
    for penetrance in PENETRANCES[: design.layer.max() + 1]:
        rows.append((np.logaddexp(np.log(penetrance), np.log(1 - penetrance) + faster) - faster)[design.used])
    others = of_like[design.run_like] + np.add.reduceat(
        np.array(rows)[design.layer, design.place], design.starts, axis=0
    )
    share = design.slowed[:, None] ** _STEEP
    either: Floats = np.logaddexp(np.log(share) + others, np.log(1 - share) + sums)
    return either


def _of_operations(log_factors: Floats, design: _Design) -> Floats:
    """The log Bayes factor of each cause from those of its operations, of which it slows at least one."""
    number = np.bincount(design.part_cause, minlength=len(design.columns))
    several = number[design.part_cause] > 1
    mixed = np.where(several, np.logaddexp(np.log(1 - _ACTS), np.log(_ACTS) + log_factors), log_factors)
    total = np.bincount(design.part_cause, mixed, len(design.columns))
    none = number * np.log(1 - _ACTS)
    with np.errstate(divide="ignore", invalid="ignore"):  # of one operation or none it is not used
        some = total + np.log1p(-np.exp(np.minimum(none - total, 0))) - np.log1p(-np.exp(none))
    return np.where(number > 1, some, total)


def _single(design: _Design, likelihood: Likelihood) -> Effect:
    """Weigh every cause as the only one besides what is explained already, over all shares of strays.

    With the right cause there are fewer strays than without.
    """
    if len(design.test) > _MANY_ENTRIES:
        weight, _, _ = _weights(design, likelihood)
        design = _Design([design.columns[i] for i in np.argsort(-weight, kind="stable")[:_WEIGHED]], design.observed)
    totals, nones = [], []
    for share, prior in SHARES:
        some = likelihood.with_strays(share)
        nones.append(some.log_total + np.log(prior))
        totals.append(_weights(design, some)[0] + nones[-1])
    weight, log_none = np.logaddexp.reduce(totals), float(np.logaddexp.reduce(nones))
    top = max(float(weight.max()), log_none)
    weights = np.exp(weight - top)
    none = float(np.exp(log_none - top))
    total = float(weights.sum()) + none
    shares = weights / total
    chosen = np.flatnonzero(shares >= _SHOWN)
    chosen = chosen[np.argsort(-shares[chosen], kind="stable")]
    best = int(np.argmax(shares))
    likeliest = int(np.argmax([of_share[best] for of_share in totals]))
    _, parts, layers = _weights(design, likelihood.with_strays(SHARES[likeliest][0]))
    causes = tuple(design.columns[i].cause for i in chosen)
    return Effect(causes, tuple(shares[chosen].tolist()), none / total, *_follows(design, parts, layers, best))


def _follows(design: _Design, parts: Floats, layers: Floats, cause: int) -> tuple[Floats, Floats, Bools]:
    """Of each test the log slowdown and the probability of failing that follow from a cause, and if it touches it."""
    tests_of_all = len(design.observed.tests)
    explained, fails, touched = np.zeros(tests_of_all), np.zeros(tests_of_all), np.zeros(tests_of_all, dtype=bool)
    penetrance = design.columns[cause].cause.penetrance
    ends = np.append(design.starts[design.part_starts][1:], len(design.test))
    starts = design.starts[design.part_starts]
    several = (design.part_cause == cause).sum() > 1
    for part in np.flatnonzero(design.part_cause == cause):
        if several and log_mean(parts[[part]], design.weights[[part]])[0] < 0:
            continue  # it does not slow this operation
        entries = slice(starts[part], ends[part])
        tests = design.test[entries]
        weight = np.exp(parts[part] - parts[part].max()) * design.weights[part]
        weight /= weight.sum()
        log_ratio = layers[design.layer[entries], design.place[entries]] @ weight
        affected = 1 - (1 - penetrance) / np.exp(np.maximum(log_ratio, np.log(1 - penetrance)))
        dead = weight[-1]
        explained[tests] = affected * (weight[:-1] @ SLOWDOWNS) / max(1 - dead, 1e-9) if dead < 0.5 else 0.0
        fails[tests] = dead * FAILS_IF_DEAD
        touched[tests] = True if penetrance == ALWAYS else affected > 0.5
    return explained, fails, touched
