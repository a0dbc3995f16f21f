"""Text from outside as Markdown, and as cells of a CSV file that no spreadsheet takes for a
formula. Pure.

A spreadsheet shows text behind a leading apostrophe as it is. Source: OWASP, "CSV Injection".
"""

import html
import re

from seatrial.text import words

_MARKUP = re.compile(r"([\\`*_\[\]|~#!])")
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")


def escape(text: object) -> str:
    """Escape text from outside: one line, no markup, no HTML, no mention."""
    line = html.escape(words.plain(text), quote=False).replace("@", "@\u200b")
    return _MARKUP.sub(r"\\\1", line)


def code(text: object) -> str:
    """Prepare text from outside for backticks, between which it is literal."""
    return words.plain(text).replace("`", "'")


def as_text(cell: object) -> object:
    """Return the cell, with an apostrophe before a text that begins as a formula does; numbers are
    as they were.
    """
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def from_text(cell: str) -> str:
    """Undo `as_text`."""
    return cell[1:] if _ESCAPED.match(cell) else cell
