"""Which node the streams between nodes speak against: a network of known links in, the slow ones out."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.checks.connectivity.rates import (
    divided,
    egress,
    ingress,
    measurements,
    slow_links,
    slow_nodes,
    slow_suspects,
    summary,
)
from seatrial.checks.connectivity.reachability import Pair
from seatrial.checks.connectivity.throughput import AT_ONCE, explore, not_measured, rounds
from seatrial.judge.assess import assess
from seatrial.judge.baselines.selection import Knowledge
from seatrial.model.reason import code_of
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

FAST, SLOW = 2000.0, 24.0
FOUR = ("node-0", "node-1", "node-2", "node-3")


def network(link: Callable[[str, str], float]) -> Callable[[Sequence[Pair]], dict[Pair, float]]:
    """A `measure` over links of known speed."""
    return lambda pairs: {way: link(*way) for a, b in pairs for way in ((a, b), (b, a))}


def judged(streams: dict[Pair, float]) -> Check:
    check = Check("connectivity", Verdict.PASS, "4 of 4 nodes answer", 0.0, tuple(measurements(streams)))
    return assess([check], Knowledge(Setup("CPU", 4, 0, 1))).checks[0]


def names(nodes: int) -> list[str]:
    return [f"node-{i}" for i in range(nodes)]


def test_equal_links_are_nobodys_fault() -> None:
    streams = explore(FOUR, network(lambda a, b: FAST))
    assert set(egress(streams).values()) == set(ingress(streams).values()) == {FAST}
    assert (slow_nodes(streams), slow_links(streams)) == ({}, {})
    assert summary(streams) == "2000 to 2000 MB/s"
    assert judged(dict(streams)).verdict is Verdict.PASS


def test_a_node_that_sends_slowly_is_the_only_suspect() -> None:
    streams = explore(FOUR, network(lambda a, b: SLOW if a == "node-2" else FAST))
    assert egress(streams) == {"node-0": FAST, "node-1": FAST, "node-2": SLOW, "node-3": FAST}
    assert set(ingress(streams).values()) == {FAST}
    assert slow_links(streams) == {}
    assert summary(streams) == "node-2 sends 24 MB/s; the faster half reaches 2000 MB/s"
    check = judged(dict(streams))
    (suspect,) = check.suspects
    assert (check.verdict, suspect.name) == (Verdict.FAIL, "node-2")
    assert suspect.evidence.startswith(
        "tcp_egress 24 MB/s on node-2 is 99 % below the median 2000 MB/s of 4 nodes in this run"
    )


def test_a_node_that_receives_slowly_is_the_only_suspect() -> None:
    streams = explore(FOUR, network(lambda a, b: SLOW if b == "node-0" else FAST))
    assert {name: mb_s for name, mb_s in ingress(streams).items() if mb_s < FAST} == {"node-0": SLOW}
    assert set(egress(streams).values()) == {FAST}
    assert summary(streams).startswith("node-0 receives 24 MB/s;")
    assert [suspect.name for suspect in judged(dict(streams)).suspects] == ["node-0"]


def test_one_slow_link_is_recorded_and_blames_neither_end() -> None:
    streams = explore(FOUR, network(lambda a, b: SLOW if (a, b) == ("node-1", "node-2") else FAST))
    assert slow_nodes(streams) == {}
    (recorded,) = [m for m in measurements(streams) if m.subject.kind == "link"]
    assert (recorded.subject.name, recorded.value, recorded.better) == ("node-1--node-2", SLOW, None)
    assert recorded.conditions == {"from": "node-1"}
    check = judged(dict(streams))
    assert (check.verdict, check.suspects) == (Verdict.PASS, ())
    assert summary(streams).startswith("node-1 to node-2 alone is slow, 24 MB/s;")


def test_a_healthy_node_between_two_slow_ones_is_cleared_by_a_second_try() -> None:
    streams = explore(names(7), network(lambda a, b: SLOW if a in ("node-1", "node-3") else FAST))
    assert set(slow_nodes(streams)) == {"node-1", "node-3"}
    assert ingress(streams)["node-2"] == FAST


def test_a_stream_that_was_slow_once_is_forgotten() -> None:
    tries: dict[str, int] = {}

    def stumbling(a: str, b: str) -> float:
        tries[a] = tries.get(a, 0) + 1
        return SLOW if a == "node-2" and tries[a] < 3 else FAST

    streams = explore(FOUR, network(stumbling))
    assert slow_nodes(streams) == {}


@pytest.mark.parametrize("value", [FAST / 5, FAST / 3.1])
def test_what_a_stolen_time_slice_does_is_tolerated(value: float) -> None:
    streams = explore(FOUR, network(lambda a, b: value if a == "node-2" else FAST))
    check = judged(dict(streams))
    assert (check.verdict, check.suspects) == (Verdict.PASS, ())


def test_a_link_that_cannot_be_measured_is_left_out() -> None:
    assert summary(explore(FOUR, lambda pairs: {})) == "not measured"
    streams = explore(FOUR, lambda pairs: {} if "node-3" in pairs[0] else network(lambda a, b: FAST)(pairs))
    assert set(egress(streams)) == {"node-0", "node-1", "node-2"}
    assert explore(("node-0",), network(lambda a, b: FAST)) == {}


@settings(deadline=None)
@given(st.integers(2, 100))
def test_every_ring_link_is_measured_once_and_nobody_twice_at_a_time(nodes: int) -> None:
    batches = rounds(names(nodes))
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
    names = [f"node-{i}" for i in range(nodes)]
    tried: list[Pair] = []
    carry = network(lambda a, b: SLOW if a in slow else FAST)

    def measure(pairs: Sequence[Pair]) -> dict[Pair, float]:
        tried.extend(pairs)
        return carry(pairs)

    streams = explore(names, measure, one_machine=True)
    assert sorted(slow_nodes(streams)) == sorted(slow)
    assert not not_measured(names, streams, one_machine=True)
    assert {name for pair in tried for name in pair} == set(names)
    assert len(tried) <= nodes // 2 + nodes % 2 + 2 * len(slow) + 2


@pytest.mark.parametrize(
    ("nodes", "senders", "receivers"),
    [(9, (0, 1), (2, 4)), (13, (0, 2, 4), (6, 8, 10)), (37, range(0, 18, 2), range(18, 36, 2))],
)
def test_nobody_is_blamed_for_two_slow_neighbours_where_few_are_healthy(
    nodes: int, senders: Sequence[int], receivers: Sequence[int]
) -> None:
    slow = {f"node-{i}" for i in senders}, {f"node-{i}" for i in receivers}
    streams = explore(names(nodes), network(lambda a, b: SLOW if a in slow[0] or b in slow[1] else FAST))
    assert set(slow_nodes(streams)) == slow[0] | slow[1]


@settings(deadline=None)
@given(st.integers(4, 40), st.data())
def test_exactly_the_slow_nodes_are_named(nodes: int, data: st.DataObject) -> None:
    some = st.sets(st.sampled_from(names(nodes)), max_size=(nodes - 1) // 4)
    senders, receivers = data.draw(some), data.draw(some)
    streams = explore(names(nodes), network(lambda a, b: SLOW if a in senders or b in receivers else FAST))
    assert set(slow_nodes(streams)) == senders | receivers
    assert slow_links(streams) == {}


def of_racks(a: str, b: str) -> float:
    """Eight nodes in each rack; the uplink of the first carries a hundredth."""
    racks = {int(name.rpartition("-")[2]) // 8 for name in (a, b)}
    return FAST / 100 if 0 in racks and len(racks) == 2 else FAST


@pytest.mark.parametrize(
    ("nodes", "link", "expected"),
    [
        (64, of_racks, {"node-7--node-8", "node-0--node-63"}),
        (64, lambda a, b: FAST * 0.02 if {a, b} == {"node-20", "node-21"} else FAST, {"node-20--node-21"}),
        (64, lambda a, b: FAST / 5 if "node-9" in (a, b) else FAST, {"node-9"}),
        (3, lambda a, b: 23.9 if a == "node-2" else FAST / 2, {"node-2"}),
        (64, lambda a, b: FAST, set()),
        (2, lambda a, b: SLOW if a == "node-1" else FAST, {"node-0--node-1"}),
    ],
)
def test_what_is_printed_as_slow_is_judged_slow(
    nodes: int, link: Callable[[str, str], float], expected: set[str]
) -> None:
    streams = explore(names(nodes), network(link))
    suspects = slow_suspects(streams)
    assert {suspect.name for suspect in suspects} == expected
    assert all(name.split("--")[0] in summary(streams) for name in sorted(expected)[:1])
    assert divided(streams) == ""
    assert not not_measured(names(nodes), streams)


@pytest.mark.parametrize(("nodes", "slow"), [(3, 2), (4, 2), (5, 2), (5, 3), (6, 3), (7, 5)])
def test_many_slow_nodes_of_a_small_cluster_are_no_pass_and_blame_nobody(nodes: int, slow: int) -> None:
    senders = set(names(nodes)[-slow:])
    streams = explore(names(nodes), network(lambda a, b: FAST / 10 if a in senders else FAST))
    assert slow_suspects(streams) == []
    assert code_of(divided(streams)) == "tcp-nodes-divided"
    assert all(name in slow_nodes(streams) for name in senders)


def test_half_of_the_nodes_at_a_tenth_are_two_groups_and_no_pass() -> None:
    slow = {f"node-{i}" for i in range(32)}
    streams = explore(names(64), network(lambda a, b: FAST / 10 if slow & {a, b} else FAST))
    assert slow_suspects(streams) == []
    check = judged(dict(streams))
    assert check.verdict is Verdict.INCONCLUSIVE
    assert "two groups" in check.reason


@pytest.mark.parametrize("noise", [0.3, 0.6])
@pytest.mark.parametrize("nodes", [4, 8, 64])
def test_noise_of_busy_processors_blames_nobody(nodes: int, noise: float) -> None:
    rng = random.Random(nodes)
    for _ in range(20):
        streams = explore(names(nodes), network(lambda a, b: FAST * rng.lognormvariate(0, noise)))
        assert slow_suspects(streams) == []


def test_streams_that_could_not_be_measured_are_named() -> None:
    assert not_measured(names(4), explore(FOUR, lambda pairs: {})) == [
        "node-0--node-1",
        "node-2--node-3",
        "node-1--node-2",
        "node-0--node-3",
    ]
    one_way = explore(FOUR, lambda pairs: {(a, b): FAST for a, b in pairs if (a, b) != ("node-1", "node-2")})
    assert len(not_measured(FOUR, one_way)) == 4
