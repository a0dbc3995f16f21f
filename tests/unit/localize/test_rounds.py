"""Rounds that a simulated fleet answers: the part that is slow is named, and no other, within five
rounds.
"""

import math
import random
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from seatrial.localize import Budget, Group, Localization, plan, start, update

GPUS = ("0", "1", "2", "3")
Speed = Callable[[Group], float]


def nodes(count: int) -> list[str]:
    return [f"n{i:03d}" for i in range(count)]


def localized(
    count: int,
    speed: Speed,
    seed: int = 0,
    gpus: tuple[str, ...] = GPUS,
    groups: Mapping[str, frozenset[str]] | None = None,
    sigma: float = 0.03,
    rounds: int = 5,
) -> tuple[Localization, int]:
    """The verdict on a fleet of that many nodes, and the rounds that it took."""
    noise = random.Random(seed)
    state = start(nodes(count), gpus, groups)
    while chosen := plan(state, Budget(rounds)):
        used = [
            (node, gpu)
            for group in chosen
            for node in group.nodes
            for gpu in group.gpus or ("all",)
        ]
        assert len(used) == len(set(used))
        values = [100 * speed(group) * math.exp(noise.gauss(0, sigma)) for group in chosen]
        results = [
            g.result("all_reduce", {1 << 30: v}) for g, v in zip(chosen, values, strict=True)
        ]
        state = update(state, results)
    return state.localization, state.rounds


def speed_with(slow: set[str], group: Group) -> float:
    return 0.6 if slow.intersection(group.nodes) else 1


def named(localization: Localization) -> set[tuple[str, str]]:
    return {(f.cause.kind, f.cause.name) for f in localization.findings if f.named}


def test_the_first_two_rounds_are_the_pairs_of_a_ring() -> None:
    state = start(nodes(6))
    first = plan(state, Budget())
    assert [group.nodes for group in first] == [
        ("n000", "n001"),
        ("n002", "n003"),
        ("n004", "n005"),
    ]
    state = update(state, [group.result("all_reduce", {1 << 30: 100.0}) for group in first])
    second = plan(state, Budget())
    assert [group.nodes for group in second] == [
        ("n001", "n002"),
        ("n003", "n004"),
        ("n005", "n000"),
    ]


def test_few_groups_per_round_are_longer_segments_of_the_ring() -> None:
    first = plan(start(nodes(64)), Budget(groups=8))
    assert [len(group.nodes) for group in first] == [8] * 8


def test_no_round_goes_beyond_the_budget() -> None:
    assert plan(start(nodes(8)), Budget(rounds=0)) == []
    assert plan(start(nodes(1)), Budget()) == []


LEAF = frozenset(nodes(16)[3:8])


@pytest.mark.parametrize("seed", range(3))
def test_slow_nodes_are_named_in_three_rounds(seed: int) -> None:
    slow = set(random.Random(seed).sample(nodes(232), 5))
    localization, _ = localized(232, partial(speed_with, slow), seed, rounds=3)
    assert named(localization) == {("node", node) for node in slow}


@pytest.mark.parametrize("gpus", [(), GPUS[:2]], ids=["whole nodes", "single GPUs"])
def test_where_most_nodes_are_slow_no_rail_link_or_cut_is_blamed_for_them(
    gpus: tuple[str, ...],
) -> None:
    for seed in range(12):
        slow = set(random.Random(seed).sample(nodes(8), 5))
        localization, _ = localized(8, partial(speed_with, slow), seed, gpus)
        assert named(localization) <= {("node", node) for node in slow}
        assert localization.verdict == ("degraded" if named(localization) else "inconclusive")
        assert named(localization) or localization.next_test


@pytest.mark.parametrize("seed", range(3))
def test_a_gpu_of_a_node_is_told_from_the_node(seed: int) -> None:
    localization, _ = localized(
        32, lambda group: 0.6 if "n005" in group.nodes and "2" in group.gpus else 1, seed
    )
    assert named(localization) == {("gpu", "n005/2")}


@pytest.mark.parametrize("seed", range(3))
def test_a_link_is_told_from_its_nodes(seed: int) -> None:
    localization, _ = localized(
        32, lambda group: 0.6 if set(group.nodes) == {"n004", "n005"} else 1, seed
    )
    assert named(localization) == {("link", "n004--n005")}


@pytest.mark.parametrize("seed", range(4))
def test_two_links_of_a_node_are_told_from_it_and_its_gpus(seed: int) -> None:
    shares = {frozenset({"n004", "n005"}): 0.55, frozenset({"n005", "n006"}): 0.6}
    localization, rounds = localized(32, lambda group: shares.get(frozenset(group.nodes), 1), seed)
    assert named(localization) == {("link", "n004--n005"), ("link", "n005--n006")}
    assert rounds <= 5


@pytest.mark.parametrize("seed", range(3))
def test_small_side_of_a_cut_is_named_though_a_few_tests_are_outliers(seed: int) -> None:
    strays = random.Random(seed)
    side = set(strays.sample(nodes(600), 5))

    def speed(group: Group) -> float:
        stray = strays.uniform(0.4, 0.9) if strays.random() < 0.01 else 1
        return stray * (0.75 if 0 < len(side.intersection(group.nodes)) < 2 else 1)

    localization, _ = localized(600, speed, seed)
    (cut,) = (finding for finding in localization.findings if finding.named)
    assert (cut.kind, set(cut.sides[0])) == ("cut", side)


@pytest.mark.parametrize(("seed", "sigma", "needed"), [(11, 0.1, 4), (33, 0.12, 5)])
def test_slow_nodes_are_named_in_few_rounds_of_noisy_tests(
    seed: int, sigma: float, needed: int
) -> None:
    slow = set(random.Random(seed).sample(nodes(32), 5))
    localization, rounds = localized(32, partial(speed_with, slow), seed, sigma=sigma)
    assert rounds == needed
    named = {finding.cause.name for finding in localization.findings if finding.named}
    assert named, localization.reason
    assert named <= slow


@pytest.mark.parametrize("seed", range(3))
def test_a_rail_that_slows_all_tests_alike_is_found_on_single_gpus(seed: int) -> None:
    localization, _ = localized(32, lambda group: 0.6 if "3" in group.gpus else 1, seed)
    assert named(localization) == {("rail", "3")}


@pytest.mark.parametrize("seed", range(3))
def test_cut_of_randomly_chosen_nodes_is_found_with_both_sides(seed: int) -> None:
    side = set(random.Random(seed).sample(nodes(32), 12))
    localization, _ = localized(
        32, lambda group: 0.5 if 0 < len(side.intersection(group.nodes)) < 2 else 1, seed
    )
    (cut,) = (finding for finding in localization.findings if finding.named)
    assert cut.kind == "cut"
    assert side in (set(cut.sides[0]), set(cut.sides[1]))


@pytest.mark.parametrize("count", [4, 8, 16])
def test_a_node_whose_tests_fail_is_named(count: int) -> None:
    state = start(nodes(count))
    while groups := plan(state, Budget()):
        results = [
            g.result("all_reduce", {} if "n003" in g.nodes else {1 << 30: 100.0}) for g in groups
        ]
        state = update(state, results)
    assert named(state.localization) == {("node", "n003")}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_failures_name_nothing(seed: int) -> None:
    fails = random.Random(seed)
    state = start(nodes(8))
    while groups := plan(state, Budget()):
        results = [
            g.result("all_reduce", {} if fails.random() < 0.2 else {1 << 30: 100.0}) for g in groups
        ]
        state = update(state, results)
    assert sum(test.failed for test in state.tests) >= 3
    assert named(state.localization) == set()


def test_a_healthy_fleet_names_nothing() -> None:
    localization, rounds = localized(16, lambda _: 1)
    assert named(localization) == set()
    assert rounds == 5


def test_a_cut_of_a_large_fleet_is_found_with_exactly_its_sides() -> None:
    side = set(random.Random(7).sample(nodes(232), 90))
    localization, _ = localized(
        232, lambda group: 0.55 if len(side.intersection(group.nodes)) == 1 else 1
    )
    (cut,) = (finding for finding in localization.findings if finding.named)
    assert cut.kind == "cut"
    assert side in (set(cut.sides[0]), set(cut.sides[1]))


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, ("cut", "n003 n004 n005 n006 n007")),
        # Either's uplink
        ({"rest": frozenset(nodes(16)) - LEAF, "leaf": LEAF}, ("cut", "n003 n004 n005 n006 n007")),
        (
            {"rack": LEAF, "leaf": LEAF, "zone": frozenset(nodes(16)), "n003": frozenset(["n003"])},
            ("switch", "leaf"),
        ),
    ],
    ids=["unknown", "two", "some"],
)
def test_slow_uplink_is_named_by_its_known_group_or_else_as_a_cut(
    others: dict[str, frozenset[str]], expected: tuple[str, str]
) -> None:
    localization, _ = localized(
        16, lambda group: 0.5 if 0 < len(LEAF.intersection(group.nodes)) < 2 else 1, groups=others
    )
    assert named(localization) == {expected}
