"""Which node, GPU, rail, link or cut makes tests slow, from tests of groups of nodes.

    localize(tests, groups) -> Localization      what tests show that exist already

Tests can be planned in rounds of disjoint groups:

    state = start(nodes, gpus, groups)           once a collective of all nodes was slow
    while groups := plan(state, budget):         no groups: it is settled, or the budget is spent
        state = update(state, [group.result(collective, busbw_gb_s) for group in groups])
    state.localization -> Localization

All of it is pure: the same tests give the same answer. seatrial/checks/localize runs the rounds of
a run, and reads tests from logs.
"""

from seatrial.localize.findings import Finding
from seatrial.localize.group_tests import GroupTest
from seatrial.localize.localization import Localization, localize
from seatrial.localize.next_test import NextTest
from seatrial.localize.rounds import Budget, Group, State, plan, start, update

__all__ = [
    "Budget",
    "Finding",
    "Group",
    "GroupTest",
    "Localization",
    "NextTest",
    "State",
    "localize",
    "plan",
    "start",
    "update",
]
