"""What the step `collectives` measures, and how it says it."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.catalog.published import published, swept_sizes
from seatrial.checks.collectives import check as step
from seatrial.checks.collectives import sweep
from seatrial.checks.collectives.outcome import conclude
from seatrial.checks.collectives.problems import Setting
from seatrial.checks.contract import CheckContext, try_check
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.nccl import Row, Sweep, Timing
from seatrial.remote.mpi_result import MpiResult
from tests.unit.collectives.fake_mpirun import ROW, make_run, make_testbed, result, table


def test_clean_sweep_passes_and_is_measured(check: Callable[..., Check]) -> None:
    done = check(result(table()))
    assert (done.name, done.verdict) == ("collectives", Verdict.PASS)
    by_metric = {
        (m.metric, m.conditions.get("message_bytes"), m.conditions.get("placement")): m
        for m in done.measurements
    }
    assert by_metric["busbw", 65536, "in_place"].value == pytest.approx(1.5, rel=0.01)
    plateau = by_metric["busbw_plateau", None, None]
    assert plateau.samples == pytest.approx((1.5, 1.5, 1.5), rel=0.01)
    assert plateau.conditions["max_bytes"] == 65536
    latency = by_metric["latency", 4096, None]
    assert (latency.unit, latency.better, latency.conditions["ranks"]) == ("us", "lower", 4)
    assert latency.value == pytest.approx(4.1, abs=0.01)
    assert {m.subject.name for m in done.measurements} == {"lab"}


def test_busbw_comes_from_the_time_because_print_has_two_decimals(
    check: Callable[..., Check],
) -> None:
    row = ROW.format(size=16384, count=4096, time=9999.5, alg=0.0, bus=0.01, wrong=0)
    lines = [row if line.split()[:1] == ["16384"] else line for line in table()]
    measured = next(
        m for m in check(result(lines)).measurements if m.conditions.get("message_bytes") == 16384
    )
    assert measured.value == pytest.approx(16384 / 9999.5 / 1e3 * 1.5)
    assert measured.printed == 0.01


def test_wrong_elements_are_corrupt_and_named(check: Callable[..., Check]) -> None:
    done = check(result(table(wrong=3), 7))
    assert done.verdict is Verdict.CORRUPT
    assert done.reason.sentence == "all_reduce: wrong elements: 3 at 64K out-of-place"


@pytest.mark.parametrize("aligned", [16, 4])
def test_sizes_are_rounded_to_what_the_ranks_can_share(aligned: int) -> None:
    """all_gather over 6 ranks, as nccl-tests prints it: whole parts, and rows of 0 where a part
    would be empty.
    """
    asked = tuple(8 << i for i in range(20))
    rows = [row_of(size // (6 * aligned) * 6 * aligned) for size in asked]
    setting = Setting("all_gather", "float32", 6, "lab", asked)
    assert conclude(setting, result([]), sweep_of("all_gather", rows, 6)).verdict is Verdict.PASS
    short = conclude(
        setting, result([]), sweep_of("all_gather", [row for row in rows if row.size < 600_000], 6)
    )
    assert "3 of 20 sizes are missing: 1M, 2M, 4M" in short.reason.sentence


def test_a_plateau_is_held_against_the_catalog_at_the_largest_size() -> None:
    asked = (1 << 27, 1 << 28, 1 << 29, 1 << 30)
    setting = Setting("all_reduce", "float32", 8, "lab", asked)
    outcome = conclude(
        setting, result([]), sweep_of("all_reduce", [row_of(size) for size in asked], 8)
    )
    (plateau,) = (m for m in outcome.measurements if m.metric == "busbw_plateau")
    sizes = swept_sizes(outcome.measurements)(plateau)
    (baseline,) = published(plateau, Setup("H200-SXM", 1, 8, 8, "NVLink"), sizes)
    assert (baseline.source, " at 1G " in baseline.detail) == ("catalog", True)


def test_rows_in_lines_that_were_not_kept_still_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def chatty(testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        for line in table():
            options["on_line"](line)
        return result(
            ["first line", "[999 lines are left out here; the log has them]", "last line"]
        )

    monkeypatch.setattr(sweep, "mpirun", chatty)
    done = try_check(step.COLLECTIVES, CheckContext(make_run(tmp_path), make_testbed())).check
    assert done.verdict is Verdict.PASS, done.reason


def row_of(size: int) -> Row:
    side = Timing(size / 1e3, 1.0, 5 / 6, 0)
    return Row(size, size // 24, "float", "none", -1, side, side)


def sweep_of(operation: str, rows: Sequence[Row], ranks: int) -> Sweep:
    return Sweep(operation, None, ranks, (), tuple(rows), 0, 1.0, "ok")


def test_rows_are_logged_as_they_arrive(
    check: Callable[..., Check], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "seatrial.collectives"):
        check(result(table(wrong=2)))
    rows = [record for record in caplog.records if record.getMessage().startswith("all_reduce ")]
    assert len(rows) == 3
    assert "64K" in rows[-1].getMessage()
    assert "2 wrong" in rows[-1].getMessage()
