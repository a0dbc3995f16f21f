"""Rows that are read in one step come out as the general reading has them, and nearly all rows are read that way."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.nccl import parse_text, rows
from seatrial.nccl.causes import CAUSES
from seatrial.nccl.header import ColumnLayout, layout
from seatrial.nccl.model import Row
from seatrial.nccl.reader import TableLineReader
from seatrial.nccl.rowformat import plain_row
from seatrial.nccl.text import any_of

LOGS = sorted((Path(__file__).parents[2] / "golden" / "nccl-logs").glob("*.log"))
HEADERS = (
    "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
    "# size count type redop time algbw busbw error time algbw busbw error",
    "# size count type root time algbw busbw #wrong",
    "# size count type time algbw busbw redop",
    "# size count time algbw busbw",
    "# size count type busbw",
    "# size count type redop root time algbw busbw #wrong time algbw #wrong",
)
TOKEN = st.sampled_from(
    [
        *(
            "0",
            "8",
            "1024",
            "-1",
            "-2",
            "7.5",
            "1e-07",
            "1e+06",
            "0.00",
            "N/A",
            "n/a",
            "nan",
            "inf",
            "-",
            "sum",
            "none",
        ),
        *("float", "int8", "fp8_e4m3", "1_024", "1,024", "3.1*", "+4", "1e400", "9" * 30, "٣", "x", "|", "1.", ".5"),
    ]
)


def announced(header: str) -> ColumnLayout:
    columns = layout(header)
    assert columns is not None
    return columns


def general(text: str, columns: ColumnLayout, monkeypatch: pytest.MonkeyPatch) -> Row | str:
    """What is read where no row counts as plain."""
    with monkeypatch.context() as without:
        without.setattr(rows, "plain_row", lambda _text, _columns: None)
        return rows.read_row(text, columns)


def test_rows_of_real_logs_are_read_alike_and_nearly_all_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    under_header = plain = 0
    for log in LOGS:
        reader = TableLineReader()
        for line in log.read_text(errors="replace").splitlines():
            row_here = any(isinstance(event, Row) for event in reader.feed(line))
            if row_here and reader.layout is not None:
                under_header += 1
                row = plain_row(line, reader.layout.columns)
                plain += row is not None
                assert row is None or row == general(line, reader.layout, monkeypatch)
    assert under_header > 500
    assert plain > 0.8 * under_header


@settings(deadline=None, max_examples=600)
@given(st.sampled_from(HEADERS), st.lists(TOKEN, min_size=3, max_size=13), st.sampled_from([" ", "   ", "\t"]))
def test_a_row_of_any_tokens_is_read_alike(header: str, tokens: list[str], blank: str) -> None:
    columns = announced(header)
    for start in (tokens, ["1024", "256", "float", *tokens], ["1024", "256", "float", "sum", *tokens]):
        text = blank.join(["", *start])
        row = plain_row(text, columns.columns)
        with pytest.MonkeyPatch.context() as monkeypatch:
            assert row is None or row == general(text, columns, monkeypatch)


def test_error_and_wrong_go_to_their_own_fields() -> None:
    row = plain_row(
        "  1024  256  float  sum  -1  10.0  0.10  0.19  3  9.0  0.11  0.20  N/A", announced(HEADERS[0]).columns
    )
    assert row is not None and row.out_of_place is not None and row.in_place is not None
    assert (row.redop, row.root, row.out_of_place.wrong, row.in_place.wrong) == ("sum", -1, 3, None)
    row = plain_row("1024 256 float 10.0 0.10 0.19 1e-07 9.0 0.11 0.20 N/A", announced(HEADERS[1]).columns)
    assert row is not None and row.out_of_place is not None
    assert (row.redop, row.out_of_place.error, row.out_of_place.wrong) == (None, 1e-07, None)


def test_a_header_that_lost_a_word_does_not_shift_numbers_into_the_next_column() -> None:
    numbers = "33554432 8388608 float sum -1 1587.57 21.14 21.14 0 1572.73 21.34 21.34"
    assert plain_row(numbers, announced(HEADERS[-1]).columns) is None


def test_a_header_that_ends_in_redop_breaks_nothing() -> None:
    sweep = parse_text("# size count type time algbw busbw redop\n 1024 256 float 10.0 0.10 0.10\n")[0]
    assert [(row.size, row.redop) for row in sweep.rows] == [(1024, None)]


@settings(deadline=None)
@given(st.lists(st.text("abc |(.", min_size=1, max_size=4), min_size=1), st.text("abc |(.", max_size=12))
def test_any_of_finds_what_a_search_for_each_word_finds(words: list[str], text: str) -> None:
    assert bool(any_of(words).search(text)) == any(word in text for word in words)


def test_no_cause_has_an_empty_needle() -> None:
    needles = [cause.needle for cause in CAUSES if not cause.program.endswith("xid")]
    assert all(needle and needle == needle.lower() for needle in needles)
