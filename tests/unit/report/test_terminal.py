import io
from dataclasses import replace

import pytest
from rich.console import Console

from seatrial.model.result import RunResult
from seatrial.report.terminal import closing_lines, show_summary, sparkline
from tests import samples


def _printed(result: RunResult, encoding: str = "utf-8") -> str:
    bytes_out = io.BytesIO()
    with io.TextIOWrapper(bytes_out, encoding=encoding, errors="strict", write_through=True) as file:
        show_summary(result, Console(file=file, width=110, force_terminal=False))
        return bytes_out.getvalue().decode(encoding)


def test_the_summary_shows_suspects_then_checks_and_sweep() -> None:
    text = _printed(samples.faulty_h100())
    assert text.startswith("suspect")
    assert "inconclusive" in text
    assert "all_reduce      205 GB/s" in text
    assert "64K ▁" in text
    assert "node-5 (10.20.0.16)" in text


def test_the_share_of_the_links_stands_beside_the_plateau_where_it_is_known() -> None:
    assert "of links" not in _printed(samples.faulty_h100())
    text = _printed(samples.with_shares(samples.faulty_h100()))
    assert "of links" in text
    assert "all_reduce      205 GB/s   51 %      64K" in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_every_terminal_can_print_it(encoding: str) -> None:
    text = _printed(samples.faulty_h100(), encoding)
    assert "64K to 8G" in text
    _printed(samples.hostile("名\x1b[31m\n[red]✓"), encoding)


def test_text_from_outside_is_neither_markup_nor_control() -> None:
    text = _printed(samples.hostile("[red]x[/red]\x1b]0;t\x07"))
    assert "[red]x[/red]" in text
    assert "\x1b" not in text


def test_the_closing_line_is_one_line() -> None:
    result = replace(samples.faulty_h100(), reason="first\nsecond ≥ 3\x1b[0m")
    assert closing_lines(result, "utf-8").splitlines()[2:] == ["fail: first second ≥ 3 [0m"]
    assert closing_lines(result, "ascii").splitlines()[2:] == ["fail: first second >= 3 [0m"]
    last = closing_lines(samples.healthy_local()).splitlines()[-1]
    assert last == "pass: connectivity, collectives, training: all pass"


def test_sparklines() -> None:
    assert sparkline([0, 1, 2]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""
