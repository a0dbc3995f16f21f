"""The sums before training: every element is checked, and what is wrong is named."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.connectivity.stages import RollCall
from seatrial.checks.contract import CheckContext, try_check
from seatrial.checks.suites import SuiteFile, load_suite
from seatrial.checks.training import check as step
from seatrial.checks.training.check import read_sums
from seatrial.checks.training.section import Training
from seatrial.config.run import Run
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import MpiResult
from tests.unit.training_output import LAB, make_testbed, printed, result


def event(wrong: Mapping[int, int] | None = None, ranks: int = 4) -> str:
    """What the probe prints of `ranks` ranks, with wrong elements by rank."""
    records = [
        {"rank": rank, "host": f"node-{rank}", "wrong": count, "first_wrong": 7 if count else None}
        for rank in range(ranks)
        for count in [(wrong or {}).get(rank, 0)]
    ]
    return json.dumps({"event": "all_reduce", "rounds": 50, "elements": 2_000_000, "backend": "gloo", "ranks": records})


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Check, list[str]]]:
    """The check on an mpirun that prints `sums`, and then a training; and which probes it started."""

    def run(sums: MpiResult, rounds: int = 50) -> tuple[Check, list[str]]:
        started: list[str] = []

        def fake_mpirun(testbed: Any, argv: Sequence[str], **options: Any) -> MpiResult:
            started.append(" ".join(argv[1:6]))
            return sums if "all_reduce.py" in argv[1] else result(printed())

        document = load_suite("quick").model_dump()
        document["training"]["all_reduce_rounds"] = rounds
        monkeypatch.setattr(step, "mpirun", fake_mpirun)
        monkeypatch.setattr(step, "roll_call", lambda run, testbed: RollCall(testbed, (), ()))
        context = CheckContext(Run("run-1", LAB, SuiteFile.model_validate(document), tmp_path), make_testbed())
        return try_check(step.TRAINING, context).check, started

    return run


def test_right_sums_are_told_and_training_follows(trained: Callable[..., tuple[Check, list[str]]]) -> None:
    check, started = trained(result([event()]))
    assert check.verdict is Verdict.PASS
    assert check.reason.endswith("all_reduce: 50 sums of 2,000,000 elements are right on all 4 ranks")
    assert [words.split()[0] for words in started] == ["/w/all_reduce.py", "/w/training.py"]
    assert started[0] == "/w/all_reduce.py --device cpu --rounds 50"


def test_a_suite_may_leave_them_out(trained: Callable[..., tuple[Check, list[str]]]) -> None:
    _, started = trained(result([]), rounds=0)
    assert [words.split()[0] for words in started] == ["/w/training.py"]


def test_one_rank_with_wrong_elements_is_named_and_nothing_is_trained(
    trained: Callable[..., tuple[Check, list[str]]],
) -> None:
    check, started = trained(result([event({2: 5})], status=7))
    assert check.verdict is Verdict.CORRUPT
    assert "5 wrong elements on 1 of 4 ranks, first in round 7 of 50" in check.reason
    assert [(s.kind, s.name) for s in check.suspects] == [("node", "node-2")]
    assert len(started) == 1


def test_what_most_ranks_received_wrong_names_nobody(trained: Callable[..., tuple[Check, list[str]]]) -> None:
    check, _ = trained(result([event({0: 5, 1: 5, 2: 5, 3: 5})], status=7))
    assert (check.verdict, check.suspects) == (Verdict.CORRUPT, ())


@pytest.mark.parametrize(
    ("played", "verdict"),
    [
        (result(["node-1 rank 1: cannot start: torch is missing for python3"], 3), Verdict.NOT_RUN),
        (result([], None, timed_out=True), Verdict.INCONCLUSIVE),
        (result([event(ranks=3)]), Verdict.FAIL),
        (result([event()[:80]], 1), Verdict.FAIL),
    ],
)
def test_sums_that_do_not_end_are_no_pass(
    trained: Callable[..., tuple[Check, list[str]]], played: MpiResult, verdict: Verdict
) -> None:
    check, started = trained(played)
    assert check.verdict is verdict, check.reason
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
def test_a_broken_or_hostile_event_is_none(line: str) -> None:
    assert read_sums(line) is None


def test_nightly_and_acceptance_have_the_recipes_fifty_rounds() -> None:
    rounds = {}
    for name in ("quick", "nightly", "acceptance"):
        section = load_suite(name).section(Training)
        rounds[name] = section.all_reduce_rounds if section else None
    assert rounds == {"quick": 0, "nightly": 50, "acceptance": 50}
