"""An alert as Slack messages in Block Kit, within Slack's limits. Pure; sending is the tasks'."""

import html
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from seatrial.alerts.alert import Alert, Markup, about, evidence, headline, verdict_lines
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.text import words
from seatrial.text.headline import lines, own_reason

HEADER_CHARS = 150
TEXT_CHARS = 3000
MAX_ELEMENTS = 10

Block = dict[str, Any]
MAX_SUSPECTS = 3
DIGEST_CHARS = 600
_EMOJI: dict[str, str] = {
    Verdict.PASS: ":large_green_circle:",
    Verdict.DEGRADED: ":large_orange_circle:",
    Verdict.FAIL: ":red_circle:",
    Verdict.CORRUPT: ":large_purple_circle:",
    Verdict.INCONCLUSIVE: ":large_blue_circle:",
    Verdict.NOT_RUN: ":white_circle:",
}
TOTAL_CHARS = 9000  # Slack refuses a message whose blocks together hold some 13,000


def escape(text: object) -> str:
    """Escape untrusted text for Slack: one line, without mentions, links or formatting."""
    return words.unformatted(html.escape(words.plain(text), quote=False))


def cut(text: object, limit: int) -> str:
    """Return `text` on one line, at most `limit` characters, not escaped."""
    line = words.plain(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def clip(escaped: str, limit: int) -> str:
    """Cut escaped text without leaving half an entity behind."""
    if len(escaped) <= limit:
        return escaped
    return re.sub(r"&[a-z]{0,3}$", "", escaped[: limit - 1]) + "…"


def link(address: str, words: str) -> str:
    """Link `words` to `address`; both are trusted."""
    safe = address.replace("&", "&amp;").replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")
    return f"<{safe}|{words}>"


def header(text: str) -> Block:
    return {
        "type": "header",
        "text": {"type": "plain_text", "text": cut(text, HEADER_CHARS), "emoji": False},
    }


def section(text: str) -> Block:
    return {"type": "section", "text": _text(text)}


def listed(title: str, lines: Sequence[str], more: int = 0) -> list[Block]:
    """Return sections with a title and bullets; none without lines.

    `more` counts lines that are not shown.
    """
    rest = [f"and {more:,} more in the report"] if more > 0 else []
    return [
        section(page)
        for page in _pages([f"*{title}*", *(f"• {line}" for line in lines), *rest])
        if lines
    ]


def context(lines: Iterable[str]) -> Block:
    return {"type": "context", "elements": [_text(line) for line in list(lines)[:MAX_ELEMENTS]]}


def _text(text: str) -> Block:
    """Return text that Slack shows verbatim: addresses and channels in logs do not become links."""
    return {"type": "mrkdwn", "text": clip(text, TEXT_CHARS), "verbatim": True}


_MARKUP = Markup(lambda text, limit: clip(escape(text), limit), bold="*")


def blocks(alert: Alert, mentions: Sequence[str] = ()) -> tuple[str, list[Block]]:
    """Return the current message of the incident as plain text (for notifications) and as
    blocks.
    """
    title, incident = headline(alert.incident), alert.incident
    text = clip(
        f"{escape(title)}: {escape(incident.reason)}" if not alert.over else escape(title),
        TEXT_CHARS,
    )
    emoji = _EMOJI[Verdict.PASS if alert.over else incident.verdict]
    first, *others = (clip(escape(line), 1200) for line in verdict_lines(alert))
    bold = first if alert.over else f"*{first}*"
    verdict = "\n".join([" ".join([f"{emoji} {bold}", *map(mention, mentions)]), *others])
    message = [header(title), section(verdict)]
    message += [block for part in evidence(alert, _MARKUP, MAX_SUSPECTS) for block in listed(*part)]
    is_link = (alert.report_link or "").startswith("http")
    facts = [
        *about(alert),
        *([f"report: {alert.report_link}"] if alert.report_link and not is_link else []),
    ]
    message.append(context(clip(shown, 600) for line in facts if (shown := escape(line))))
    links = [("The run", alert.run_link), ("The report", alert.report_link if is_link else None)]
    if linked := "  ·  ".join(link(address, label) for label, address in links if address):
        message.append(section(linked))
    return text, message


def change(alert: Alert, news: Sequence[str], mentions: Sequence[str] = ()) -> str:
    """Return the changes as one line for the incident's thread and for the channel."""
    line = f"{escape(words.plain(alert.incident.cluster))}: {escape('; '.join(news))}"
    emoji = _EMOJI[Verdict.PASS if alert.over else alert.incident.verdict]
    return clip(" ".join([emoji, line, *map(mention, mentions)]), TEXT_CHARS)


def digest(result: RunResult) -> str:
    """Return one line for a run with nothing new."""
    line = (
        f"{_EMOJI[result.verdict]} {escape(result.cluster)}, {escape(result.suite)}: "
        f"{escape(lines(result)[0])}"
    )
    return clip(line, DIGEST_CHARS)


def mention(who: str) -> str:
    """Return the markup that mentions a member, a user group, or here, channel, everyone."""
    if who in ("here", "channel", "everyone"):
        return f"<!{who}>"
    return f"<!subteam^{who}>" if who.startswith("S") else f"<@{who}>"


def details(result: RunResult) -> tuple[str, list[Block]]:
    """Return checks and software, which the message does not have, as plain text and blocks."""
    checks = []
    for c in result.checks:
        reason = clip(escape(own_reason(c, result.suspects)), 500)
        checks.append(
            f"{words.GLYPHS[c.verdict]} *{escape(cut(c.name, 60))}* {c.verdict.value}: {reason}"
        )
    message = listed("Checks", checks)
    facts = " · ".join(
        f"{name} {version}" for name, version in result.fingerprint.items() if version
    )
    software = context([clip(escape(facts), 1500) or "software: not known"])
    return f"Details of run {clip(escape(result.run_id), 200)}", [
        *_within(TOTAL_CHARS, message),
        software,
    ]


def _within(limit: int, blocks: Sequence[Block]) -> list[Block]:
    """Return the first blocks that hold at most `limit` characters together."""
    ends = accumulate(len(block["text"]["text"]) for block in blocks)
    return [block for block, end in zip(blocks, ends, strict=True) if end <= limit]


def _pages(lines: Iterable[str]) -> list[str]:
    """Join the lines into texts of at most the size of a section."""
    pages = [""]
    for line in lines:
        if len(pages[-1]) + 1 + len(line) > TEXT_CHARS:
            pages.append("")
        pages[-1] += f"\n{line}" if pages[-1] else line
    return pages
