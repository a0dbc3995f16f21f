"""What the step `training` makes of what the probe prints; mpirun itself is a function here."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.connectivity.stages import RollCall
from seatrial.checks.contract import CheckContext, try_check
from seatrial.checks.failures import node_of
from seatrial.checks.suites import load_suite
from seatrial.checks.training import check as step
from seatrial.checks.training.result import read_event
from seatrial.config.run import Run
from seatrial.model.errors import RemoteError
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import MpiResult
from tests.unit.training_output import LAB, make_testbed, printed, rank, result

DIED = Suspect("node", "node-2", 1.0, "no route to host")


@dataclass
class Roll:
    """Stands for the roll call: who has died, as the test says, and how often it was called."""

    died: tuple[Suspect, ...] = ()
    calls: int = 0

    def call(self, run: Run, testbed: Testbed) -> RollCall:
        self.calls += 1
        return RollCall(testbed, self.died, tuple(f"{suspect.name}: {suspect.evidence}" for suspect in self.died))


@pytest.fixture(autouse=True)
def roll(monkeypatch: pytest.MonkeyPatch) -> Roll:
    roll = Roll()
    monkeypatch.setattr(step, "roll_call", roll.call)
    return roll


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Check]:
    """Runs the step on an mpirun that prints `played`."""

    def run(played: MpiResult, bed: Testbed | None = None) -> Check:
        def fake_mpirun(testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
            for line in played.lines:
                options["on_line"](line)
            return played

        monkeypatch.setattr(step, "mpirun", fake_mpirun)
        return try_check(step.TRAINING, CheckContext(make_run(tmp_path), bed or make_testbed())).check

    return run


def make_run(tmp_path: Path) -> Run:
    return Run("run-1", LAB, load_suite("quick"), tmp_path)


def test_a_run_that_learns_passes_and_is_measured(check: Callable[..., Check]) -> None:
    done = check(result(printed()))
    assert done.verdict is Verdict.PASS
    assert done.reason == "the loss fell by 75% in 4 steps of 10 ms, and all 4 ranks end with the same parameters"
    rows = {(m.metric, m.subject.kind, m.subject.name): m for m in done.measurements}
    assert rows["loss", "cluster", "lab"].better is None
    assert rows["loss", "cluster", "lab"].samples == (4.0, 3.0, 2.0, 1.0)
    assert rows["loss_drop", "cluster", "lab"].value == pytest.approx(0.75)
    assert rows["loss_drop", "cluster", "lab"].conditions == {"ranks": 4, "batch_per_rank": 8, "steps": 20}
    assert rows["throughput", "cluster", "lab"].conditions == {"ranks": 4, "batch_per_rank": 8}
    assert rows["throughput", "cluster", "lab"].unit == "samples/s"
    assert (rows["step_time", "cluster", "lab"].value, rows["step_time", "cluster", "lab"].better) == (10.0, "lower")
    assert rows["step_time", "node", "node-3"].value == 13.0
    assert rows["compute_time", "node", "node-0"].better is None  # CPUs that compete


@pytest.mark.parametrize(
    ("lines", "status", "verdict", "words", "blamed"),
    [
        (printed((4.0, 3.9, 3.8, 3.7)), 0, Verdict.FAIL, "7% off, expected at least 10%", []),
        (printed((1.0, 2.0)), 0, Verdict.FAIL, "the loss went from 1 to 2", []),
        (printed(ranks=[rank(i) for i in range(3)]), 0, Verdict.FAIL, "3 of 4 ranks took part", []),
        (
            printed(ranks=[rank(0), rank(1), rank(2, checksum="cd" * 32), rank(3)]),
            7,
            Verdict.CORRUPT,
            "different parameters: rank 2 on node-2",
            ["node-2"],
        ),
        (
            printed(ranks=[rank(i, checksum=f"{i % 2}" * 64) for i in range(4)]),
            7,
            Verdict.CORRUPT,
            "no majority agrees",
            [],
        ),
        (
            printed((4.0, 3.0, None), last_loss=None, ranks=[rank(0), rank(1, finite=False), rank(2), rank(3)]),
            7,
            Verdict.CORRUPT,
            "in the loss of step 2, first on rank 1 (node-1)",
            ["node-1"],
        ),
        (
            printed((4.0, None), last_loss=None, ranks=[rank(i, finite=False) for i in range(4)]),
            7,
            Verdict.CORRUPT,
            "NaN or infinity in the loss of step 1",
            [],
        ),
        (printed()[:3], 1, Verdict.FAIL, "exit status is 1", []),
        (printed(), 139, Verdict.FAIL, "exit status is 139", []),
        (["node-1: cannot start: torch is missing: No"], 3, Verdict.NOT_RUN, "node-1 cannot start: torch is", []),
        (
            ["training probe: node-1 rank 9: cannot start: torch 2.9.0 sees 0 GPUs, local rank 1 needs one"],
            3,
            Verdict.FAIL,
            "node-1 cannot start: torch 2.9.0 sees 0 GPUs",
            [],
        ),
        (
            ["training probe: node-3 rank 3: RuntimeError: Connection closed by peer"],
            1,
            Verdict.FAIL,
            "rank 3 on node-3 gave up: RuntimeError: Connection closed by peer",
            [],
        ),
        (['{"event": "step", "step": 0, '], 0, Verdict.INCONCLUSIVE, "the output ends early", []),
    ],
)
def test_what_went_wrong_is_said(
    check: Callable[..., Check], lines: list[str], status: int, verdict: Verdict, words: str, blamed: list[str]
) -> None:
    done = check(result(lines, status))
    assert (done.verdict, words in done.reason) == (verdict, True), done.reason
    assert [suspect.name for suspect in done.suspects] == blamed


def test_a_run_that_hangs_after_its_steps_fails(check: Callable[..., Check]) -> None:
    done = check(result(printed()[:2], None, timed_out=True))
    assert (done.verdict, done.reason) == (Verdict.FAIL, "no end within 1 s")


def test_a_summary_counts_where_mpirun_had_to_be_ended(check: Callable[..., Check]) -> None:
    assert check(result(printed(), None, reaped=True)).verdict is Verdict.PASS


def test_a_head_that_is_gone_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def gone(testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        raise RemoteError("node-0 (10.0.0.1 port 222): connection refused")

    monkeypatch.setattr(step, "mpirun", gone)
    done = try_check(step.TRAINING, CheckContext(make_run(tmp_path), make_testbed())).check
    assert (done.verdict, "connection refused" in done.reason) == (Verdict.FAIL, True)


def test_a_node_that_died_is_named(check: Callable[..., Check], roll: Roll) -> None:
    roll.died = (DIED,)
    assert not check(result(printed())).suspects
    assert not roll.calls  # nobody is asked where nothing broke
    done = check(result(["training probe: node-0 rank 0: timed out"], status=1))
    assert done.verdict is Verdict.FAIL
    assert done.suspects == (DIED,)
    assert done.reason.endswith("timed out; node-2: no route to host")


def test_one_rank_trains_alone(check: Callable[..., Check]) -> None:
    assert check(result(printed(world_size=1, ranks=[rank(0)])), make_testbed(1)).verdict is Verdict.PASS


def test_ranks_without_a_known_host_name_are_placed_by_slots() -> None:
    bed = make_testbed(nodes=2, slots=4)
    assert [node_of(i, "pod-abc", bed) for i in (0, 3, 4, 7, 8)] == ["node-0", "node-0", "node-1", "node-1", "pod-abc"]
    assert node_of(0, "node-1", bed) == "node-1"


@pytest.mark.parametrize("line", ["", "plain text", '{"event": ', '[1,0]<stdout>: {"event" 1}', '{"other": 1}'])
def test_other_lines_are_no_events(line: str) -> None:
    assert read_event(line) is None


def test_events_are_found_behind_a_prefix() -> None:
    event = {"event": "step", "step": 3, "loss": 1.5, "step_time_ms": 20.0}
    assert read_event(f"[1,0]<stdout>:{json.dumps(event)}") == event


def test_progress_is_said(check: Callable[..., Check], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "seatrial.training"):
        check(result(printed()))
    assert [record.getMessage() for record in caplog.records] == [
        "step   0  loss 4.0000  10 ms",
        "step   2  loss 2.0000  10 ms",
    ]


@pytest.mark.parametrize(
    "event",
    [
        '{"event": "step"}',
        '{"event": "step", "step": "3", "loss": 1, "step_time_ms": 1}',
        '{"event": "step", "step": [], "loss": 1, "step_time_ms": 1}',
        '{"event": "summary"}',
        '{"event": "summary", "ranks": [5]}',
        '{"event": "sum"}',
        '{"event": ' + "[" * 100_000,
    ],
    ids=lambda event: event[:40],
)
def test_what_is_no_whole_event_is_none(event: str) -> None:
    assert read_event(event) is None


def test_numbers_that_are_not_finite_are_none() -> None:
    event = read_event('{"event": "step", "step": 3, "loss": NaN, "step_time_ms": Infinity}')
    assert event == {"event": "step", "step": 3, "loss": None, "step_time_ms": None}
