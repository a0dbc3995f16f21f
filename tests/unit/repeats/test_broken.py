"""What breaks while it is repeated, and what there is no time for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.collectives import sweep
from seatrial.checks.collectives.section import Collectives
from seatrial.checks.connectivity import stages
from seatrial.checks.connectivity.stages import RollCall
from seatrial.checks.contract import CheckContext, Problem, Repeated
from seatrial.checks.metrics import Doubt
from seatrial.checks.table import repeat_checks
from seatrial.checks.training import check as training
from seatrial.history.past import RunContext
from seatrial.history.store import Store
from seatrial.model.errors import RemoteError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, placed, uncoded
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.node_setup import NodeConnection
from seatrial.tasks.check import compare
from tests.unit.collectives.fake_mpirun import FakeMpirun, make_run, make_testbed, result, table
from tests.unit.repeats.doubts import (
    LAB,
    FakeTransport,
    Nodes,
    collectives,
    doubt,
    operation_and_sizes,
)

DEAD = Suspect("node", "node-2", 1.0, uncoded("no route to host"))


@pytest.fixture
def roll(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def called(*suspects: Suspect, problems: Sequence[Reason] = ()) -> None:
        complaints = (*(placed(suspect.name, suspect.evidence) for suspect in suspects), *problems)
        monkeypatch.setattr(
            stages, "roll_call", lambda run, testbed: RollCall(testbed, suspects, complaints)
        )

    return called


def broken_sweeps(monkeypatch: pytest.MonkeyPatch, **how: bool) -> FakeMpirun:
    fake = FakeMpirun(
        lambda operation: result(["node-2: no route to host"], None if how else 1, **how)
    )
    monkeypatch.setattr(sweep, "mpirun", fake)
    return fake


BOTH = {"collectives": [doubt(max_bytes=65536), doubt(operation="broadcast", max_bytes=65536)]}


def test_a_node_that_dies_in_a_repeat_is_named_and_nothing_more_is_asked_of_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, roll: Callable[..., None]
) -> None:
    roll(DEAD)
    fake = broken_sweeps(monkeypatch)
    monkeypatch.setattr(training, "_train", lambda *_, **__: pytest.fail("training was repeated"))
    run = make_run(tmp_path, operations=["all_reduce", "broadcast"])
    by_check = repeat_checks(CheckContext(run, make_testbed()), {**BOTH, "training": [doubt()]})
    repeated = by_check["collectives"]
    assert ([operation_and_sizes(argv)[0] for argv in fake.argvs], repeated.suspects) == (
        ["all_reduce"],
        [DEAD],
    )
    (problem,) = repeated.problems
    assert (problem.verdict, "node-2: no route to host" in problem.reason.sentence) == (
        Verdict.FAIL,
        True,
    )
    assert repeated.over


def test_a_node_that_was_taken_away_in_a_repeat_is_nobodys_fault(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    roll: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    roll(problems=[uncoded("node-2: preempted")])
    broken_sweeps(monkeypatch)
    repeated = repeat_checks(CheckContext(make_run(tmp_path), make_testbed()), BOTH)["collectives"]
    assert (repeated.problems, repeated.suspects, repeated.over) == ([], [], True)
    assert "node-2: preempted" in caplog.text


def test_a_node_that_does_not_answer_when_tcp_is_repeated_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, roll: Callable[..., None]
) -> None:
    def greeted(testbed: Testbed, node: Node, timeout_s: float) -> NodeConnection:
        if node.name == "node-2":
            raise RemoteError("node-2: no route to host")
        return NodeConnection(FakeTransport(), {}, 1, 0, 0)  # type: ignore[arg-type]

    roll(DEAD)
    monkeypatch.setattr(stages, "set_up_node", greeted)
    monkeypatch.setattr(
        stages,
        "try_streams",
        lambda _, __, pairs, ___: {way: 9.0 for a, b in pairs for way in ((a, b), (b, a))},
    )
    slow = [
        Doubt(Measurement("tcp_egress", 9.0, "MB/s", Subject("node", f"node-{i}")), 1, 3)
        for i in (0, 3)
    ]
    repeated = repeat_checks(
        CheckContext(make_run(tmp_path), make_testbed()), {"connectivity": slow}
    )["connectivity"]
    assert repeated.suspects == [DEAD]
    assert [problem.verdict for problem in repeated.problems] == [Verdict.FAIL]
    # node-3 without its neighbour node-2 is not what it was the first time
    assert {m.subject.name for m in repeated.measurements} == {"node-0"}


def test_suspects_of_a_repeated_training_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check = Check("training", Verdict.FAIL, uncoded("node-2: no route to host"), suspects=(DEAD,))
    monkeypatch.setattr(training, "_train", lambda *_, **__: check)
    repeated = repeat_checks(
        CheckContext(make_run(tmp_path), make_testbed()), {"training": [doubt()]}
    )["training"]
    assert (repeated.suspects, repeated.over) == ([DEAD], True)


def test_node_that_dies_in_a_repeat_is_a_suspect_and_ends_the_repeats(store: Store) -> None:
    nodes = Nodes(
        1.0,
        0.1,
        problem=Problem(Verdict.FAIL, uncoded("when it was repeated: node-2: no route to host")),
    )

    def again(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
        by_check = nodes(doubts, until)
        by_check["collectives"].suspects.append(DEAD)
        by_check["collectives"].over = True
        return by_check

    (check,) = compare([collectives(0.1)], LAB, store, RunContext("lab", "quick"), again)
    assert (nodes.asked, check.verdict, check.suspects) == (1, Verdict.FAIL, (DEAD,))


def test_no_operation_begins_once_time_is_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]

    def slowly(operation: str) -> MpiResult:
        now[0] = 600.0
        return result(table())

    fake = FakeMpirun(slowly)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(sweep, "mpirun", fake)
    monkeypatch.setattr(training, "_train", lambda *_, **__: pytest.fail("training was repeated"))
    monkeypatch.setattr(stages, "set_up_node", lambda *_, **__: pytest.fail("TCP was repeated"))
    tcp = Doubt(Measurement("tcp_egress", 9.0, "MB/s", Subject("node", "node-0")), 1, 3)
    run = make_run(tmp_path, operations=["all_reduce", "broadcast"])
    repeat_checks(
        CheckContext(run, make_testbed()),
        {**BOTH, "training": [doubt()], "connectivity": [tcp]},
        600.0,
    )
    assert [operation_and_sizes(argv)[0] for argv in fake.argvs] == ["all_reduce"]


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
        section = run.suite.section(Collectives)
        assert section is not None
        patient = run.suite.model_copy(
            update={"collectives": section.model_copy(update={"timeout_s": usual_s})}
        )
        repeated = repeat_checks(
            CheckContext(replace(run, suite=patient), make_testbed()), BOTH, 100.0
        )["collectives"]
        assert (limits.pop(), len(repeated.problems), repeated.over) == (limit_s, problems, True)
