"""Who is blamed for which pattern of failed pairs."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.checks.connectivity.reachability import Pair, blame, pairs_to_try

NAMES = [f"node-{i}" for i in range(6)]


def tried(failing: set[frozenset[str]], names: list[str] = NAMES) -> dict[Pair, str]:
    return {pair: "refused" if frozenset(pair) in failing else "" for pair in permutations(names, 2)}


def all_of(name: str, names: list[str] = NAMES) -> set[frozenset[str]]:
    return {frozenset((name, other)) for other in names if other != name}


def test_nobody_is_blamed_when_all_pairs_work() -> None:
    assert blame(tried(set())) == blame({})
    assert blame(tried(set())).suspects == ()


def test_a_node_that_fails_everywhere_is_blamed_alone() -> None:
    found = blame(tried(all_of("node-3")))
    assert [(s.kind, s.name, s.confidence) for s in found.suspects] == [("node", "node-3", 1.0)]
    assert found.set_aside == ("node-3",)
    assert "5 of 5 nodes: refused" in found.suspects[0].evidence


def test_one_failing_pair_is_a_link_and_its_later_end_is_left_out() -> None:
    found = blame(tried({frozenset(("node-0", "node-4"))}))
    assert [(s.kind, s.name) for s in found.suspects] == [("link", "node-0--node-4")]
    assert found.set_aside == ("node-4",)


def test_a_node_and_a_link_at_once() -> None:
    found = blame(tried(all_of("node-5") | {frozenset(("node-1", "node-2"))}))
    assert {(s.kind, s.name) for s in found.suspects} == {("node", "node-5"), ("link", "node-1--node-2")}
    assert set(found.set_aside) == {"node-5", "node-2"}


def test_of_two_nodes_neither_is_blamed() -> None:
    found = blame(tried({frozenset(("node-0", "node-1"))}, NAMES[:2]))
    assert [(s.kind, s.confidence) for s in found.suspects] == [("link", 0.5)]
    assert found.set_aside == ("node-1",)


def test_one_direction_is_enough() -> None:
    pairs = tried(set()) | {("node-2", "node-1"): "timed out"}
    assert [s.name for s in blame(pairs).suspects] == ["node-1--node-2"]


@given(st.sets(st.sampled_from(sorted({tuple(sorted(p)) for p in permutations(NAMES, 2)}))))
def test_the_nodes_that_stay_all_reach_each_other(failing: set[tuple[str, str]]) -> None:
    found = blame(tried({frozenset(pair) for pair in failing}))
    stay = set(NAMES) - set(found.set_aside)
    assert not any(set(pair) <= stay for pair in failing)
    assert bool(found.suspects) == bool(failing)


@pytest.mark.parametrize("count", [2, 5, 32])
def test_small_testbeds_try_every_pair(count: int) -> None:
    names = [f"n{i}" for i in range(count)]
    peers = pairs_to_try(names, "seed")
    assert all(set(peers[name]) == set(names) - {name} for name in names)


def test_large_testbeds_try_a_ring_and_a_repeatable_sample() -> None:
    names = [f"n{i}" for i in range(100)]
    peers = pairs_to_try(names, "run-1")
    assert all(names[(i + 1) % 100] == peers[name][0] for i, name in enumerate(names))
    assert all(len(set(peers[name]) - {name}) == 9 for name in names)
    assert peers == pairs_to_try(names, "run-1") != pairs_to_try(names, "run-2")
