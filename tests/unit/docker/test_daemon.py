"""The daemon's words, and the places that it tells: typed, bounded, without control characters."""

from seatrial.platforms.docker.daemon import error_text


def test_words_are_one_printable_line_that_is_not_too_long() -> None:
    text = error_text(RuntimeError("no such\n device \x1b[31mred\x1b[0m " + "x" * 10_000))
    assert text.isprintable()
    assert text.startswith("no such device")
    assert len(text) <= 500


def test_an_error_without_words_is_named() -> None:
    assert error_text(TimeoutError()) == "TimeoutError"
