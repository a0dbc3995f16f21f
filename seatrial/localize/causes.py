"""Candidate causes of slow tests, and the tests that each of them slows. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np

from seatrial.localize.addresses import across_sockets
from seatrial.localize.cause import (
    EXPECTED,
    PLACEMENTS,
    Cause,
    CauseKind,
    Column,
    cut_column,
    one_way,
    possible_causes,
)
from seatrial.localize.gpu_causes import of_gpus, of_rails
from seatrial.localize.group_tests import GroupTest, Names, Switches
from seatrial.localize.observations import Observed

Places = dict[str, tuple[Names, list[int]]]


def columns(observed: Observed, groups: Switches) -> list[Column]:
    """Return all causes with a slow or failed test, except cuts that are not in `groups`.

    `groups` are the nodes behind each switch, by its name.
    """
    tests = observed.tests
    bad = set(np.flatnonzero(observed.bad).tolist())
    ends = _nodes(tests)
    links = _links(tests)
    with_bad = {name: link for name, link in links.items() if not bad.isdisjoint(link[1])}
    bad_links = _of("link", with_bad, len(links))
    candidates = [
        *_of("node", ends),
        *of_gpus(observed),
        *bad_links,
        *one_way(observed, bad_links, ends),
        *_switches(observed, groups),
        *_of("placement", _placements(tests)),
        *of_rails(observed),
    ]
    return possible_causes(candidates, observed)


def _of(kind: CauseKind, places: Places, total: int = 0) -> list[Column]:
    """Return the columns of the parts of a kind; `total` is their number in the fleet (default: the
    number of `places`).
    """
    number = max(1, total or len(places))
    log_prior = log(EXPECTED[kind] / number)
    parts = []
    for name, (nodes, where) in places.items():
        if where:
            cause = Cause(kind, name, nodes, log_prior=log_prior)
            parts.append(Column.of(cause, where))
    return parts


def _nodes(tests: Sequence[GroupTest]) -> Places:
    """Return each node with the indices of its tests."""
    places: Places = {}
    for i, test in enumerate(tests):
        for node in dict.fromkeys(test.nodes):
            _, where = places.setdefault(node, ((node,), []))
            where.append(i)
    return places


def _links(tests: Sequence[GroupTest]) -> Places:
    """Return the links between ring neighbours, each with the indices of its tests."""
    places: Places = {}
    for i, test in enumerate(tests):
        for pair in test.neighbours:
            name = "--".join(pair)
            _, where = places.setdefault(name, (pair, []))
            where.append(i)
    return places


def _switches(observed: Observed, groups: Switches) -> list[Column]:
    """Return a column for the uplink of each switch, and for each cut between groups.

    An uplink would slow the tests with nodes both inside and outside of its group. Groups of one
    node are left out, and of groups with the same nodes only the last is kept. Groups whose uplinks
    have the same tests become the sides of a cut.
    """
    alike: dict[tuple[int, ...], dict[frozenset[str], str]] = defaultdict(dict)
    for name, members in groups.items():
        if len(members) > 1:
            cut = cut_column(observed, (members, observed.nodes - members))
            across = tuple(cut.tests.tolist())
            alike[across][members] = name
    switches: Places = {}
    cuts = list[Column]()
    for across, names in alike.items():
        smaller = min(names, key=len)
        if len(names) > 1:
            rest = observed.nodes - smaller
            cuts.append(cut_column(observed, (smaller, rest)))
        else:
            nodes = tuple(sorted(smaller))
            switches[names[smaller]] = (nodes, list(across))
    columns = _of("switch", switches)
    number = max(1, len(cuts))
    log_prior = log(EXPECTED["cut"] / number)
    for cut in cuts:
        if len(cut.tests):
            cause = replace(cut.cause, log_prior=log_prior)
            columns.append(replace(cut, cause=cause))
    return columns


def _placements(tests: Sequence[GroupTest]) -> Places:
    """Return the tests of each GPU placement that some tests use and others do not."""
    crossed = []
    across = []
    for i, test in enumerate(tests):
        if test.crossed:
            crossed.append(i)
        if across_sockets(test):
            across.append(i)
    places: Places = {}
    for name, where in (("rails", crossed), ("sockets", across)):
        if len(where) < len(tests):
            places[PLACEMENTS[name]] = ((), where)
    return places
