"""Which node the streams between nodes speak against: a network of known links in, the slow ones
out.
"""

import math
import random
from collections.abc import Callable, Sequence
from itertools import permutations
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.checks.connectivity.rates import egress, ingress, measurements, slow_links, slow_nodes
from seatrial.checks.connectivity.reachability import Pair
from seatrial.checks.connectivity.slow_streams import divided, slow_suspects, summary
from seatrial.checks.connectivity.throughput import Plan, explore
from seatrial.judge.knowledge import Knowledge
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.text.hostlist import host_list
from tests.stored_nights import settled
from tests.suspects import suspect_names
from tests.unit.fake_network import FAST, FOUR, SLOW, names, network


def judged(streams: dict[Pair, float]) -> Check:
    check = Check(
        "connectivity",
        Verdict.PASS,
        uncoded("4 of 4 nodes answer"),
        0.0,
        tuple(measurements(streams)),
    )
    return settled(check, Knowledge(Setup("CPU", 4, 0, 1)))


def test_equally_fast_links_blame_no_node() -> None:
    streams = explore(Plan(FOUR), network(lambda a, b: FAST))
    assert set(egress(streams).values()) == set(ingress(streams).values()) == {FAST}
    assert (slow_nodes(streams), slow_links(streams)) == ([], {})
    assert summary(streams) == "2,000 to 2,000 MB/s"
    assert judged(dict(streams)).verdict is Verdict.PASS


def test_a_node_that_sends_slowly_is_the_only_suspect() -> None:
    streams = explore(Plan(FOUR), network(lambda a, b: SLOW if a == "node-2" else FAST))
    assert egress(streams) == {"node-0": FAST, "node-1": FAST, "node-2": SLOW, "node-3": FAST}
    assert set(ingress(streams).values()) == {FAST}
    assert slow_links(streams) == {}
    assert summary(streams).startswith("24 to 2,000 MB/s; node-2: sends 24 MB/s of TCP at best, ")
    check = judged(dict(streams))
    (suspect,) = check.suspects
    assert (check.verdict, suspect.name) == (Verdict.FAIL, "node-2")
    assert suspect.evidence.sentence.startswith(
        "tcp_egress 24.0 MB/s on node-2: 98.8 % below the median of 2,000 MB/s of 4 nodes (limit "
    )


def test_a_node_that_receives_slowly_is_the_only_suspect() -> None:
    streams = explore(Plan(FOUR), network(lambda a, b: SLOW if b == "node-0" else FAST))
    assert {name: mb_s for name, mb_s in ingress(streams).items() if mb_s < FAST} == {
        "node-0": SLOW
    }
    assert set(egress(streams).values()) == {FAST}
    assert "; node-0: receives 24 MB/s of TCP at best, " in summary(streams)
    assert suspect_names(judged(dict(streams))) == ["node-0"]


def test_one_slow_link_is_recorded_and_blames_neither_end() -> None:
    streams = explore(
        Plan(FOUR), network(lambda a, b: SLOW if (a, b) == ("node-1", "node-2") else FAST)
    )
    assert slow_nodes(streams) == []
    recorded = [m for m in measurements(streams) if m.subject.kind == "link"]
    assert {m.better for m in recorded} == {None}
    slow = [(m.subject.name, m.conditions) for m in recorded if m.value == SLOW]
    assert slow == [("node-1--node-2", {"from": "node-1"})]
    assert len(recorded) == 8
    check = judged(dict(streams))
    assert (check.verdict, check.suspects) == (Verdict.PASS, ())
    assert "; node-1--node-2: 24 MB/s of TCP between them, " in summary(streams)


def test_a_healthy_node_between_two_slow_ones_is_cleared_by_a_second_try() -> None:
    streams = explore(
        Plan(names(7)), network(lambda a, b: SLOW if a in ("node-1", "node-3") else FAST)
    )
    assert set(slow_nodes(streams)) == {"node-1", "node-3"}
    assert ingress(streams)["node-2"] == FAST


@pytest.mark.parametrize("value", [FAST / 5, FAST / 3.1])
def test_slowdown_by_a_lost_time_slice_is_tolerated(value: float) -> None:
    streams = explore(Plan(FOUR), network(lambda a, b: value if a == "node-2" else FAST))
    check = judged(dict(streams))
    assert (check.verdict, check.suspects) == (Verdict.PASS, ())


@pytest.mark.parametrize(
    ("nodes", "senders", "receivers"),
    [(9, (0, 1), (2, 4)), (13, (0, 2, 4), (6, 8, 10)), (37, range(0, 18, 2), range(18, 36, 2))],
)
def test_nobody_is_blamed_for_two_slow_neighbours_where_few_are_healthy(
    nodes: int, senders: Sequence[int], receivers: Sequence[int]
) -> None:
    slow = {f"node-{i}" for i in senders}, {f"node-{i}" for i in receivers}
    streams = explore(
        Plan(names(nodes)), network(lambda a, b: SLOW if a in slow[0] or b in slow[1] else FAST)
    )
    assert set(slow_nodes(streams)) == slow[0] | slow[1]


@settings(max_examples=40)
@given(st.integers(4, 40), st.data())
def test_exactly_the_slow_nodes_are_named(nodes: int, data: st.DataObject) -> None:
    some = st.sets(st.sampled_from(names(nodes)), max_size=(nodes - 1) // 4)
    senders, receivers = data.draw(some), data.draw(some)
    streams = explore(
        Plan(names(nodes)), network(lambda a, b: SLOW if a in senders or b in receivers else FAST)
    )
    assert set(slow_nodes(streams)) == senders | receivers
    assert slow_links(streams) == {}


def of_racks(a: str, b: str) -> float:
    """Eight nodes in each rack; the uplink of the first carries a hundredth."""
    racks = {int(name.rpartition("-")[2]) // 8 for name in (a, b)}
    return FAST / 100 if 0 in racks and len(racks) == 2 else FAST


@pytest.mark.parametrize(
    ("nodes", "factor", "noise", "least", "most", "verdict"),
    [
        (3, 64, 0.0, 0.97, 0.97, Verdict.FAIL),
        (3, 4.2, 0.0, 0.9, 0.96, Verdict.DEGRADED),
        (4, 64, 0.0, 0.97, 0.97, Verdict.FAIL),
        (6, 6, 0.0, 0.97, 0.97, Verdict.DEGRADED),
        (6, 30, 0.5, 0.95, 0.97, Verdict.FAIL),
        (6, 5, 0.5, 0.7, 0.96, Verdict.DEGRADED),
    ],
)
def test_confidence_follows_from_the_gap_relative_to_the_noise(
    nodes: int, factor: float, noise: float, least: float, most: float, verdict: Verdict
) -> None:
    """`noise` is how far apart the healthy nodes are, in natural logs."""
    rates = {name: FAST * math.exp(noise * (n % 3 - 1)) for n, name in enumerate(names(nodes))}
    rates["node-1"] = median(rates.values()) * math.exp(noise) / factor
    streams = {(a, b): rates[a] for a, b in permutations(names(nodes), 2)}
    (suspect,) = slow_suspects(streams)
    assert suspect.name == "node-1"
    assert least <= suspect.confidence <= most
    assert suspect.verdict is verdict


@pytest.mark.parametrize(
    ("nodes", "slow", "metric", "count"),
    [
        (3, lambda a, b: a == "node-2", "tcp_egress", 1),
        (3, lambda a, b: b == "node-2", "tcp_ingress", 1),
        (6, lambda a, b: {a, b} == {"node-2", "node-3"}, "tcp_stream", 2),
        (6, lambda a, b: (a, b) == ("node-2", "node-3"), "tcp_stream", 1),
        (8, lambda a, b: (a < "node-4") != (b < "node-4"), "tcp_stream", 32),
    ],
)
def test_suspect_for_a_slow_rate_has_a_number_judged_bad_by_peers(
    nodes: int, slow: Callable[[str, str], bool], metric: str, count: int
) -> None:
    streams = {(a, b): FAST / 64 if slow(a, b) else FAST for a, b in permutations(names(nodes), 2)}
    suspects = tuple(slow_suspects(streams))
    own = Check(
        "connectivity",
        Verdict.DEGRADED,
        uncoded("slow"),
        0.0,
        tuple(measurements(streams)),
        suspects=suspects,
    )
    check = settled(own, Knowledge(Setup("CPU", nodes, 0, 1)))
    bad = [
        j
        for j in check.judgements
        if j.verdict is not Verdict.PASS and j.measurement.metric == metric
    ]
    assert len(bad) == count
    assert {(j.verdict, j.source) for j in bad} == {(Verdict.FAIL, "peers")}
    assert check.verdict is Verdict.FAIL
    again = settled(check.unjudged(), Knowledge(Setup("CPU", nodes, 0, 1)))
    assert [j.measurement for j in again.judgements] == [j.measurement for j in check.judgements]


@pytest.mark.parametrize(
    ("nodes", "link", "expected"),
    [
        (64, of_racks, {"node-[0-7]--node-[8-63]"}),
        (
            64,
            lambda a, b: FAST * 0.02 if {a, b} == {"node-20", "node-21"} else FAST,
            {"node-20--node-21"},
        ),
        (64, lambda a, b: FAST / 5 if "node-9" in (a, b) else FAST, {"node-9"}),
        (3, lambda a, b: 23.9 if a == "node-2" else FAST / 2, {"node-2"}),
        (64, lambda a, b: FAST, set()),
        (2, lambda a, b: SLOW if a == "node-1" else FAST, {"node-0--node-1"}),
    ],
)
def test_summary_reports_slow_links_exactly_when_there_are_suspects(
    nodes: int, link: Callable[[str, str], float], expected: set[str]
) -> None:
    streams = explore(Plan(names(nodes)), network(link))
    suspects = slow_suspects(streams)
    assert {suspect.name for suspect in suspects} == expected
    assert all(f"; {suspect.name}: " in summary(streams) for suspect in suspects)
    assert (";" in summary(streams)) == bool(expected)
    assert divided(streams).sentence == ""
    assert not Plan(names(nodes)).not_measured(streams)


@pytest.mark.parametrize("day", [None, 0, 5, 17])
@pytest.mark.parametrize(
    ("nodes", "first_side"),
    [(64, range(8)), (64, range(32)), (64, range(20, 36)), (12, range(2)), (4, range(2))],
)
def test_a_slow_cut_is_one_finding_with_both_sides(
    nodes: int, first_side: range, day: int | None
) -> None:
    one = {f"node-{i}" for i in first_side}
    carry = network(lambda a, b: FAST / 50 if len(one & {a, b}) == 1 else FAST)
    (suspect,) = slow_suspects(explore(Plan(names(nodes), day=day), carry))
    assert suspect.evidence.code == "tcp-cut-slow"
    sides = [
        host_list(name for name in names(nodes) if (name in one) is first)
        for first in (True, False)
    ]
    assert suspect.name in {"--".join(sides), "--".join(reversed(sides))}


def test_two_slow_links_of_a_large_cluster_are_two_findings() -> None:
    """The streams with partners in turn go round them, so that there are no two sides."""
    slow = [{"node-7", "node-8"}, {"node-40", "node-41"}]
    carry = network(lambda a, b: FAST / 50 if {a, b} in slow else FAST)
    suspects = slow_suspects(explore(Plan(names(64), day=5), carry))
    assert {suspect.name for suspect in suspects} == {"node-7--node-8", "node-40--node-41"}


def test_nodes_of_a_slower_model_are_held_against_each_other() -> None:
    """Six of 60 have a tenth of the network; of these, one has a tenth of that again."""
    old = [f"node-{i}" for i in range(54, 60)]
    models = {name: "A100" if name in old else "H100" for name in names(60)}
    rates = {name: FAST / 10 if name in old else FAST for name in names(60)} | {
        "node-56": FAST / 100
    }
    streams = explore(Plan(names(60), day=3), network(lambda a, b: min(rates[a], rates[b])))
    (suspect,) = slow_suspects(streams, models)
    assert suspect.name == "node-56"
    assert str(suspect.evidence).startswith(
        "sends 20 MB/s of TCP at best, the faster half of the nodes 200 MB/s"
    )
    assert {"node-54", "node-55"} < {suspect.name for suspect in slow_suspects(streams)}
    healthy = explore(
        Plan(names(60), day=3),
        network(lambda a, b: min(rates[n] if n != "node-56" else 200.0 for n in (a, b))),
    )
    assert slow_suspects(healthy, models) == []


@pytest.mark.parametrize("model", ["L4", ""])
@pytest.mark.parametrize("of_it", [1, 2])
def test_a_slow_node_does_not_pass_as_one_of_a_slower_model(of_it: int, model: str) -> None:
    """One or two nodes of a model, or of an unknown one, tell nobody what that model carries."""
    models = dict.fromkeys(names(16), "H100") | dict.fromkeys(names(of_it), model)
    streams = explore(
        Plan(names(16), day=3), network(lambda a, b: SLOW if "node-0" in (a, b) else FAST)
    )
    (suspect,) = slow_suspects(streams, models)
    assert (suspect.kind, suspect.name) == ("node", "node-0")


@pytest.mark.parametrize(("nodes", "slow"), [(3, 2), (4, 2), (5, 2), (5, 3), (6, 3), (7, 5)])
def test_many_slow_nodes_of_a_small_cluster_are_no_pass_and_blame_nobody(
    nodes: int, slow: int
) -> None:
    senders = set(names(nodes)[-slow:])
    streams = explore(Plan(names(nodes)), network(lambda a, b: FAST / 10 if a in senders else FAST))
    assert slow_suspects(streams) == []
    assert divided(streams).code == "tcp-nodes-divided"
    assert all(name in slow_nodes(streams) for name in senders)


def test_slow_half_of_the_nodes_does_not_pass_and_blames_none() -> None:
    slow = {f"node-{i}" for i in range(32)}
    streams = explore(Plan(names(64)), network(lambda a, b: FAST / 10 if slow & {a, b} else FAST))
    assert slow_suspects(streams) == []
    check = judged(dict(streams))
    assert (check.verdict is Verdict.PASS, check.suspects) == (False, ())


@pytest.mark.parametrize("noise", [0.3, 0.6])
@pytest.mark.parametrize("nodes", [4, 8, 64])
def test_noise_of_busy_processors_blames_nobody(nodes: int, noise: float) -> None:
    rng = random.Random(nodes)
    for _ in range(20):
        streams = explore(
            Plan(names(nodes)), network(lambda a, b: FAST * rng.lognormvariate(0, noise))
        )
        assert slow_suspects(streams) == []
