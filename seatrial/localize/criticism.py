"""Check the likeliest explanation against the tests, since the right cause may not be in the model
(Box, 1980).

Pure.
"""

from collections import defaultdict
from collections.abc import Mapping
from math import exp
from statistics import NormalDist

import numpy as np

from seatrial.localize.cause import ALWAYS, Cause, CauseKind, log_choose, side_of
from seatrial.localize.cut_search import LEAST_OF_A_CUT
from seatrial.localize.effects import Effect
from seatrial.localize.group_tests import TestsByName
from seatrial.localize.observations import Bools, Ints, Observed
from seatrial.localize.posterior import Posterior

NAMED = 0.9  # the confidence from which a part is named
OFTEN = 0.1  # least share of slow tests in an operation that a cause slows
# Least number of slow tests of a cause, so that strays alone never name a part.
LEAST_SLOW: Mapping[CauseKind, int] = {
    "cut": LEAST_OF_A_CUT,
    "switch": 3,
    "placement": 3,
    "rail": 4,
    "node": 2,
    "gpu": 3,
    "link": 2,
    "socket": 3,
    "leaf": 4,
}
_MORE_IF_SOMETIMES = 2  # further slow tests that an intermittent cause needs
_MANY_TESTS = 400
_STRAYS = 0.03  # largest share of strays: tests that are slow for unrelated reasons
_MISFIT = 0.3  # largest share of the slow tests that may remain unexplained
_SIGNIFICANT = 0.05  # significance level of the test that must support a cause
_CHANCE = 0.01  # significance level of the test that would contradict it


def supported(posterior: Posterior, effect: Effect) -> bool:
    """Return whether an effect has enough slow or failed tests, unexplained by other effects, to be
    more than strays.
    """
    if effect.none >= 1 - NAMED:
        return False
    odd = posterior.unexplained(without=effect)
    likeliest = effect.causes[:3]
    return any(_enough(posterior, cause, odd) for cause in likeliest)


def _enough(posterior: Posterior, cause: Cause, odd: Bools) -> bool:
    """Return whether the cause has as many `odd` tests as its kind needs."""
    observed = posterior.observed
    tests = posterior.tests_of(cause)
    hit = tests[odd[tests]]
    least = LEAST_SLOW[cause.kind]
    # Among so many tests, two strays may hit the same pair
    if cause.kind == "link" and len(observed.tests) >= _MANY_TESTS:
        least += 1
    if cause.penetrance < ALWAYS and cause.kind != "rail":
        least += _MORE_IF_SOMETIMES
    counts = np.where(observed.failed[hit], 0.5, 1.0)
    # The operations of one log share a stray
    by_operation = np.bincount(observed.collective[hit], counts)
    most = by_operation.max(initial=0)
    return bool(most >= least)


def unsettled(posterior: Posterior) -> Bools:
    """Return the mask of tests that are slow, failed or too fast without a known cause, and were
    not fine when repeated.

    The limit is corrected for the number of tests: noise alone exceeds it in one fleet of twenty.
    """
    observed = posterior.observed
    tests = observed.tests
    chance = 0.05 / max(1, len(tests))
    quantile = NormalDist().inv_cdf(chance)
    odd = posterior.unexplained(limit=max(3.0, -quantile))
    slow = np.flatnonzero(odd).tolist()
    nodes = {tests[i].nodes for i in slow}
    fine = set[object]()
    for i in np.flatnonzero(observed.fine).tolist():
        if tests[i].nodes in nodes:
            fine.add(_repeated(observed, i))
    for i in slow:
        odd[i] = _repeated(observed, i) not in fine
    odd |= observed.fast
    return odd


def _repeated(observed: Observed, i: int) -> object:
    """Return a key that a test shares with its repeats."""
    test = observed.tests[i]
    return observed.like[i], test.nodes, test.gpus


def has_misfits(posterior: Posterior, slowdown: float = 0.0, cause: Cause | None = None) -> bool:
    """Return whether the effects leave a large share of the slow tests unexplained, more than
    strays could be.

    If so, none of the candidates is the right cause. With a `slowdown`, only tests at least half as
    slow count. The limits are lower for an intermittent `cause`, since it fits many patterns.
    """
    observed = posterior.observed
    # Failures do not count: they may have other reasons
    as_slow = observed.slow & (observed.value < -slowdown / 2)
    left_over = unsettled(posterior) & as_slow
    left = int(left_over.sum())
    tests = int((~observed.alone).sum())
    slow = int(as_slow.sum())
    share = left / max(1, slow)
    if cause is None or cause.penetrance == ALWAYS:
        return share > _MISFIT and _beyond_strays(left, tests)
    usual = _STRAYS * tests
    return share > _MISFIT / 2 and left > usual + 1


def contradicted(posterior: Posterior, effect: Effect) -> bool:
    """Return whether tests contradict the part that an effect would name."""
    cause = effect.likeliest
    if effect.parts[cause.key] < NAMED:
        return False
    every = posterior.observed
    observed = posterior.left_to(cause)
    tests = posterior.tests_of(cause)
    within = slowed_operations(observed, tests)
    tests = tests[within[tests]]
    rest = within
    rest[tests] = False
    # Tests of the same nodes without the blamed GPUs have to be better
    if cause.kind in ("rail", "leaf", "socket"):
        compared = tests[~every.alone[tests]]
        others = np.flatnonzero(rest & ~every.alone)
        if not _contrasts(every, cause, compared, others):
            return True
    tests = tests[~observed.alone[tests]]
    if cause.kind == "cut":
        rest &= ~observed.alone
        if _slow_within(observed, cause, rest):
            return True
    if cause.penetrance == ALWAYS:
        return _is_mostly_fine(observed, tests)
    # All tests of a link are of the same nodes
    if cause.kind == "link":
        return False
    return _fits_its_parts(observed, cause, tests)


def _fits_its_parts(observed: Observed, cause: Cause, tests: Ints) -> bool:
    """Return whether a part of an intermittent cause explains its slow tests equally well."""
    if cause.kind == "rail" and _of_some_nodes(observed, tests):
        return True
    return _uneven(observed, tests)


def slowed_operations(observed: Observed, tests: Ints) -> Bools:
    """Return the mask of all tests of the operations in which at least `OFTEN` of the cause's tests
    are slow.
    """
    operation = observed.collective
    operations = int(operation.max()) + 1
    bad = observed.bad_of(tests)
    number = np.bincount(operation[tests], minlength=operations)
    slow = np.bincount(operation[bad], minlength=operations)
    often: Bools = slow > OFTEN * number
    return often[operation]


def _is_mostly_fine(observed: Observed, tests: Ints) -> bool:
    """Return whether more tests of a cause are clearly fine than strays explain."""
    slow = tests[observed.slow[tests]]
    if not len(slow):
        return False
    usual = float(np.median(observed.value[slow]))
    half = usual / 2
    clear = ~observed.failed[tests]
    clear &= observed.value[tests] > half
    # If the noise is as large as the slowdown, a fine test is not clear
    clear &= half < -2 * observed.scale[tests]
    return _beyond_strays(int(clear.sum()), len(tests))


def _contrasts(observed: Observed, cause: Cause, tests: Ints, rest: Ints) -> bool:
    """Return whether tests of the same nodes without the blamed GPUs are fine, or slow
    significantly less often (Fisher's exact test).
    """
    others = rest
    # A rail is on all nodes
    if nodes := set(cause.nodes):
        of_nodes = [not nodes.isdisjoint(observed.tests[i].nodes) for i in rest]
        others = rest[of_nodes]
    if not _is_slow(observed, others):
        return True
    hit = len(observed.bad_of(tests))
    slow = hit + len(observed.bad_of(others))
    total = len(tests) + len(others)
    chance = _chance(hit, len(tests), slow, total)
    return chance < _SIGNIFICANT


def _uneven(observed: Observed, tests: Ints) -> bool:
    """Return whether the slow tests of an intermittent cause share a node or GPU more often than by
    chance.
    """
    parts: TestsByName = defaultdict(list)
    for i in tests.tolist():
        test = observed.tests[i]
        for part in {*test.nodes}.union(*test.gpus):
            parts[part].append(i)
    slow = len(observed.bad_of(tests))
    least = 1.0
    for where in parts.values():
        hit = int(observed.bad[where].sum())
        chance = _chance(hit, len(where), slow, len(tests))
        least = min(least, chance)
    # Corrected for the number of parts, as one of many may match by chance
    return least < _CHANCE / max(1, len(parts))


def _of_some_nodes(observed: Observed, tests: Ints) -> bool:
    """Return whether every slow test of a rail includes a node without any fine test, which may be
    slow itself.
    """
    fine_tests = tests[observed.fine[tests]]
    fine = observed.nodes_of(fine_tests)
    slow = observed.bad_of(tests)
    return not observed.within(fine, slow)


def _slow_within(observed: Observed, cause: Cause, within: Bools) -> bool:
    """Return whether more tests within one side of a cut, or within all sides, are slow than strays
    explain.
    """
    group_of = side_of(observed.tests, cause.sides)
    tests = np.flatnonzero(within)
    for group in {*group_of.tolist()}:
        of_group = tests[group_of[tests] == group]
        if _is_slow(observed, of_group):
            return True
    return _is_slow(observed, tests)


def _is_slow(observed: Observed, tests: Ints) -> bool:
    """Return whether more of the tests are slow than strays explain."""
    slow = observed.bad_of(tests)
    return _beyond_strays(len(slow), len(tests))


def _beyond_strays(slow: int, of: int) -> bool:
    """Return whether `slow` of `of` tests exceed the number of strays by more than three sigma
    (Poisson).
    """
    usual = _STRAYS * of
    sigma: float = usual**0.5
    return slow > usual + 3 * sigma + 1


def _chance(hit: int, drawn: int, marked: int, total: int) -> float:
    """Return the hypergeometric probability that at least `hit` of `drawn` items are marked, if
    `marked` of `total` are.
    """
    first = max(hit, drawn + marked - total)
    last = min(drawn, marked)
    choices = log_choose(total, drawn)
    chances = []
    for k in range(first, last + 1):
        others = log_choose(total - marked, drawn - k)
        favourable = log_choose(marked, k) + others
        chances.append(exp(favourable - choices))
    return sum(chances)
