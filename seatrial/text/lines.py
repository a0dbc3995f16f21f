"""One line of a text that may have many."""

from collections.abc import Iterable


def one_line(text: object) -> str:
    """All of it, with single blanks; empty for None."""
    return " ".join(str("" if text is None else text).split())


def first_line(text: str | None) -> str:
    """The first line that is not empty, else ""."""
    return _first((text or "").splitlines())


def last_line(text: str) -> str:
    """The last line that is not empty, else ""."""
    return _first(reversed(text.splitlines()))


def _first(lines: Iterable[str]) -> str:
    return next((line.strip() for line in lines if line.strip()), "")
