import pytest

from seatrial.text.lines import first_line, last_line, one_line


@pytest.mark.parametrize(
    ("text", "first", "last", "joined"),
    [
        ("", "", "", ""),
        (" \n\n", "", "", ""),
        ("one", "one", "one", "one"),
        ("\n  one \r\n two\n\n", "one", "two", "one two"),
    ],
)
def test_first_last_and_joined_nonempty_lines_are_found(
    text: str, first: str, last: str, joined: str
) -> None:
    assert (first_line(text), last_line(text), one_line(text)) == (first, last, joined)


def test_without_text_the_line_is_empty() -> None:
    assert first_line(None) == one_line(None) == ""
    assert one_line(0) == "0"
