"""What becomes of errors in a run's steps."""

from asyncio import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.checks.contract import StepResult
from seatrial.model.errors import LaunchError, MissingError, NodesError, RemoteError, SeatrialError
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, Suspect
from seatrial.model.verdict import Verdict
from seatrial.runs.run_state import RunState
from seatrial.system.process import process_age_s
from tests.unit.collectives.fake_mpirun import make_run, make_testbed


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    return RunState(make_run(tmp_path))


def failing(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (MissingError("no mpirun"), Verdict.NOT_RUN),
        (RemoteError("refused"), Verdict.FAIL),
        (NodesError({"node-1": uncoded("NotReady")}), Verdict.FAIL),
        (LaunchError("no quota"), Verdict.INCONCLUSIVE),
        (SeatrialError("locked"), Verdict.INCONCLUSIVE),
        (ZeroDivisionError("oops"), Verdict.INCONCLUSIVE),
    ],
)
def test_an_error_in_a_step_becomes_a_check(
    state: RunState, error: Exception, verdict: Verdict
) -> None:
    with state.attempt("launch"):
        failing(error)
    (check,) = state.checks
    assert (check.name, check.verdict) == ("launch", verdict)
    assert str(error) in check.reason.sentence
    assert "launch" in state.timings
    assert state.result().verdict is verdict


def test_reason_and_notes_of_a_run_are_redacted(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    state = RunState(
        replace(run, cluster=run.cluster.model_copy(update={"env": {"MY_TOKEN": "s3cr3t-value"}}))
    )
    with state.attempt("launch"):
        failing(LaunchError("node-1 said: s3cr3t-value"))
    state.note("s3cr3t-value is not taken")
    assert (state.result().reason.sentence, state.result().notes) == (
        "launch: node-1 said: ***",
        ("*** is not taken",),
    )


def test_testbed_is_notified_after_each_check(state: RunState) -> None:
    through: list[str] = []
    testbed = replace(make_testbed(2), after_check=through.append)
    state.checked(StepResult(Check("connectivity", Verdict.PASS, Reason()), testbed))
    assert through == ["connectivity"]


def test_nodes_that_a_step_finds_broken_are_suspects(state: RunState) -> None:
    with state.attempt("teardown"):
        failing(
            NodesError({"node-1": uncoded("NotReady: silent"), "node-3": uncoded("NotReady: gone")})
        )
    result = state.result()
    assert result.reason.sentence == "node-1 (100 % sure): NotReady: silent; also node-3"
    assert [
        (suspect.kind, suspect.name, suspect.evidence.sentence) for suspect in result.suspects
    ] == [
        ("node", "node-1", "NotReady: silent"),
        ("node", "node-3", "NotReady: gone"),
    ]


def test_checks_run_beside_another_run_blame_nobody(state: RunState) -> None:
    suspect = Suspect("node", "node-1", 0.9, uncoded("slow"))
    state.checks = [
        Check("connectivity", Verdict.PASS, uncoded("all answer")),
        Check("collectives", Verdict.FAIL, uncoded("busbw is low"), suspects=(suspect,)),
        Check("training", Verdict.CORRUPT, uncoded("the loss is NaN"), suspects=(suspect,)),
        Check("devices", Verdict.INCONCLUSIVE, uncoded("no end within 46 s")),
    ]
    state.doubt(uncoded("another run has this cluster"))
    outcomes = {check.name: (check.verdict, check.suspects) for check in state.checks}
    assert outcomes == {
        "connectivity": (Verdict.PASS, ()),
        "collectives": (Verdict.INCONCLUSIVE, ()),
        "training": (Verdict.CORRUPT, (suspect,)),
        "devices": (Verdict.INCONCLUSIVE, ()),
        "turn": (Verdict.INCONCLUSIVE, ()),
    }
    assert state.checks[1].reason.sentence == "another run has this cluster: busbw is low"
    assert state.checks[3].reason.sentence == "another run has this cluster: no end within 46 s"


def test_an_interrupt_is_raised_and_not_turned_into_a_check(state: RunState) -> None:
    with pytest.raises(KeyboardInterrupt), state.attempt("launch"):
        raise KeyboardInterrupt
    assert state.checks == []


def failing_after(cut: BaseException) -> None:
    try:
        raise cut
    except BaseException:
        failing(ValueError("Task run is not set"))  # as Prefect's engine does


def test_interrupt_that_prefect_cannot_record_adds_no_check(state: RunState) -> None:
    with pytest.raises(KeyboardInterrupt), state.attempt("launch"):
        failing_after(KeyboardInterrupt())
    assert state.checks == []


def test_an_error_after_a_task_that_was_cancelled_is_a_finding(state: RunState) -> None:
    with state.attempt("launch"):
        failing_after(CancelledError())
    assert [check.verdict for check in state.checks] == [Verdict.INCONCLUSIVE]


def test_skipped_step_names_the_failed_prerequisite(state: RunState) -> None:
    with state.attempt("connectivity"):
        failing(MissingError("mpirun is missing"))
    assert not state.can_run("training", after="connectivity")
    assert state.checks[-1] == Check(
        "training", Verdict.NOT_RUN, Reason.of("prerequisite-failed", step="connectivity")
    )


def test_failed_check_does_not_stop_checks_that_do_not_need_it(state: RunState) -> None:
    with state.attempt("connectivity"):
        state.add(Check("connectivity", Verdict.FAIL, uncoded("node-1 is dead")))
    with state.attempt("collectives"):
        state.add(Check("collectives", Verdict.NOT_RUN, uncoded("all_reduce_perf is missing")))
    assert state.can_run("training", after="connectivity")


def test_testbed_before_launch_raises_an_error(state: RunState) -> None:
    with pytest.raises(LaunchError):
        _ = state.testbed


def test_process_age_increases() -> None:
    first = age = process_age_s()
    while age == first:  # it counts in ticks of the kernel
        age = process_age_s()
    assert 0 < first < age < 3600
