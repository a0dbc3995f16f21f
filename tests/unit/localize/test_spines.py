"""Spines, whose groups of nodes are slow with each other."""

import random
from itertools import combinations

import pytest

from seatrial.localize import localize
from tests.unit.localize.given_speeds import group_tests, named, nodes

PAIRS_OF_12 = list(combinations(nodes(12), 2))


def test_three_groups_are_reported_as_such_and_not_as_one_cut() -> None:
    groups = [set(nodes(12)[i : i + 4]) for i in range(0, 12, 4)]
    apart = [
        pair
        for pair in combinations(nodes(12), 2)
        if not any(set(pair) <= group for group in groups)
    ]
    localization = localize(
        group_tests(PAIRS_OF_12, lambda _, group, *__: 0.5 if tuple(group) in apart else 1)
    )
    (finding,) = localization.findings
    assert [set(side) for side in finding.sides] == groups
    # Without a pair in a group, no group is known
    most = [pair for pair in PAIRS_OF_12 if pair in apart]
    assert not any(f.named for f in localize(group_tests(most, lambda *_: 0.5)).findings)


def test_a_spine_is_a_cut_between_its_groups() -> None:
    leaves = [nodes(24)[i : i + 4] for i in range(0, 24, 4)]
    drawn = random.Random(1)
    pairs = [pair for leaf in leaves for pair in combinations(leaf, 2)]
    pairs += [(a, b) for a, b in (drawn.sample(nodes(24), 2) for _ in range(60))]
    together = {frozenset(pair) for leaf in leaves for pair in combinations(leaf, 2)}
    localization = localize(
        group_tests(pairs, lambda _, group, *__: 1 if frozenset(group) in together else 0.6)
    )
    (finding,) = localization.findings
    assert finding.named
    assert sorted(map(list, finding.sides)) == leaves


def test_the_groups_of_a_spine_are_named_though_one_pair_in_eighteen_is_fast() -> None:
    groups = [nodes(36)[i : i + 3] for i in range(0, 36, 3)]
    together = {pair for group in groups for pair in combinations(group, 2)}
    localization = localize(
        group_tests(
            list(combinations(nodes(36), 2)),
            lambda _, group, *__: 1 if tuple(group) in together else 0.6,
        )
    )
    (finding,) = localization.findings
    assert finding.named
    assert sorted(map(list, finding.sides)) == groups


@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_of_a_spine_without_a_test_in_their_group_are_unsure_and_hide_no_other(
    seed: int,
) -> None:
    leaves = [nodes(24)[i : i + 4] for i in range(0, 24, 4)]
    unplaced = {"n03", "n07", "n11"}
    inside = [pair for leaf in leaves for pair in combinations(leaf, 2)]
    outside = [pair for pair in combinations(nodes(24), 2) if pair not in inside]
    pairs = [pair for pair in inside if unplaced.isdisjoint(pair)] + random.Random(seed).sample(
        outside, 120
    )
    localization = localize(
        group_tests(pairs, lambda _, group, *__: 1 if tuple(group) in inside else 0.6, seed=seed)
    )
    (finding,) = localization.findings
    assert (finding.kind, finding.named, set(finding.unsure)) == ("cut", True, unplaced)
    assert sorted(map(set, finding.sides), key=min) == [set(leaf) - unplaced for leaf in leaves]
    assert finding.title == "a cut between 6 groups"


@pytest.mark.parametrize("seed", [1, 6, 9])
def test_a_node_without_a_test_in_its_group_is_not_blamed_for_the_spine(seed: int) -> None:
    """n08 and n09 are a group, and were never tested with each other."""
    leaves = [nodes(10)[:4], nodes(10)[4:8]]
    inside = {pair for leaf in leaves for pair in combinations(leaf, 2)}
    pairs = [pair for pair in combinations(nodes(10), 2) if pair != ("n08", "n09")]
    tested = random.Random(seed).sample(pairs, 30)
    localization = localize(
        group_tests(tested, lambda _, group, *__: 1 if tuple(group) in inside else 0.7, seed=seed)
    )
    assert localization.findings
    assert {kind for kind, _ in named(localization)} <= {"cut"}
