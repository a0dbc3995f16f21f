"""A run and earlier runs on the terminal."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from seatrial.history import open_store
from seatrial.model.reason import uncoded
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.listings import history_frame, history_json, history_table, show_history
from seatrial.report.terminal import closing_lines, output, print_line, show_summary, sparkline
from tests import samples
from tests.unit.history.stored import a_run


def _printed(result: RunResult, encoding: str = "utf-8") -> str:
    bytes_out = io.BytesIO()
    with io.TextIOWrapper(
        bytes_out, encoding=encoding, errors="strict", write_through=True
    ) as file:
        show_summary(result, Console(file=file, width=110, force_terminal=False))
        return bytes_out.getvalue().decode(encoding)


def test_the_summary_shows_suspects_then_checks_and_sweep() -> None:
    text = _printed(samples.faulty_h100())
    assert text.startswith("suspect")
    assert "inconclusive" in text
    assert "all_reduce      205 GB/s" in text
    assert "64K ▁" in text
    assert "node-5 (10.20.0.16)" in text


def test_share_of_the_link_rate_is_shown_beside_the_plateau_when_known() -> None:
    assert "of links" not in _printed(samples.faulty_h100())
    text = _printed(samples.with_shares(samples.faulty_h100()))
    assert "of links" in text
    assert "all_reduce      205 GB/s   51 %      64K" in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_summary_is_printable_in_ascii_and_latin_1(encoding: str) -> None:
    text = _printed(samples.faulty_h100(), encoding)
    assert "64K to 8G" in text
    _printed(samples.hostile("名\x1b[31m\n[red]✓"), encoding)


def test_text_from_outside_is_printed_without_markup_or_control_characters() -> None:
    text = _printed(samples.hostile("[red]x[/red]\x1b]0;t\x07"))
    assert "[red]x[/red]" in text
    assert "\x1b" not in text


def test_log_text_between_colons_is_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(output(), "node-1:1234:1300 [5] NCCL WARN")
    assert capsys.readouterr().out == "node-1:1234:1300 [5] NCCL WARN\n"


def test_the_closing_line_is_one_line() -> None:
    result = replace(samples.faulty_h100(), reason=uncoded("first\nsecond ≥ 3\x1b[0m"))
    assert closing_lines(result, "utf-8").splitlines()[2:] == ["fail: first second ≥ 3 [0m"]
    assert closing_lines(result, "ascii").splitlines()[2:] == ["fail: first second >= 3 [0m"]
    last = closing_lines(samples.healthy_local()).splitlines()[-1]
    assert last == "pass: connectivity, collectives, training: all pass"


def test_sparklines_are_scaled_from_zero_to_the_largest_value() -> None:
    assert sparkline([0, 1, 2]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""


def test_the_table_and_the_json_show_every_run() -> None:
    with open_store("sqlite://") as store:
        store.save(
            a_run(1, verdict=Verdict.FAIL, reason=uncoded("[red]node-2[/red] is slow")),
            Path("/runs/1"),
        )
        rows = store.runs()
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(history_table(rows, console.encoding, console.width))
    assert "[red]node-2[/red] is slow" in console.export_text()
    assert history_json(rows)[0]["started"] == "2026-11-03T01:30:00+00:00"


def test_long_reason_does_not_squeeze_other_history_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_store("sqlite://") as store:
        store.save(
            a_run(1, verdict=Verdict.FAIL, reason=uncoded("node-2 is slow, " * 40)), Path("/runs/1")
        )
        rows = store.runs()
    show_history(rows)
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith(rows[0].run_id)
    assert f" {rows[0].cluster} " in line
    assert " fail " in line
    assert "node-2 is slow" in line


def test_an_empty_history_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    show_history([])
    assert capsys.readouterr().out == "no run is recorded\n"


def test_eighty_columns_have_room_for_the_node_that_a_reason_names() -> None:
    reason = "node-2 is slow: sends 23.6 MB/s, peers 374 (94 % less)"
    with open_store("sqlite://") as store:
        store.save(a_run(1, verdict=Verdict.INCONCLUSIVE, reason=uncoded(reason)), Path("/runs/1"))
        rows = store.runs()
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(history_table(rows, console.encoding, console.width))
    heading, line = console.export_text().splitlines()
    assert heading.split() == ["run", "verdict", "reason"]
    assert line.startswith(f"{rows[0].run_id}  ")
    assert "node-2 is slow: sends" in line
    assert len(line) <= 80


def test_a_piped_table_has_a_line_for_each_row_and_no_blanks_at_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_store("sqlite://") as store:
        for number, reason in ((1, "well"), (2, "node-2 is slow, " * 40 + "end")):
            store.save(a_run(number, verdict=Verdict.FAIL, reason=uncoded(reason)), Path("/runs"))
        rows = store.runs()
    show_history(rows)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == lines
    assert [line.rpartition(" ")[2] for line in lines] == ["reason", "end", "well"]


def test_history_frame_has_a_column_for_each_software_version() -> None:
    with open_store("sqlite://") as store:
        for number, version in ((1, "2.27"), (2, "2.28")):
            store.save(a_run(number, fingerprint={"nccl": version}), Path("/runs"))
        frame = history_frame(store.runs())
    assert frame["fingerprint.nccl"].tolist() == ["2.28", "2.27"]
    assert history_frame([]).empty
