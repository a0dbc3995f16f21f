"""Check the best explanation against the tests, since the model may lack the right one (Box, 1980).

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
OFTEN = 0.1  # the share of tests that are slow in an operation that a cause slows, at the least
# Slow tests that a cause needs, so that no stray names a part.
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
_MORE_IF_SOMETIMES = 2  # tests, of a cause that slows only a share of its tests
_MANY_TESTS = 400
_STRAYS = 0.03  # the share of tests that are slow for a reason of their own, at the most
_MISFIT = 0.3  # of the slow tests, that no cause explains
_SIGNIFICANT = 0.05  # the level of a test that a cause has to pass
_CHANCE = 0.01  # and of one that it must not


def supported(posterior: Posterior, effect: Effect) -> bool:
    """Return whether enough tests that nothing else explains are slow or failed, so that it is more
    than a stray.
    """
    if effect.none >= 1 - NAMED:
        return False
    odd = posterior.unexplained(without=effect)
    likeliest = effect.causes[:3]
    return any(_enough(posterior, cause, odd) for cause in likeliest)


def _enough(posterior: Posterior, cause: Cause, odd: Bools) -> bool:
    """Return whether as many tests of a cause are odd as it needs."""
    observed = posterior.observed
    tests = posterior.tests_of(cause)
    hit = tests[odd[tests]]
    least = LEAST_SLOW[cause.kind]
    # Of so many tests two strays may be of one pair
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
    """Return tests slow, failed or too fast for no known cause, of which no repeat was fine.

    The limit allows for the number of tests: one fleet in twenty has such a test by noise alone.
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
    """Return what a test has in common with its repeats."""
    test = observed.tests[i]
    return observed.like[i], test.nodes, test.gpus


def has_misfits(posterior: Posterior, slowdown: float = 0.0, cause: Cause | None = None) -> bool:
    """Return whether more slow tests are left than strays could be, and not just a few of all that
    are slow.

    Then the right cause is none of the candidates, and the best of them is no more than that. Of a
    cause with a `slowdown`, tests count that are at least half as slow. An intermittent `cause`
    fits many patterns: it may leave half as many, and no more than strays usually are.
    """
    observed = posterior.observed
    # Failures have reasons of their own
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
    """Return whether tests contradict what an effect would name."""
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
    # Without the GPUs that are blamed, tests of the same nodes have to be better
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
    """Return whether parts of an intermittent cause explain its slow tests as well."""
    if cause.kind == "rail" and _of_some_nodes(observed, tests):
        return True
    return _uneven(observed, tests)


def slowed_operations(observed: Observed, tests: Ints) -> Bools:
    """Return the tests of the operations in which tests of a cause are slow often."""
    operation = observed.collective
    operations = int(operation.max()) + 1
    bad = observed.bad_of(tests)
    number = np.bincount(operation[tests], minlength=operations)
    slow = np.bincount(operation[bad], minlength=operations)
    often: Bools = slow > OFTEN * number
    return often[operation]


def _is_mostly_fine(observed: Observed, tests: Ints) -> bool:
    """Return whether more tests of a cause are clearly fine than strays would be."""
    slow = tests[observed.slow[tests]]
    if not len(slow):
        return False
    usual = float(np.median(observed.value[slow]))
    half = usual / 2
    clear = ~observed.failed[tests]
    clear &= observed.value[tests] > half
    # Where noise is as wide, a test between the two is not clear
    clear &= half < -2 * observed.scale[tests]
    return _beyond_strays(int(clear.sum()), len(tests))


def _contrasts(observed: Observed, cause: Cause, tests: Ints, rest: Ints) -> bool:
    """Return whether tests of the same nodes without the GPUs are fine, or fewer are slow (Fisher's
    exact test).
    """
    others = rest
    # A rail has no nodes of its own
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
    """Return whether the slow tests of an intermittent cause share a node or GPU, as if that were
    the cause.
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
    # One of many parts may look like it by chance
    return least < _CHANCE / max(1, len(parts))


def _of_some_nodes(observed: Observed, tests: Ints) -> bool:
    """Return whether each slow test of a rail has a node that is fine in no test, and so may be
    slow itself.
    """
    fine_tests = tests[observed.fine[tests]]
    fine = observed.nodes_of(fine_tests)
    slow = observed.bad_of(tests)
    return not observed.within(fine, slow)


def _slow_within(observed: Observed, cause: Cause, within: Bools) -> bool:
    """Return whether more tests within the groups of a cut are slow than strays are, of one group
    or of all.
    """
    group_of = side_of(observed.tests, cause.sides)
    tests = np.flatnonzero(within)
    for group in {*group_of.tolist()}:
        of_group = tests[group_of[tests] == group]
        if _is_slow(observed, of_group):
            return True
    return _is_slow(observed, tests)


def _is_slow(observed: Observed, tests: Ints) -> bool:
    """Return whether more of the tests are slow than strays are."""
    slow = observed.bad_of(tests)
    return _beyond_strays(len(slow), len(tests))


def _beyond_strays(slow: int, of: int) -> bool:
    """Return whether more tests are slow than strays are, but for three sigma (Poisson)."""
    usual = _STRAYS * of
    sigma: float = usual**0.5
    return slow > usual + 3 * sigma + 1


def _chance(hit: int, drawn: int, marked: int, total: int) -> float:
    """Return the probability that so many or more of those drawn are marked, by the hypergeometric
    distribution.
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
