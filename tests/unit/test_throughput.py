"""Which streams between nodes are measured, how often, how many at a time, and which could not
be.
"""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.checks.connectivity.rates import Streams, egress, slow_nodes
from seatrial.checks.connectivity.reachability import Pair
from seatrial.checks.connectivity.slow_streams import slow_suspects, summary
from seatrial.checks.connectivity.throughput import AT_ONCE, SECOND_TRIES, Plan, explore, partners
from tests.unit.fake_network import FAST, FOUR, SLOW, names, network


def test_a_stream_that_is_slow_once_is_not_blamed() -> None:
    tries: dict[str, int] = {}

    def stumbling(a: str, b: str) -> float:
        tries[a] = tries.get(a, 0) + 1
        return SLOW if a == "node-2" and tries[a] < 3 else FAST

    streams = explore(Plan(FOUR), network(stumbling))
    assert slow_nodes(streams) == []


@pytest.mark.parametrize("seed", range(200))
def test_nodes_and_links_are_blamed_only_after_three_tries(seed: int) -> None:
    """Single streams are slow at random, as on a machine whose few cores run many nodes."""
    rng, tries = random.Random(seed), Counter[frozenset[str]]()

    def busy(pairs: Sequence[Pair]) -> Streams:
        tries.update(frozenset(pair) for pair in pairs)
        return {
            way: FAST / rng.choice([1] * 9 + [5, 12]) for a, b in pairs for way in ((a, b), (b, a))
        }

    for suspect in slow_suspects(
        explore(Plan(names(rng.choice([4, 6, 12, 16])), rng.random() < 0.5), busy)
    ):
        link = frozenset(suspect.name.split("--"))
        assert sum(times for met, times in tries.items() if link <= met) >= 1 + SECOND_TRIES


def test_a_link_that_cannot_be_measured_is_left_out() -> None:
    assert summary(explore(Plan(FOUR), lambda pairs: {})) == "not measured"
    streams = explore(
        Plan(FOUR), lambda pairs: {} if "node-3" in pairs[0] else network(lambda a, b: FAST)(pairs)
    )
    assert set(egress(streams)) == {"node-0", "node-1", "node-2"}
    assert explore(Plan(("node-0",)), network(lambda a, b: FAST)) == {}


@given(st.integers(2, 40), st.integers(0, 800_000))
def test_every_link_is_measured_once_in_as_many_days_as_there_are_nodes(
    nodes: int, first: int
) -> None:
    all_links = {frozenset(pair) for pair in combinations(names(nodes), 2)}
    days = range(first, first + nodes + 1)
    assert {frozenset(pair) for day in days for pair in partners(names(nodes), day)} == all_links
    for day in days:
        ends = [name for pair in partners(names(nodes), day) for name in pair]
        assert len(ends) == len(set(ends)) == nodes // 2 * 2


@pytest.mark.parametrize("nodes", [4, 7, 8, 15, 16, 29, 36])
def test_weekly_runs_measure_every_link_too(nodes: int) -> None:
    days = range(0, 7 * (nodes + 1), 7)
    met = {frozenset(pair) for day in days for pair in partners(names(nodes), day)}
    assert met == {frozenset(pair) for pair in combinations(names(nodes), 2)}


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 12, 33])
def test_daily_partner_pairs_are_measured_in_addition_to_the_ring(nodes: int) -> None:
    ring = [frozenset(pair) for batch in Plan(names(nodes)).rounds() for pair in batch]
    for day in range(nodes):
        planned = [
            frozenset(pair) for batch in Plan(names(nodes), day=day).rounds() for pair in batch
        ]
        assert planned[: len(ring)] == ring
        assert (
            len(planned)
            == len(set(planned))
            == len(ring) + len({*map(frozenset, partners(names(nodes), day))} - {*ring})
        )


@given(st.integers(2, 100))
def test_every_ring_link_is_measured_once_and_nobody_twice_at_a_time(nodes: int) -> None:
    batches = Plan(names(nodes)).rounds()
    for batch in batches:
        ends = [name for pair in batch for name in pair]
        assert len(ends) == len(set(ends))
        assert len(batch) <= (1 if nodes <= 8 else AT_ONCE)
    ring = [*pairwise(names(nodes)), *([(f"node-{nodes - 1}", "node-0")] if nodes > 2 else [])]
    assert sorted(pair for batch in batches for pair in batch) == sorted(ring)


@pytest.mark.parametrize("nodes", [9, 12, 64])
@pytest.mark.parametrize("slow", [(), ("node-3",)])
def test_many_nodes_of_one_machine_have_one_neighbour_each_and_a_slow_one_is_named(
    nodes: int, slow: tuple[str, ...]
) -> None:
    plan = Plan(names(nodes), one_machine=True, day=3)
    tried: list[Pair] = []
    carry = network(lambda a, b: SLOW if a in slow else FAST)

    def measure(pairs: Sequence[Pair]) -> dict[Pair, float]:
        assert len(pairs) == 1  # its cores carry one stream at a time
        tried.extend(pairs)
        return carry(pairs)

    streams = explore(plan, measure)
    assert sorted(slow_nodes(streams)) == sorted(slow)
    assert not plan.not_measured(streams)
    assert {name for pair in tried for name in pair} == set(names(nodes))
    assert len(tried) <= nodes // 2 + nodes % 2 + 2 * len(slow) + 2


def test_streams_that_could_not_be_measured_are_named() -> None:
    assert Plan(FOUR).not_measured(explore(Plan(FOUR), lambda pairs: {})) == [
        "node-0--node-1",
        "node-2--node-3",
        "node-1--node-2",
        "node-0--node-3",
    ]
    one_way = explore(
        Plan(FOUR), lambda pairs: {(a, b): FAST for a, b in pairs if (a, b) != ("node-1", "node-2")}
    )
    assert len(Plan(FOUR).not_measured(one_way)) == 4
