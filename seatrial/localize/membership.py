"""Causes that divide the nodes: which nodes belong to them, and which may as well not. Pure.

A search finds one division; the tests may fit others that differ by a node. All of them are candidates, so that their
shares tell how sure each node is.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from seatrial.localize.causes import ALWAYS, SOMETIMES, Column
from seatrial.localize.observations import Floats, Ints

MOST_NODES = 100  # of which each is tried in other groups
_MOST_STARTS, _MOST_MOVES = 2, 40  # of each severity; of one node

_PENETRANCES = (ALWAYS, 0.5)  # that divisions are sought with
_NEAR = 4.0  # log odds, less likely than the best by which a division is no candidate

Build = Callable[[Ints], Column | None]  # the cause of nodes with these labels, from 0 on; None if it is none
Weigh = Callable[[Sequence[Column]], Floats]  # log prior times Bayes factor of each


@dataclass(frozen=True)
class Start:
    """A division to begin from: the cause of labels of the nodes that are called `names`.

    It was found in tests of one operation, for slowdowns of one severity: `found_in` is their number.
    """

    found_in: int
    build: Build
    labels: Ints
    names: Sequence[str]


def likeliest(starts: Iterable[Start], weigh: Weigh) -> list[Column]:
    """The causes that are found from the likeliest starts, and those that are near them."""
    begun = {
        (c.cause.name, c.cause.at_one_end): (start, c)
        for start in starts
        if (c := start.build(start.labels)) and len(c.tests)
    }
    if not begun:
        return []
    sought = [(start, column, penetrance) for start, column in begun.values() for penetrance in _PENETRANCES]
    weights = weigh([_slowing(column, penetrance) for _, column, penetrance in sought])
    tried = Counter[int]()
    found: dict[tuple[str, bool], Column] = {}
    for i in np.argsort(-weights):
        start, _, penetrance = sought[int(i)]
        tried[start.found_in] += 1
        if tried[start.found_in] <= _MOST_STARTS:
            for column in _settled(start, penetrance, weigh):
                found.setdefault((column.cause.name, column.cause.at_one_end), column)
    return list(found.values())


def _slowing(column: Column, penetrance: float) -> Column:
    """The cause that slows a share of its tests."""
    log_prior = column.cause.log_prior + (log(SOMETIMES) if penetrance < ALWAYS else 0.0)
    return replace(column, cause=replace(column.cause, penetrance=penetrance, log_prior=log_prior))


def _settled(start: Start, penetrance: float, weigh: Weigh) -> list[Column]:
    """Move one node at a time while that makes the cause likelier. Returns the best, and those within a move of it."""
    labels, best = start.labels, start.build(start.labels)
    if best is None:
        return []
    if len(labels) > MOST_NODES:
        return [best]
    value = float(weigh([_slowing(best, penetrance)])[0])
    for _ in range(_MOST_MOVES):
        moves = [
            (node, moved, column)
            for node, moved in _moves(labels)
            if (column := start.build(moved)) and len(column.tests)
        ]
        if not moves:
            return [best]
        weights = weigh([_slowing(column, penetrance) for _, _, column in moves])
        top = int(np.argmax(weights))
        if weights[top] <= value:
            break
        (_, labels, best), value = moves[top], float(weights[top])
    found = [best]
    for (node, _, column), weight in zip(moves, weights, strict=True):
        if weight > value - _NEAR:
            cause = replace(column.cause, near=best.cause.name, moved=start.names[node])
            found.append(replace(column, cause=cause))
    return found


def _moves(labels: Ints) -> Iterator[tuple[int, Ints]]:
    """Each node with all labels that differ for it alone."""
    for node, own in enumerate(labels.tolist()):
        for label in range(int(labels.max()) + 1):
            if label != own:
                moved = labels.copy()
                moved[node] = label
                yield node, moved
