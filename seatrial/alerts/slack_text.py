"""Text for Slack's Block Kit, within its limits and without its markup. Pure.

Limits: https://docs.slack.dev/reference/block-kit/blocks (50 blocks, 150 characters in a header, 3000 in a section's
text, 10 elements in a context).
"""

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.text import words

HEADER_CHARS = 150
TEXT_CHARS = 3000
MAX_ELEMENTS = 10

Block = dict[str, Any]


def escape(text: object) -> str:
    """Text from anywhere as Slack shows it: on one line, and nothing in it mentions, links or formats."""
    return words.unformatted(html.escape(words.plain(text), quote=False))


def cut(text: object, limit: int) -> str:
    """`text` on one line, `limit` characters at most, not escaped."""
    line = words.plain(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def clip(escaped: str, limit: int) -> str:
    """Cut escaped text without leaving half an entity behind."""
    if len(escaped) <= limit:
        return escaped
    return re.sub(r"&[a-z]{0,3}$", "", escaped[: limit - 1]) + "…"


def code(text: str) -> str:
    line = html.escape(words.plain(text).replace("`", "'"), quote=False)
    return f"`{clip(line, 200)}`"


def link(address: str, words: str) -> str:
    """`address` is of our own settings, `words` too."""
    safe = address.replace("&", "&amp;").replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")
    return f"<{safe}|{words}>"


def header(text: str) -> Block:
    return {"type": "header", "text": {"type": "plain_text", "text": cut(text, HEADER_CHARS), "emoji": False}}


def section(text: str) -> Block:
    return {"type": "section", "text": _text(text)}


def listed(title: str, lines: Sequence[str], more: int = 0) -> list[Block]:
    """A section with a title and bullets; nothing where there are no lines. `more` are those that are not shown."""
    rest = [f"and {more:,} more in the report"] if more > 0 else []
    return [section("\n".join([f"*{title}*", *(f"• {line}" for line in lines), *rest]))] if lines else []


def context(lines: Iterable[str]) -> Block:
    return {"type": "context", "elements": [_text(line) for line in list(lines)[:MAX_ELEMENTS]]}


def _text(text: str) -> Block:
    """Verbatim: what looks like an address or a channel in a log does not become a link."""
    return {"type": "mrkdwn", "text": clip(text, TEXT_CHARS), "verbatim": True}
