"""Search for cuts between two or more groups of nodes, given the effects already found. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.localize.cause import ALWAYS, Column, Key, cut_column, possible_causes, side_of
from seatrial.localize.cut import Pairs, best_side, groups_apart
from seatrial.localize.design import Design
from seatrial.localize.effects import Effect, likelihood_beside, unexplained
from seatrial.localize.likelihood import SOUGHT
from seatrial.localize.observations import Bools, Floats, Observed

LEAST_OF_A_CUT = 4  # slow pairs across
_LEAST_GROUPS = 3  # least number of groups of a cut in more than two
_LEAST_IN_GROUPS = 0.9  # least share of nodes in groups of two or more


@dataclass(frozen=True, slots=True)
class CutSearch:
    """Search for cuts between nodes.

    Cuts whose keys are `excluded` are not returned.
    """

    observed: Observed
    pairs: Pairs
    excluded: Collection[Key]
    with_single_nodes: bool

    def new_beside(self, known: Sequence[Effect], design: Design) -> list[Column]:
        """Return the best cuts beside the `known` effects that are not yet in the design."""
        odd = unexplained(known, self.observed)
        if odd.sum() < LEAST_OF_A_CUT:
            return []
        # Several severities may show the same cut
        by_key = {column.cause.key: column for column in self._splits(known)}
        cuts = list[Column]()
        for column in by_key.values():
            if _is_cut(self.observed, column, odd):
                cuts.append(column)
        possible = possible_causes(cuts, self.observed)
        old = {column.cause.key for column in design.columns}
        old.update(self.excluded)
        return [column for column in possible if column.cause.key not in old]

    def _splits(self, known: Sequence[Effect]) -> Iterator[Column]:
        """Yield, for each severity, the likeliest cut in two, and the likeliest in more groups."""
        observed = self.observed
        nodes = observed.nodes
        most = len(nodes) - 2
        # Tests of a kind without a slow one may all be slowed by the cut, so they show nothing
        flat = observed.levels.flat
        informative = ~flat[observed.like]
        likelihood = likelihood_beside(known, observed)
        # Next to a known cause, too many intermittent cuts fit
        penetrances = list(SOUGHT)
        if known:
            penetrances = [ALWAYS]
        for penetrance in penetrances:
            for ratio in likelihood.severities(penetrance):
                weight = informative * ratio
                side = best_side(self.pairs, weight)
                if 2 <= len(side) <= most:
                    yield cut_column(observed, (side, nodes - side))
                # If it may slow only a share of its tests, too many cuts into groups fit
                if penetrance == ALWAYS:
                    yield from self._several(weight)

    def _several(self, weight: Floats) -> Iterator[Column]:
        """Yield the likeliest cut in more than two groups, if there is one."""
        groups = groups_apart(self.pairs, weight)
        groups.sort(key=min)
        several = [group for group in groups if len(group) > 1]
        if len(several) < _LEAST_GROUPS:
            return
        in_groups = sum(map(len, several))
        if in_groups >= _LEAST_IN_GROUPS * len(self.observed.nodes):
            yield cut_column(self.observed, several)
        elif self.with_single_nodes:
            yield cut_column(self.observed, groups)


def _is_cut(observed: Observed, column: Column, odd: Bools) -> bool:
    """Return whether enough pairs across are odd, and no side has more odd tests than fine ones."""
    across = column.tests
    slow_across = across[odd[across]]
    pairs = {frozenset(observed.tests[i].nodes) for i in slow_across}
    if len(pairs) < LEAST_OF_A_CUT:
        return False
    sides = column.cause.sides
    side = side_of(observed.tests, sides)
    # Tests across get an index of their own, after those of the sides
    side[across] = len(sides)
    odd_by_side = np.bincount(side, odd)
    fine_by_side = np.bincount(side, observed.fine)
    may_be_whole = odd_by_side <= fine_by_side
    within = may_be_whole[: len(sides)]
    return bool(within.all())
