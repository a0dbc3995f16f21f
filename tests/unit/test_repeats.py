"""What is in doubt is measured again before anybody is blamed: how often, what counts, what is asked of nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.assess import assess
from seatrial.baselines.known import Knowledge
from seatrial.baselines.setup import Setup
from seatrial.checks.reachability import Pair
from seatrial.checks.throughput import egress, explore, explore_again, ingress, measurements, once_more
from seatrial.contact import Contact
from seatrial.errors import RemoteError
from seatrial.history import open_store
from seatrial.history.store import Store
from seatrial.measurement import ConditionValue, Measurement, Subject, by_series, once
from seatrial.mpi import MpiResult
from seatrial.occasion import Occasion
from seatrial.repeats import Doubt
from seatrial.result import Check, RunResult, Suspect, now
from seatrial.testbed import Node, Testbed
from seatrial.verdict import Verdict
from tasks import repeat as step
from tasks import sweep
from tasks.compare import compare
from tasks.connectivity import Present
from tasks.repeat import Repeated, measure_again
from tests.samples import nights_of
from tests.unit.test_collectives import FakeMpirun, make_run, make_testbed, result, table

LAB = Setup("cpu", 4, 0, 1)


def plateau(value: float) -> Measurement:
    at: dict[str, ConditionValue] = {"operation": "all_reduce", "dtype": "float32", "ranks": 4}
    return Measurement("busbw_plateau", value, "GB/s", Subject("cluster", "lab"), at)


def collectives(*values: float) -> Check:
    return Check("collectives", Verdict.PASS, "1 sweep", 1.0, tuple(plateau(value) for value in values))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Three passing runs of 1 GB/s."""
    with open_store(f"sqlite:///{tmp_path}/history.sqlite") as opened:
        for number in range(3):
            at = now()
            opened.save(
                RunResult(f"run-{number}", "lab", "quick", at, at, Verdict.PASS, "", checks=[collectives(1.0)]), Path()
            )
        yield opened


class Nodes:
    """Stands where the nodes are: reads `values` one by one, and counts how often it was asked."""

    def __init__(self, *values: float, problem: tuple[Verdict, str] | None = None) -> None:
        self.values, self.problem, self.asked = list(values), problem, 0

    def __call__(self, doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
        self.asked += 1
        assert {d.measurement.series() for d in doubts["collectives"]} == {plateau(0).series()}
        repeated = Repeated([plateau(self.values.pop(0))] if self.values else [])
        repeated.problems += [self.problem] if self.problem else []
        return {"collectives": repeated}


def compared(store: Store, first: float, nodes: Nodes) -> Check:
    (check,) = compare([collectives(first)], LAB, store, Occasion("lab", "quick"), nodes)
    return check


@pytest.mark.parametrize(
    ("first", "then", "asked", "verdict"),
    [
        (1.0, (), 0, Verdict.PASS),  # nothing is suspicious, so nothing is repeated
        (0.1, (0.1, 1.0, 1.0), 1, Verdict.FAIL),  # two agree: it is as slow as it looked
        (0.1, (1.1, 0.9, 0.1), 2, Verdict.PASS),  # a hiccup
        (0.1, (1.0, 0.11, 1.0), 2, Verdict.FAIL),  # two of three
    ],
)
def test_repeats_end_as_soon_as_two_agree(
    store: Store, first: float, then: Sequence[float], asked: int, verdict: Verdict
) -> None:
    nodes = Nodes(*then)
    check = compared(store, first, nodes)
    assert (nodes.asked, check.verdict) == (asked, verdict)
    (judgement,) = check.judgements
    taken = [first, *then[:asked]]
    assert judgement.repeats == (tuple(taken) if asked else ())
    assert judgement.measurement.value == pytest.approx(np.median(taken))
    assert [m.value for m in check.measurements] == taken  # all of them are kept
    assert (f"the median of {len(taken)} measurements" in judgement.reason) == bool(asked)


def test_a_cleared_suspicion_is_told(store: Store) -> None:
    assert compared(store, 0.1, Nodes(1.0, 1.0)).reason == "1 sweep; as expected by history; 1 number was repeated"


def test_what_cannot_be_repeated_is_asked_for_once_and_judged_as_it_is(store: Store) -> None:
    nodes = Nodes()
    check = compared(store, 0.1, nodes)
    assert (nodes.asked, check.verdict) == (1, Verdict.FAIL)


def test_what_breaks_while_it_is_repeated_counts(store: Store) -> None:
    nodes = Nodes(1.0, 1.0, problem=(Verdict.CORRUPT, "when it was repeated: 7 wrong elements"))
    check = compared(store, 0.1, nodes)
    assert check.verdict is Verdict.CORRUPT
    assert "when it was repeated: 7 wrong elements" in check.reason


def test_repeats_of_a_run_teach_as_one_run(store: Store) -> None:
    """A hiccup that was cleared does not drag the history down, nor make four runs of three."""
    check = compared(store, 0.1, Nodes(1.0, 1.0))
    at = now()
    store.save(RunResult("run-9", "lab", "quick", at, at, Verdict.PASS, "", checks=[check]), Path())
    judged = compared(store, 0.9, Nodes()).judgements[0]
    assert "the median 1 GB/s of 4 passing runs" in judged.reason


def test_where_enough_is_known_odds_decide_how_often() -> None:
    """A number of the whole cluster, 20 nights of 2 % noise: 15 % below is doubted until it is proven or cleared."""
    rng = np.random.default_rng(4)
    nights = nights_of([collectives(float(np.exp(0.02 * rng.standard_normal()))) for _ in range(20)])
    knowledge = Knowledge(Setup("cpu", 4, 0, 4), history=nights.values(), nights=nights)

    def doubted(*values: float) -> list[Doubt]:
        return assess([collectives(*values)], knowledge).doubts.get("collectives", [])

    assert not doubted(1.0)
    assert [(d.taken, d.most) for d in doubted(0.85)] == [(1, 12)]
    assert not doubted(0.85, 1.0, 1.01)
    taken = [0.85]
    while doubted(*taken):
        taken.append(0.85)
    assert 1 < len(taken) < 10
    assert assess([collectives(*taken)], knowledge).checks[0].verdict is Verdict.DEGRADED


def test_a_hiccup_however_deep_blames_nobody_by_itself() -> None:
    """A third of what it should be, with 1 % noise: no chance under heavy tails, and yet only a process that got in."""
    rng = np.random.default_rng(5)
    nights = nights_of([collectives(float(np.exp(0.01 * rng.standard_normal()))) for _ in range(20)])
    knowledge = Knowledge(Setup("cpu", 4, 0, 4), history=nights.values(), nights=nights)
    assert assess([collectives(0.33)], knowledge).checks[0].verdict is not Verdict.PASS  # if nothing can be repeated
    assert assess([collectives(0.33)], knowledge).doubts
    taken = [0.33]
    while assess([collectives(*taken)], knowledge).doubts:
        taken.append(1.0)
    assert 2 <= len(taken) <= 4
    assert assess([collectives(*taken)], knowledge).checks[0].verdict is Verdict.PASS
    assert assess([collectives(0.33, 0.33)], knowledge).checks[0].verdict is not Verdict.PASS
    assert not assess([collectives(0.33, 0.33)], knowledge).doubts


# What is asked of the nodes


def doubt(**conditions: str | int) -> Doubt:
    at: dict[str, ConditionValue] = {"operation": "all_reduce", "dtype": "float32", "ranks": 4, **conditions}
    metric = "busbw_plateau" if "max_bytes" in at else "busbw"
    return Doubt(Measurement(metric, 0.1, "GB/s", Subject("cluster", "lab"), at), 1, 3)


def asked(argv: Sequence[str]) -> tuple[str, str, str]:
    values = [argv[argv.index(flag) + 1] for flag in ("--operation", "--min-bytes", "--max-bytes")]
    return values[0], values[1], values[2]


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[FakeMpirun, dict[str, Repeated]]]:
    def measured(*doubts: Doubt, wrong: int = 0) -> tuple[FakeMpirun, dict[str, Repeated]]:
        fake = FakeMpirun(lambda operation: result(table(sizes=(16384,), wrong=wrong)))
        monkeypatch.setattr(sweep, "mpirun", fake)
        run = make_run(tmp_path, operations=["all_reduce", "broadcast"])
        return fake, measure_again(run, make_testbed(), {"collectives": doubts})

    return measured


def test_only_that_operation_is_swept_again_at_only_those_sizes(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, found = again(doubt(message_bytes=16384, placement="out_of_place"))
    assert [asked(argv) for argv in fake.argvs] == [("all_reduce", "16384", "16384")]
    (m,) = found["collectives"].measurements  # and not the latency or the plateau of that one size
    assert (m.metric, m.conditions["message_bytes"], m.conditions["placement"]) == ("busbw", 16384, "out_of_place")


def test_a_plateau_is_repeated_by_the_sizes_that_make_it(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, _ = again(doubt(max_bytes=65536))
    assert [asked(argv) for argv in fake.argvs] == [("all_reduce", "4096", "65536")]


def test_wrong_elements_in_a_repeat_are_a_problem_of_the_cluster(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    _, found = again(doubt(message_bytes=16384, placement="out_of_place"), wrong=5)
    ((verdict, reason),) = found["collectives"].problems
    assert verdict is Verdict.CORRUPT
    assert "wrong elements" in reason


def test_a_check_that_cannot_be_repeated_comes_back_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "_REPEATS", {})
    assert measure_again(make_run(tmp_path), make_testbed(), {"devices": [doubt()]}) == {"devices": Repeated()}


@pytest.mark.parametrize(
    ("names", "doubtful", "batches"),
    [
        ("abcd", "b", [[("a", "b")], [("b", "c")]]),  # the neighbours of the first time
        ("abcd", "bcd", [[("a", "b")], [("c", "d")], [("b", "c")], [("d", "a")], [("c", "a")]]),  # c on top with a
        ("abc", "", []),
        ("ab", "ab", [[("a", "b")]]),
    ],
)
def test_doubtful_nodes_meet_their_neighbours_again(
    names: str, doubtful: str, batches: list[list[tuple[str, str]]]
) -> None:
    assert once_more(list(names), list(doubtful), 1) == batches


def test_many_doubtful_nodes_are_tried_at_once_and_nobody_twice_at_a_time() -> None:
    names = [f"node-{i}" for i in range(20)]
    batches = once_more(names, names[:13], 3)
    for batch in batches:
        ends = [name for pair in batch for name in pair]
        assert len(ends) == len(set(ends))
    assert len(batches) == 4  # the ring in two, and eleven whose neighbours are in doubt with seven that are not
    assert {pair[0] for batch in batches[2:] for pair in batch} == set(names[1:12])


@given(st.integers(2, 30), st.data())
def test_a_repeat_measures_what_the_first_time_did(nodes: int, data: st.DataObject) -> None:
    """Racks of three, slower between each other: a node at a rack's end has one good neighbour, and needs it again."""
    names = [f"node-{i}" for i in range(nodes)]
    doubtful = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))

    def measure(pairs: Sequence[Pair]) -> dict[Pair, float]:
        return {way: rack_rate(*way) for a, b in pairs for way in ((a, b), (b, a))}

    first, again = explore(names, measure), explore_again(names, doubtful, 1, measure)
    assert {name: egress(again)[name] for name in doubtful} == {name: egress(first)[name] for name in doubtful}
    assert {name: ingress(again)[name] for name in doubtful} == {name: ingress(first)[name] for name in doubtful}


def rack_rate(a: str, b: str) -> float:
    return 2000.0 if int(a.removeprefix("node-")) // 3 == int(b.removeprefix("node-")) // 3 else 1400.0


def test_racks_blame_no_healthy_node_when_streams_are_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Twelve nodes in racks with 2 % noise: what is measured again must agree with 20 nights of first tries."""
    rng = np.random.default_rng(7)

    def streams(testbed: Testbed, contacts: object, pairs: Sequence[Pair], timeout_s: float) -> dict[Pair, float]:
        return {
            way: rack_rate(*way) * float(np.exp(0.02 * rng.standard_normal()))
            for a, b in pairs
            for way in ((a, b), (b, a))
        }

    def first_try() -> Check:
        found = explore([node.name for node in testbed.nodes], lambda pairs: streams(testbed, {}, pairs, 1))
        return Check("connectivity", Verdict.PASS, "12 nodes", 1.0, tuple(measurements(found)))

    testbed = make_testbed(12)
    monkeypatch.setattr(step, "greet", lambda *_, **__: Contact(FakeTransport(), {}, 1, 0, 0))  # type: ignore[arg-type]
    monkeypatch.setattr(step, "try_streams", streams)
    nights = nights_of([first_try() for _ in range(20)])
    knowledge = Knowledge(Setup("cpu", 12, 0, 12), history=nights.values(), nights=nights)
    run = make_run(tmp_path, nodes=12)
    for _ in range(5):
        check = first_try()
        while doubts := assess([check], knowledge).doubts:
            more = measure_again(run, testbed, doubts)["connectivity"].measurements
            assert max(len(taken) for taken in by_series(more).values()) == 1  # one repeat a round
            check = replace(check, measurements=(*check.measurements, *more))
        assert assess([check], knowledge).checks[0].verdict is Verdict.PASS


class FakeTransport:
    def close(self) -> None:
        pass


# What breaks meanwhile, and what there is no time for


DEAD = Suspect("node", "node-2", 1.0, "no route to host")


@pytest.fixture
def roll(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def called(*suspects: Suspect, problems: Sequence[str] = ()) -> None:
        said = (*(f"{suspect.name}: {suspect.evidence}" for suspect in suspects), *problems)
        monkeypatch.setattr(step, "roll_call", lambda run, testbed: Present(testbed, suspects, said))

    return called


def broken_sweeps(monkeypatch: pytest.MonkeyPatch, **how: bool) -> FakeMpirun:
    fake = FakeMpirun(lambda operation: result(["node-2: no route to host"], None if how else 1, **how))
    monkeypatch.setattr(sweep, "mpirun", fake)
    return fake


BOTH = {"collectives": [doubt(max_bytes=65536), doubt(operation="broadcast", max_bytes=65536)]}


def test_a_node_that_dies_in_a_repeat_is_named_and_nothing_more_is_asked_of_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, roll: Callable[..., None]
) -> None:
    roll(DEAD)
    fake = broken_sweeps(monkeypatch)
    monkeypatch.setattr(step, "training", lambda *_, **__: pytest.fail("training was repeated"))
    run = make_run(tmp_path, operations=["all_reduce", "broadcast"])
    found = measure_again(run, make_testbed(), {**BOTH, "training": [doubt()]})
    repeated = found["collectives"]
    assert ([asked(argv)[0] for argv in fake.argvs], repeated.suspects) == (["all_reduce"], [DEAD])
    ((verdict, reason),) = repeated.problems
    assert (verdict, "node-2: no route to host" in reason) == (Verdict.FAIL, True)
    assert repeated.over


def test_a_node_that_was_taken_away_in_a_repeat_is_nobodys_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, roll: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    roll(problems=["node-2: preempted"])
    broken_sweeps(monkeypatch)
    repeated = measure_again(make_run(tmp_path), make_testbed(), BOTH)["collectives"]
    assert (repeated.problems, repeated.suspects, repeated.over) == ([], [], True)
    assert "node-2: preempted" in caplog.text


def test_a_node_that_does_not_answer_when_tcp_is_repeated_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, roll: Callable[..., None]
) -> None:
    def greeted(testbed: Testbed, node: Node, timeout_s: float) -> Contact:
        if node.name == "node-2":
            raise RemoteError("node-2: no route to host")
        return Contact(FakeTransport(), {}, 1, 0, 0)  # type: ignore[arg-type]

    roll(DEAD)
    monkeypatch.setattr(step, "greet", greeted)
    monkeypatch.setattr(
        step, "try_streams", lambda _, __, pairs, ___: {way: 9.0 for a, b in pairs for way in ((a, b), (b, a))}
    )
    slow = [Doubt(Measurement("tcp_egress", 9.0, "MB/s", Subject("node", f"node-{i}")), 1, 3) for i in (0, 3)]
    repeated = measure_again(make_run(tmp_path), make_testbed(), {"connectivity": slow})["connectivity"]
    assert repeated.suspects == [DEAD]
    assert [verdict for verdict, _ in repeated.problems] == [Verdict.FAIL]
    # node-3 without its neighbour node-2 is not what it was the first time
    assert {m.subject.name for m in repeated.measurements} == {"node-0"}


def test_whom_a_repeated_training_blames_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = Check("training", Verdict.FAIL, "node-2: no route to host", suspects=(DEAD,))
    monkeypatch.setattr(step, "training", lambda *_, **__: check)
    repeated = measure_again(make_run(tmp_path), make_testbed(), {"training": [doubt()]})["training"]
    assert (repeated.suspects, repeated.over) == ([DEAD], True)


def test_who_breaks_a_repeat_is_a_suspect_of_the_check_and_ends_the_repeating(store: Store) -> None:
    nodes = Nodes(1.0, 0.1, problem=(Verdict.FAIL, "when it was repeated: node-2: no route to host"))

    def again(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
        found = nodes(doubts, until)
        found["collectives"].suspects.append(DEAD)
        found["collectives"].over = True
        return found

    (check,) = compare([collectives(0.1)], LAB, store, Occasion("lab", "quick"), again)
    assert (nodes.asked, check.verdict, check.suspects) == (1, Verdict.FAIL, (DEAD,))


def test_no_operation_begins_once_time_is_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = [0.0]

    def slowly(operation: str) -> MpiResult:
        now[0] = 600.0
        return result(table())

    fake = FakeMpirun(slowly)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(sweep, "mpirun", fake)
    monkeypatch.setattr(step, "training", lambda *_, **__: pytest.fail("training was repeated"))
    monkeypatch.setattr(step, "greet", lambda *_, **__: pytest.fail("TCP was repeated"))
    tcp = Doubt(Measurement("tcp_egress", 9.0, "MB/s", Subject("node", "node-0")), 1, 3)
    run = make_run(tmp_path, operations=["all_reduce", "broadcast"])
    measure_again(run, make_testbed(), {**BOTH, "training": [doubt()], "connectivity": [tcp]}, 600.0)
    assert [asked(argv)[0] for argv in fake.argvs] == ["all_reduce"]


def test_a_repeat_that_is_cut_off_for_want_of_time_says_nothing_about_the_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, roll: Callable[..., None]
) -> None:
    """With the suite's hour for a sweep, it has the grace and what is left of the repeats' time."""
    now, limits = [0.0], []

    def hangs(testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        limits.append(options["timeout_s"])
        now[0] += options["timeout_s"]
        lines = table(sizes=(4096,), footer=False)
        for line in lines:
            options["on_line"](line)
        return result(lines, None, timed_out=True)

    roll()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(sweep, "mpirun", hangs)
    for usual_s, limit_s, problems in ((3600.0, 400.0, 0), (60.0, 60.0, 1)):
        now[0] = 0.0
        run = make_run(tmp_path)
        patient = run.suite.model_copy(
            update={"collectives": run.suite.collectives.model_copy(update={"timeout_s": usual_s})}  # type: ignore[union-attr]
        )
        repeated = measure_again(replace(run, suite=patient), make_testbed(), BOTH, 100.0)["collectives"]
        assert (limits.pop(), len(repeated.problems), repeated.over) == (limit_s, problems, True)


def test_numbers_of_other_ranks_than_there_are_now_are_not_asked_for(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, found = again(doubt(max_bytes=65536, ranks=8))
    assert (fake.argvs, found["collectives"].measurements) == ([], [])


def test_no_log_of_a_repeat_is_overwritten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two rounds whose doubts were taken once each, of other sizes."""
    logs = []

    def logged(testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        options["log_file"].parent.mkdir(parents=True, exist_ok=True)
        options["log_file"].write_text("")
        logs.append(options["log_file"].name)
        return result(table())

    monkeypatch.setattr(sweep, "mpirun", logged)
    for size in (4096, 16384):
        again = {"collectives": [doubt(message_bytes=size, placement="in_place")]}
        measure_again(make_run(tmp_path), make_testbed(), again)
    assert logs == ["all_reduce-again-1.log", "all_reduce-again-2.log"]


def test_a_series_counts_once_by_its_median() -> None:
    (m,) = once([plateau(3.0), plateau(1.0), plateau(2.0)])
    assert m.value == 2.0
