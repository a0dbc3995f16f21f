"""The search for all needles of the table of causes at once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.nccl.causes import CAUSES
from seatrial.nccl.text import any_of


@settings(deadline=None)
@given(st.lists(st.text("abc |(.", min_size=1, max_size=4), min_size=1), st.text("abc |(.", max_size=12))
def test_any_of_finds_what_a_search_for_each_word_finds(words: list[str], text: str) -> None:
    assert bool(any_of(words).search(text)) == any(word in text for word in words)


def test_no_cause_has_an_empty_needle() -> None:
    needles = [cause.needle for cause in CAUSES if not cause.program.endswith("xid")]
    assert all(needle and needle == needle.lower() for needle in needles)


def test_each_cause_has_a_sentence_and_a_next_step() -> None:
    assert [cause.code for cause in CAUSES if not (cause.cause and cause.next_step)] == []
