"""A line of output without what launchers, terminals and copy-and-paste put around it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.causes.table import CAUSES
from seatrial.nccl import parse_text
from seatrial.text.wrapping import LogLine, Words, any_of, cells, clean, unwrapped

ROW = "   1048576        262144     float     sum      -1    41.2   25.4   44.5      0"


@pytest.mark.parametrize(
    ("raw", "text", "rank"),
    [
        (f"{ROW}\r\n", ROW, None),
        (f"\x1b[1;32m{ROW}\x1b[0m\x07\n", ROW, None),
        ("\x1b]0;title\x07# nThread 1", "# nThread 1", None),
        ("\ufeff# nThread 1", "# nThread 1", None),
        ('<span class="x"># nThread 1</span>', "# nThread 1", None),
        ("a < b <pre>", "a < b <pre>", None),  # no markup that ends
        (f"2026-03-14T02:00:00.123Z stdout F [1,3]<stdout>:{ROW}", ROW, 3),
        ("12: words", " words", 12),
        ("12:34 words", "12:34 words", None),  # a time of day
        ("[7] # words", "# words", 7),
        ("[rank7]: words", " words", 7),
        ("[pod/a-0/main] words", "words", None),
        ("worker-0 | words", "words", None),
        (">> words", "words", None),
        ("0:[rank5]: words", " words", 0),  # the launcher's label comes first
        ("> " * 5 + "words", "> words", None),  # never more than four deep
    ],
)
def test_launcher_prefixes_and_quotes_are_stripped_from_a_line(
    raw: str, text: str, rank: int | None
) -> None:
    assert clean(raw) == LogLine(text, rank)


def test_a_row_whose_pieces_were_tagged_is_one_row_and_other_text_stays() -> None:
    tag = "[1,0]<stdout>:"
    pieces = ROW.replace("262144", f"{tag}262144").replace("25.4", f"{tag}25.4")
    assert clean(f"{tag}{pieces}") == LogLine(ROW, 0)
    assert clean(f"{tag}words {tag}more").text == f"words {tag}more"
    assert clean(f"0:{ROW} 0: 1") == LogLine(f"{ROW}  1", 0)
    assert clean(f"0:{ROW} 10:30").text == f"{ROW} 10:30"


def test_only_the_start_of_a_long_line_is_read() -> None:
    assert len(clean("x" * 20_000).text) == 16_384


def nested(levels: int) -> object:
    value: object = {"message": "words"}
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (json.dumps({"log": "one\ntwo\n", "stream": "stdout"}), ["one", "two"]),
        (json.dumps({"a": {"Message": "one"}, "other": "no", "b": ["x\ny"]}), ["one", "x", "y"]),
        ('  "stdout": "one\\ntwo",\n', ["one", "two"]),
        ('"stdout": "one"', ['"stdout": "one"']),  # a field of one line is none of several
        ('"text"', ['"text"']),
        ("{broken", ["{broken"]),
        ('{"a": 1}', ['{"a": 1}']),
        ("plain", ["plain"]),
        (json.dumps({"deep": nested(6)}), ["words"]),
        (json.dumps({"deep": nested(7)}), [json.dumps({"deep": nested(7)})]),
        (f'{{"message": {"[" * 7}"words"{"]" * 7}}}', ["words"]),
        (
            f'{{"message": {"[" * 8}"words"{"]" * 8}}}',
            [f'{{"message": {"[" * 8}"words"{"]" * 8}}}'],
        ),
    ],
)
def test_lines_within_json_are_unwrapped(raw: str, lines: list[str]) -> None:
    assert unwrapped(raw) == lines


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (" | a | b | ", "  a   b  "),
        ("||", "||"),
        ("|a|", " a "),
        ("| a", "| a"),
        ("a |", "a |"),
        ("a | b", "a | b"),
    ],
)
def test_a_row_of_markdown_loses_its_bars(text: str, bare: str) -> None:
    assert cells(text).strip() == bare.strip()


def test_any_of_shares_common_prefixes_and_matches_literally() -> None:
    pattern = any_of(["abc", "abd", "a.c", "b"])
    assert [bool(pattern.search(text)) for text in ("xabcx", "abd", "a.c", "axc", "ab", "")] == [
        *(True, True, True, False, True, False)
    ]
    assert pattern.pattern == r"(?:a(?:\.c|b(?:c|d))|b)"


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.text("abc |(.", min_size=1, max_size=4), min_size=1),
    st.text("abc |(.", max_size=12),
)
def test_any_of_finds_what_a_search_for_each_word_finds(words: list[str], text: str) -> None:
    is_in_text = any(word in text for word in words)
    assert bool(any_of(words).search(text)) == is_in_text
    many = Words(words)
    # Before and after its pattern is compiled
    assert {many.is_any_in(text) for _ in range(2002)} == {is_in_text}


def test_every_cause_has_a_nonempty_lowercase_search_text() -> None:
    needles = [cause.needle for cause in CAUSES if cause.program not in ("xid", "sxid", "warning")]
    assert all(needle and needle == needle.lower() for needle in needles)


def test_each_cause_has_a_sentence_and_a_next_step() -> None:
    assert [cause.code for cause in CAUSES if not (cause.cause and cause.next_step)] == []


def test_devices_are_read_where_a_web_page_made_blanks_unbreakable() -> None:
    line = "#  Rank  0 Group  0 Pid 1 on gpu-1 device  0 [0x1b] NVIDIA H100 80GB HBM3"
    (sweep,) = parse_text(f"# Using devices\n{line.replace('  ', chr(0xA0) + ' ')}\n")
    assert [(device.host, device.name) for device in sweep.devices] == [
        ("gpu-1", "NVIDIA H100 80GB HBM3")
    ]
