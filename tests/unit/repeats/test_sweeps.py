"""Which sweeps are repeated, at which sizes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks import table as step
from seatrial.checks.collectives import sweep
from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.contract import CheckContext, Repeated
from seatrial.checks.table import repeat_checks
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import MpiResult
from tests.unit.collectives.fake_mpirun import FakeMpirun, make_run, make_testbed, result, table
from tests.unit.repeats.doubts import asked, doubt


def test_only_that_operation_is_swept_again_at_only_those_sizes(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, by_check = again(doubt(message_bytes=16384, placement="out_of_place"))
    assert [asked(argv) for argv in fake.argvs] == [("all_reduce", "16384", "16384")]
    (m,) = by_check["collectives"].measurements  # and not the latency or the plateau of that one size
    assert (m.metric, m.conditions["message_bytes"], m.conditions["placement"]) == ("busbw", 16384, "out_of_place")


def test_a_plateau_is_repeated_by_the_sizes_that_make_it(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, _ = again(doubt(max_bytes=65536))
    assert [asked(argv) for argv in fake.argvs] == [("all_reduce", "4096", "65536")]


def test_wrong_elements_in_a_repeat_are_a_problem_of_the_cluster(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    _, by_check = again(doubt(message_bytes=16384, placement="out_of_place"), wrong=5)
    ((verdict, reason),) = by_check["collectives"].problems
    assert verdict is Verdict.CORRUPT
    assert "wrong elements" in reason


def test_a_check_that_cannot_be_repeated_comes_back_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "CHECKS", [replace(COLLECTIVES, repeat=None)])
    assert repeat_checks(CheckContext(make_run(tmp_path), make_testbed()), {"collectives": [doubt()]}) == {
        "collectives": Repeated()
    }


def test_numbers_of_other_ranks_than_there_are_now_are_not_asked_for(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, by_check = again(doubt(max_bytes=65536, ranks=8))
    assert (fake.argvs, by_check["collectives"].measurements) == ([], [])


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
        repeat_checks(CheckContext(make_run(tmp_path), make_testbed()), again)
    assert logs == ["all_reduce-again-1.log", "all_reduce-again-2.log"]
