"""Which nodes meet again when TCP rates are repeated, so that the second time measures what the
first did.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.checks.connectivity import stages as step
from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.rates import (
    Streams,
    egress,
    ingress,
    measurements,
    slow_nodes,
)
from seatrial.checks.connectivity.reachability import Pair
from seatrial.checks.connectivity.throughput import Plan, explore, once_more
from seatrial.checks.contract import CheckContext
from seatrial.checks.metrics import Doubt
from seatrial.checks.table import repeat_checks
from seatrial.judge.assess import assess
from seatrial.model.measurement import by_series
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_setup import NodeConnection
from tests.stored_nights import knowing
from tests.suspects import kinds_and_names, suspect_names
from tests.unit.collectives.fake_mpirun import make_run, make_testbed
from tests.unit.repeats.doubts import FakeTransport


@pytest.mark.parametrize(
    ("names", "doubtful", "batches"),
    [
        ("abcd", "b", [[("a", "b")], [("b", "c")]]),  # the neighbours of the first time
        # C on top with a
        ("abcd", "bcd", [[("a", "b")], [("c", "d")], [("b", "c")], [("d", "a")], [("c", "a")]]),
        ("abc", "", []),
        ("ab", "ab", [[("a", "b")]]),
    ],
)
def test_doubtful_nodes_repeat_streams_with_the_same_neighbours(
    names: str, doubtful: str, batches: list[list[tuple[str, str]]]
) -> None:
    assert once_more(Plan(list(names)), list(doubtful), 1) == batches


def test_a_node_with_one_neighbour_meets_another_one_when_it_is_repeated() -> None:
    names = [f"node-{i}" for i in range(16)]
    assert once_more(Plan(names, one_machine=True), ["node-4"], 1) == [
        [("node-4", "node-5")],
        [("node-4", "node-1")],
    ]


def test_many_doubtful_nodes_are_tried_at_once_and_nobody_twice_at_a_time() -> None:
    names = [f"node-{i}" for i in range(20)]
    batches = once_more(Plan(names), names[:13], 3)
    for batch in batches:
        ends = [name for pair in batch for name in pair]
        assert len(ends) == len(set(ends))
    # The ring in two, and eleven whose neighbours are in doubt with seven that are not
    assert len(batches) == 4
    assert {pair[0] for batch in batches[2:] for pair in batch} == set(names[1:12])


@settings(deadline=None)
@given(st.integers(2, 30), st.none() | st.integers(0, 99), st.data())
def test_repeated_streams_give_the_same_node_rates_on_unchanged_racks(
    nodes: int, day: int | None, data: st.DataObject
) -> None:
    """Racks of three with slower links between them: a node at the end of a rack has one fast
    neighbour, and must repeat streams with it.
    """
    names = [f"node-{i}" for i in range(nodes)]
    doubtful = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))

    def measure(pairs: Sequence[Pair]) -> dict[Pair, float]:
        return {way: rack_rate(*way) for a, b in pairs for way in ((a, b), (b, a))}

    plan = Plan(names, day=day)
    first = explore(plan, measure)
    again = explore(plan, measure, once_more(plan, doubtful, 1))
    assert {name: egress(again)[name] for name in doubtful} == {
        name: egress(first)[name] for name in doubtful
    }
    assert {name: ingress(again)[name] for name in doubtful} == {
        name: ingress(first)[name] for name in doubtful
    }


def rack_rate(a: str, b: str) -> float:
    return (
        2000.0 if int(a.removeprefix("node-")) // 3 == int(b.removeprefix("node-")) // 3 else 1400.0
    )


def test_racks_blame_no_healthy_node_when_streams_are_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Twelve nodes in racks with 2 % noise: what is measured again must agree with 20 nights of
    first tries.
    """
    rng = np.random.default_rng(7)

    def streams(
        testbed: Testbed, contacts: object, pairs: Sequence[Pair], timeout_s: float
    ) -> dict[Pair, float]:
        return {
            way: rack_rate(*way) * float(np.exp(0.02 * rng.standard_normal()))
            for a, b in pairs
            for way in ((a, b), (b, a))
        }

    def first_try() -> Check:
        rates = explore(
            Plan([node.name for node in testbed.nodes], day=20),
            lambda pairs: streams(testbed, {}, pairs, 1),
        )
        return Check(
            "connectivity", Verdict.PASS, uncoded("12 nodes"), 1.0, tuple(measurements(rates))
        )

    testbed = make_testbed(12)
    connection = NodeConnection(FakeTransport(), {}, 1, 0, 0)  # type: ignore[arg-type]
    monkeypatch.setattr(step, "set_up_node", lambda *_, **__: connection)
    monkeypatch.setattr(step, "try_streams", streams)
    knowledge = knowing(Setup("cpu", 12, 0, 12), [first_try() for _ in range(20)])
    run = make_run(tmp_path, nodes=12)
    for _ in range(5):
        check = first_try()
        while doubts := assess([check], knowledge).doubts:
            more = repeat_checks(CheckContext(run, testbed), doubts)["connectivity"].measurements
            assert max(len(taken) for taken in by_series(more).values()) == 1  # one repeat a round
            check = replace(check, measurements=(*check.measurements, *more))
        assert assess([check], knowledge).checks[0].verdict is Verdict.PASS


@pytest.mark.parametrize(("again", "verdict"), [(1000.0, Verdict.PASS), (6.0, Verdict.DEGRADED)])
def test_a_link_that_is_slow_the_first_time_alone_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, again: float, verdict: Verdict
) -> None:
    """Of two nodes, of which history doubts one."""
    ways = [("node-0", "node-1"), ("node-1", "node-0")]
    findings = Findings(testbed := make_testbed(2), node_count=2)
    findings.streams = dict(zip(ways, (1000.0, 5.0), strict=True))
    findings.measurements += measurements(findings.streams)
    first = findings.check()
    assert (first.verdict, suspect_names(first)) == (Verdict.DEGRADED, ["node-0--node-1"])
    connection = NodeConnection(FakeTransport(), {}, 1, 0, 0)  # type: ignore[arg-type]
    monkeypatch.setattr(step, "set_up_node", lambda *_, **__: connection)
    monkeypatch.setattr(
        step, "try_streams", lambda *_: dict(zip(ways, (900.0, again), strict=True))
    )
    doubts = [
        Doubt(m, 1, 3)
        for m in first.measurements
        if m.metric == "tcp_egress" and m.subject.name == "node-1"
    ]
    context = CheckContext(make_run(tmp_path, nodes=2), testbed, kept=(findings,))
    repeated = repeat_checks(context, {"connectivity": doubts})["connectivity"]
    assert [m.value for m in repeated.measurements] == [again]
    assert repeated.check is not None
    assert repeated.check.verdict is verdict
    assert bool(repeated.check.suspects) is (verdict is Verdict.DEGRADED)
    if verdict is Verdict.PASS:
        assert repeated.check.reason.sentence == "2 of 2 nodes answer, reach each other and run MPI"


def slow_with_node_5(pairs: Sequence[Pair]) -> Streams:
    """Both ways of each pair: those of node-5 are slow."""
    return {way: 20.0 if "node-5" in way else 1000.0 for a, b in pairs for way in ((a, b), (b, a))}


def test_node_that_slows_before_streams_are_repeated_is_blamed_for_no_link() -> None:
    findings = Findings(make_testbed(6), node_count=6)
    ring = [(f"node-{i}", f"node-{(i + 1) % 6}") for i in range(6)]
    findings.streams = {way: 1000.0 for a, b in ring for way in ((a, b), (b, a))}
    again = [
        ("node-0", "node-5"),
        ("node-1", "node-5"),
        ("node-2", "node-5"),
        ("node-0", "node-1"),
        ("node-2", "node-3"),
    ]
    findings.try_again(slow_with_node_5(again))
    assert (findings.slowed, list(findings.check().suspects)) == ({"node-5"}, [])
    afresh = Findings(findings.testbed)
    afresh.try_again(slow_with_node_5(again))
    assert (suspect_names(afresh.check()), afresh.slowed) == (["node-5"], set())


def test_single_link_slow_in_its_repeat_is_blamed_as_a_link() -> None:
    findings = Findings(make_testbed(6), node_count=6)
    ring = [(f"node-{i}", f"node-{(i + 1) % 6}") for i in range(6)]
    findings.streams = {way: 1000.0 for a, b in ring for way in ((a, b), (b, a))}
    again = [("node-2", "node-5"), ("node-0", "node-1"), ("node-2", "node-3"), ("node-4", "node-3")]
    findings.try_again(slow_with_node_5(again))
    assert kinds_and_names(findings.check()) == [("link", "node-2--node-5")]
    assert not findings.slowed


@pytest.mark.parametrize(("again", "blamed"), [(1000.0, []), (30.0, [("node", "node-1")])])
def test_links_of_a_node_that_is_slow_the_first_time_alone_are_not_blamed(
    again: float, blamed: list[tuple[str, str]]
) -> None:
    """Its second tries of the first time, with node-3 and node-4, are not measured again."""
    findings = Findings(make_testbed(8), node_count=8)
    plan = Plan([f"node-{i}" for i in range(8)])

    def carries(mb_s: float) -> Callable[[Sequence[Pair]], Streams]:
        return lambda pairs: {
            way: mb_s if "node-1" in way else 1000.0 for a, b in pairs for way in ((a, b), (b, a))
        }

    findings.streams = dict(explore(plan, carries(20.0)))
    assert {("node-1", "node-3"), ("node-1", "node-4")} <= findings.streams.keys()
    batches = once_more(plan, ["node-1"], 1)
    findings.try_again(explore(plan, carries(again), batches, findings.streams))
    assert kinds_and_names(findings.check()) == blamed
    assert not findings.slowed


@pytest.mark.parametrize("seed", range(300))
def test_no_healthy_part_is_blamed_when_nodes_slow_or_recover_before_repeats(
    seed: int,
) -> None:
    rng = random.Random(seed)
    count = rng.choice([6, 8, 12, 16, 32])
    names = [f"node-{i}" for i in rng.sample(range(count), count)]
    at_first, since, always = rng.choice([0, 1, 2, 3]), rng.choice([0, 1, 2]), rng.choice([0, 0, 1])
    recovers, slows = set(names[: min(at_first, count // 4)]), set(names[4 : 4 + since])
    slow = set(names[3 : 3 + always])
    plan = Plan(sorted(names), one_machine=rng.random() < 0.5, day=rng.randrange(100))

    def carries(sending_slowly: set[str]) -> Callable[[Sequence[Pair]], Streams]:
        return lambda pairs: {
            way: (24 if way[0] in sending_slowly else 2000) * rng.uniform(0.7, 1.3)
            for a, b in pairs
            for way in ((a, b), (b, a))
        }

    findings = Findings(make_testbed(count), node_count=count)
    findings.streams = dict(explore(plan, carries(recovers | slow)))
    doubtful = sorted({*slow_nodes(findings.streams), *rng.sample(names, rng.choice([0, 1, 3]))})
    batches = once_more(plan, doubtful, 1)
    findings.try_again(explore(plan, carries(slows | slow), batches, findings.streams))
    assert set(suspect_names(findings.check())) <= slow
    assert findings.slowed >= slows.intersection(doubtful)
