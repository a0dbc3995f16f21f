"""Text from outside as markdown."""

import html
import re

from seatrial.text import words

_MARKUP = re.compile(r"([\\`*_\[\]|~#!])")


def escape(text: object) -> str:
    """Text from outside as text: one line, no markup, no HTML, no mention."""
    line = html.escape(words.plain(text), quote=False).replace("@", "@\u200b")
    return _MARKUP.sub(r"\\\1", line)


def code(text: object) -> str:
    """Text from outside for between backticks, where it is literal."""
    return words.plain(text).replace("`", "'")
