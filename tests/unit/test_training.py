"""What the step `training` makes of what the probe prints; mpirun itself is a function here."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.connectivity.stages import RollCall
from seatrial.checks.contract import CheckContext, try_check
from seatrial.checks.lost_ranks import node_of
from seatrial.checks.suites import SuiteFile, load_suite
from seatrial.checks.training import check as step
from seatrial.checks.training import on_ranks
from seatrial.checks.training.check import read_sums
from seatrial.checks.training.result import StepEvent, read_event
from seatrial.checks.training.section import Training
from seatrial.config.run import Run
from seatrial.model.errors import RemoteError
from seatrial.model.reason import placed, uncoded
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import RankLine
from tests.suspects import kinds_and_names, suspect_names
from tests.unit.collectives.fake_mpirun import make_testbed, result
from tests.unit.training_output import LAB, printed, rank

DIED = Suspect("node", "node-2", 1.0, uncoded("no route to host"))


@dataclass
class Roll:
    """Stands for the roll call: who has died, as the test says, and how often it was called."""

    died: tuple[Suspect, ...] = ()
    calls: int = 0

    def call(self, run: Run, testbed: Testbed) -> RollCall:
        self.calls += 1
        return RollCall(
            testbed,
            self.died,
            tuple(placed(suspect.name, suspect.evidence) for suspect in self.died),
        )


@pytest.fixture(autouse=True)
def roll(monkeypatch: pytest.MonkeyPatch) -> Roll:
    roll = Roll()
    monkeypatch.setattr(on_ranks, "roll_call", roll.call)
    return roll


@pytest.fixture
def started() -> list[str]:
    """The probes that a check has started, with their first arguments."""
    return []


@pytest.fixture
def check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: list[str]
) -> Callable[..., Check]:
    """Runs the step on an mpirun that prints `played`, before it `sums` if there are some, or that
    breaks.
    """

    def run(
        played: MpiResult | Exception, bed: Testbed | None = None, sums: MpiResult | None = None
    ) -> Check:
        def fake_mpirun(testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
            started.append(" ".join(argv[1:6]))
            if sums and "all_reduce.py" in argv[1]:
                return sums
            if isinstance(played, Exception):
                raise played
            for line in played.lines:
                options["on_line"](line)
            return played

        document = load_suite("quick").model_dump()
        document["training"]["all_reduce_rounds"] = 50 if sums else 0
        suite = SuiteFile.model_validate(document)
        monkeypatch.setattr(on_ranks, "mpirun", fake_mpirun)
        return try_check(
            step.TRAINING, CheckContext(Run("run-1", LAB, suite, tmp_path), bed or make_testbed())
        ).check

    return run


def test_a_run_that_learns_passes_and_is_measured(check: Callable[..., Check]) -> None:
    done = check(result(printed()))
    assert done.verdict is Verdict.PASS
    assert (
        done.reason.sentence
        == "the loss fell by 75 % in 4 steps of 10 ms, and all 4 ranks end with the same parameters"
    )
    rows = {(m.metric, m.subject.kind, m.subject.name): m for m in done.measurements}
    assert rows["loss", "cluster", "lab"].better is None
    assert rows["loss", "cluster", "lab"].samples == (4.0, 3.0, 2.0, 1.0)
    assert rows["loss_drop", "cluster", "lab"].value == pytest.approx(0.75)
    assert rows["loss_drop", "cluster", "lab"].conditions == {
        "ranks": 4,
        "batch_per_rank": 8,
        "steps": 20,
    }
    assert rows["throughput", "cluster", "lab"].conditions == {"ranks": 4, "batch_per_rank": 8}
    assert rows["throughput", "cluster", "lab"].unit == "samples/s"
    assert (
        rows["step_time", "cluster", "lab"].value,
        rows["step_time", "cluster", "lab"].better,
    ) == (10.0, "lower")
    assert rows["step_time", "node", "node-3"].value == 13.0
    assert rows["compute_time", "node", "node-0"].better is None  # CPUs that compete


def probe_says(words: str) -> list[str]:
    return [f"training probe: {words}"]


STRANGER = [rank(0), rank(1), rank(2, checksum="cd" * 32), rank(3)]
HALVES = [rank(i, checksum=f"{i % 2}" * 64) for i in range(4)]
ONE_NAN, ALL_NAN = (
    [rank(0), rank(1, finite=False), rank(2), rank(3)],
    [rank(i, finite=False) for i in range(4)],
)
NO_GPU, CLOSED = "cannot start: torch 2.9.0 sees 0 GPUs", "RuntimeError: Connection closed by peer"


@pytest.mark.parametrize(
    ("lines", "status", "verdict", "words", "blamed"),
    [
        (printed((4.0, 3.9, 3.8, 3.7)), 0, Verdict.FAIL, "7 % off, expected at least 10 %", []),
        (printed((1.0, 2.0)), 0, Verdict.FAIL, "the loss went from 1 to 2", []),
        (printed(ranks=STRANGER[:3]), 0, Verdict.FAIL, "3 of 4 ranks took part", []),
        (
            printed(ranks=STRANGER),
            7,
            Verdict.CORRUPT,
            "different parameters: rank 2 on node-2",
            ["node-2"],
        ),
        (printed(ranks=HALVES), 7, Verdict.CORRUPT, "no majority agrees", []),
        (
            printed((4.0, 3.0, None), last_loss=None, ranks=ONE_NAN),
            *(7, Verdict.CORRUPT, "in the loss of step 2, first on rank 1 (node-1)", ["node-1"]),
        ),
        (
            printed((4.0, None), last_loss=None, ranks=ALL_NAN),
            *(7, Verdict.CORRUPT, "NaN or infinity in the loss of step 1", []),
        ),
        (printed()[:3], 1, Verdict.FAIL, "exit status is 1", []),
        (printed(), 139, Verdict.FAIL, "exit status is 139", []),
        (
            ["node-1: cannot start: torch is missing: No"],
            3,
            Verdict.NOT_RUN,
            "node-1 cannot start: torch is",
            [],
        ),
        (
            probe_says(f"node-1 rank 9: {NO_GPU}, local rank 1 needs one"),
            3,
            Verdict.FAIL,
            f"node-1 {NO_GPU}",
            [],
        ),
        (
            probe_says(f"node-3 rank 3: {CLOSED}"),
            1,
            Verdict.FAIL,
            f"rank 3 on node-3 gave up: {CLOSED}",
            [],
        ),
        (['{"event": "step", "step": 0, '], 0, Verdict.INCONCLUSIVE, "the output ends early", []),
    ],
)
def test_each_failure_has_its_code(
    check: Callable[..., Check],
    lines: list[str],
    status: int,
    verdict: Verdict,
    words: str,
    blamed: list[str],
) -> None:
    done = check(result(lines, status))
    assert (done.verdict, words in done.reason.sentence) == (verdict, True), done.reason
    assert suspect_names(done) == blamed
    assert all(0.5 < suspect.confidence < 1 for suspect in done.suspects)


def test_a_run_that_hangs_after_its_steps_fails(check: Callable[..., Check]) -> None:
    done = check(result(printed()[:2], None, timed_out=True))
    assert (done.verdict, done.reason.sentence) == (Verdict.FAIL, "no end within 1 s")


def test_a_summary_counts_where_mpirun_had_to_be_ended(check: Callable[..., Check]) -> None:
    assert check(result(printed(), None, reaped=True)).verdict is Verdict.PASS


def test_training_fails_when_the_head_is_unreachable(check: Callable[..., Check]) -> None:
    done = check(RemoteError("node-0 (10.0.0.1 port 222): connection refused"))
    assert (done.verdict, "connection refused" in done.reason.sentence) == (Verdict.FAIL, True)


def test_a_node_that_died_is_named(check: Callable[..., Check], roll: Roll) -> None:
    roll.died = (DIED,)
    assert not check(result(printed())).suspects
    assert not roll.calls  # nobody is asked where nothing broke
    done = check(result(["training probe: node-0 rank 0: timed out"], status=1))
    assert done.verdict is Verdict.FAIL
    assert done.suspects == (DIED,)
    assert done.reason.sentence.endswith("timed out; node-2: no route to host")


def test_training_with_a_single_rank_passes(check: Callable[..., Check]) -> None:
    assert (
        check(result(printed(world_size=1, ranks=[rank(0)])), make_testbed(1)).verdict
        is Verdict.PASS
    )


def test_ranks_without_a_known_host_name_are_placed_by_slots() -> None:
    bed = make_testbed(nodes=2, gpus=4)
    assert [node_of(i, "pod-abc", bed) for i in (0, 3, 4, 7, 8)] == [
        "node-0",
        "node-0",
        "node-1",
        "node-1",
        "pod-abc",
    ]
    assert node_of(0, "node-1", bed) == "node-0", "whatever it calls itself"


def test_events_are_found_behind_a_prefix() -> None:
    event = {"event": "step", "step": 3, "loss": 1.5, "step_time_ms": 20.0}
    assert read_event(f"[1,0]<stdout>:{json.dumps(event)}") == StepEvent.model_validate(event)


def test_training_steps_are_logged(
    check: Callable[..., Check], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "seatrial.training"):
        check(result(printed()))
    assert [record.getMessage() for record in caplog.records] == [
        "step   0  loss 4 nats  10 ms",
        "step   2  loss 2 nats  10 ms",
    ]


@pytest.mark.parametrize(
    "event",
    [
        *(
            "",
            "plain text",
            '{"event": ',
            '[1,0]<stdout>: {"event" 1}',
            '{"other": 1}',
            '{"event": "step"}',
        ),
        '{"event": "step", "step": "3", "loss": 1, "step_time_ms": 1}',
        '{"event": "step", "step": [], "loss": 1, "step_time_ms": 1}',
        '{"event": "summary"}',
        '{"event": "summary", "ranks": [5]}',
        '{"event": "sum"}',
        '{"event": ' + "[" * 100_000,
    ],
    ids=lambda event: event[:40],
)
def test_incomplete_training_events_are_ignored(event: str) -> None:
    assert read_event(event) is None


def test_nonfinite_numbers_in_an_event_become_none() -> None:
    event = read_event('{"event": "step", "step": 3, "loss": NaN, "step_time_ms": Infinity}')
    assert event
    assert event.model_dump() == {"event": "step", "step": 3, "loss": None, "step_time_ms": None}


# Each rank vouches for itself.


def test_summary_that_contradicts_a_rank_report_is_inconclusive(
    check: Callable[..., Check],
) -> None:
    lines = printed()
    without = [line for line in lines if not ('"part"' in line and line.rank == 2)]
    other = [
        RankLine(line.replace("ab" * 32, "cd" * 32), 2) if line.rank == 2 else line
        for line in lines
    ]
    by_another = [*without, *(RankLine(line, 3) for line in lines if line.rank == 2)]
    for forged in (without, other, by_another):
        done = check(result(forged))
        assert (done.verdict, done.suspects) == (Verdict.INCONCLUSIVE, ())
        assert done.reason.sentence == "the summary by rank 0 is not what rank 2 reports"


def test_a_summary_without_its_steps_is_no_result(check: Callable[..., Check]) -> None:
    done = check(result([line for line in printed() if '"step"' not in line]))
    assert (done.verdict, done.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        "the summary has 4 steps, the output 0",
    )
    none = check(result([line for line in printed(steps=0) if '"step"' not in line]))
    assert none.verdict is Verdict.INCONCLUSIVE


def test_a_rank_that_did_not_report_itself_is_named_with_its_node(
    check: Callable[..., Check],
) -> None:
    nodes = tuple(node.name for node in make_testbed().nodes)
    for played, sums in ((result(printed()), None), (result(printed()), result(sums_of()))):
        silent = replace(sums or played, unreported=(2,), rank_nodes=nodes)
        done = check(played, sums=silent) if sums else check(silent)
        assert done.verdict is Verdict.INCONCLUSIVE
        assert (
            done.reason.sentence
            == "rank 2 on node-2 did not report itself: the result is not of all ranks"
        )


# The sums before training: every element is checked, and what is wrong is named.


def event(wrong: Mapping[int, int] | None = None, ranks: int = 4) -> str:
    """What the probe prints of `ranks` ranks, with wrong elements by rank."""
    records = [
        {"rank": rank, "host": f"node-{rank}", "wrong": count, "first_wrong": 7 if count else None}
        for rank in range(ranks)
        for count in [(wrong or {}).get(rank, 0)]
    ]
    return json.dumps(
        {
            "event": "all_reduce",
            "rounds": 50,
            "elements": 2_000_000,
            "backend": "gloo",
            "ranks": records,
        }
    )


def sums_of(wrong: Mapping[int, int] | None = None, ranks: int = 4) -> list[RankLine]:
    """What all ranks print: each its part, then rank 0 the event."""
    last = event(wrong, ranks)
    parts = [
        RankLine(json.dumps({"event": "part", **part}), part["rank"])
        for part in json.loads(last)["ranks"]
    ]
    return [*parts, RankLine(last, 0)]


def test_training_starts_after_correct_all_reduce_sums(
    check: Callable[..., Check], started: list[str]
) -> None:
    done = check(result(printed()), sums=result(sums_of()))
    assert done.verdict is Verdict.PASS
    assert done.reason.sentence.endswith(
        "all_reduce: 50 sums of 2,000,000 elements are right on all 4 ranks"
    )
    assert started[0] == "/w/all_reduce.py --device cpu --rounds 50"
    assert [words.split()[0] for words in started] == ["/w/all_reduce.py", "/w/training.py"]
    started.clear()
    check(result(printed()))  # a suite may leave them out
    assert [words.split()[0] for words in started] == ["/w/training.py"]


@pytest.mark.parametrize(
    ("sums", "verdict", "words", "blamed"),
    [
        (
            result(sums_of({2: 5}), 7),
            Verdict.CORRUPT,
            "5 wrong elements on 1 of 4 ranks, first in round 7",
            ["node-2"],
        ),
        (result(sums_of({0: 5, 1: 5, 2: 5, 3: 5}), 7), Verdict.CORRUPT, "", []),
        (
            result(["node-1 rank 1: cannot start: torch is missing for python3"], 3),
            Verdict.NOT_RUN,
            "",
            [],
        ),
        (result([], None, timed_out=True), Verdict.INCONCLUSIVE, "", []),
        (result(sums_of(ranks=3)), Verdict.FAIL, "", []),
        (result([event()[:80]], 1), Verdict.FAIL, "", []),
    ],
)
def test_sums_that_are_wrong_or_do_not_end_are_no_pass_and_nothing_is_trained(
    check: Callable[..., Check],
    started: list[str],
    sums: MpiResult,
    verdict: Verdict,
    words: str,
    blamed: list[str],
) -> None:
    done = check(result(printed()), sums=sums)
    assert (done.verdict, words in done.reason.sentence) == (verdict, True), done.reason
    assert kinds_and_names(done) == [("node", name) for name in blamed]
    assert len(started) == 1


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"event": "all_reduce"}',
        event().replace('"wrong": 0', '"wrong": -1', 1),
        event().replace("50", "0", 1),
        event()[:-1],
        '{"event": "all_reduce", "ranks": ' + "[" * 5000,
    ],
)
def test_malformed_all_reduce_events_are_ignored(line: str) -> None:
    assert read_sums(line) is None


def test_nightly_and_acceptance_do_fifty_all_reduce_rounds() -> None:
    sections = [load_suite(name).section(Training) for name in ("quick", "nightly", "acceptance")]
    assert [section and section.all_reduce_rounds for section in sections] == [0, 50, 50]
