"""An alert as Slack messages in Block Kit, within Slack's limits. Pure; sending is the tasks'."""

import html
import re
from collections.abc import Iterable, Sequence
from itertools import islice
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
_IN_ADDRESSES = str.maketrans({"&": "&amp;", "<": "%3C", ">": "%3E", "|": "%7C"})
TOTAL_CHARS = 9000  # Slack refuses a message whose blocks together hold some 13,000


def escape(text: object) -> str:
    """Escape untrusted text for Slack: one line, without mentions, links or formatting.

    Longer than it was; `clip` cuts it.
    """
    line = html.escape(words.plain(text), quote=False)
    return words.unformatted(line)


def cut(text: object, limit: int) -> str:
    """Return `text` on one line, at most `limit` characters, not escaped."""
    line = words.plain(text)
    if len(line) > limit:
        line = f"{line[: limit - 1]}…"
    return line


def clip(escaped: str, limit: int) -> str:
    """Cut escaped text without leaving half an entity behind.

    Slack would show `&am` as it is.
    """
    if len(escaped) <= limit:
        return escaped
    whole = re.sub(r"&[a-z]{0,3}$", "", escaped[: limit - 1])
    return f"{whole}…"


def link(address: str, words: str) -> str:
    """Link `words` to `address`; both are trusted."""
    safe = address.translate(_IN_ADDRESSES)
    return f"<{safe}|{words}>"


def header(text: str) -> Block:
    """Return a block with a title, in which nothing is formatted."""
    title = {"type": "plain_text", "text": cut(text, HEADER_CHARS), "emoji": False}
    return {"type": "header", "text": title}


def section(text: str) -> Block:
    """Return a block with a paragraph of text that is escaped."""
    return {"type": "section", "text": _text(text)}


def listed(title: str, lines: Sequence[str], more: int = 0) -> list[Block]:
    """Return sections with a title and bullets; none without lines.

    `more` counts lines that are not shown.
    """
    if not lines:
        return []
    shown = [f"*{title}*"]
    shown += [f"• {line}" for line in lines]
    if more > 0:
        shown.append(f"and {more:,} more in the report")
    return list(map(section, _pages(shown)))


def context(lines: Iterable[str]) -> Block:
    """Return a block with small print, of as many lines as Slack takes."""
    elements = [_text(line) for line in islice(lines, MAX_ELEMENTS)]
    return {"type": "context", "elements": elements}


def _text(text: str) -> Block:
    """Return text that Slack shows verbatim: addresses and channels in logs do not become links."""
    return {"type": "mrkdwn", "text": clip(text, TEXT_CHARS), "verbatim": True}


def _put(text: object, limit: int) -> str:
    """Escape untrusted text and cut it."""
    return clip(escape(text), limit)


_MARKUP = Markup(_put, bold="*")


def blocks(alert: Alert, mentions: Sequence[str] = ()) -> tuple[str, list[Block]]:
    """Return the current message of the incident as plain text (for notifications) and as blocks.

    Without `mentions` it is the same message for an update, which sends no notification.
    """
    incident = alert.incident
    title = headline(incident)
    text = escape(title)
    if not alert.over:
        text += f": {escape(incident.reason)}"
    message = [
        header(title),
        section(_verdict(alert, mentions)),
    ]
    for part in evidence(alert, _MARKUP, MAX_SUSPECTS):
        message += listed(*part)
    facts = about(alert)
    links = [("The run", alert.run_link)]
    if alert.report_link and not alert.report_link.startswith("http"):
        facts.append(f"report: {alert.report_link}")
    else:
        links.append(("The report", alert.report_link))
    shown = filter(None, map(escape, facts))
    message.append(context(clip(line, 600) for line in shown))
    linked = [link(address, label) for label, address in links if address]
    if linked:
        message.append(section("  ·  ".join(linked)))
    return clip(text, TEXT_CHARS), message


def _verdict(alert: Alert, mentions: Sequence[str]) -> str:
    """Return the lines of the verdict, the first in bold and with the mentions."""
    first, *others = (_put(line, 1200) for line in verdict_lines(alert))
    if not alert.over:
        first = f"*{first}*"
    first = " ".join([_emoji(alert), first, *map(mention, mentions)])
    return "\n".join([first, *others])


def _emoji(alert: Alert) -> str:
    """Return the circle in the colour of the incident's verdict, or of a pass once it has ended."""
    if alert.over:
        return _EMOJI[Verdict.PASS]
    return _EMOJI[alert.incident.verdict]


def change(alert: Alert, news: Sequence[str], mentions: Sequence[str] = ()) -> str:
    """Return the changes as one line for the incident's thread and for the channel.

    `news` are the changes that were not sent before.
    """
    cluster = escape(alert.incident.cluster)
    changes = escape("; ".join(news))
    line = " ".join([_emoji(alert), f"{cluster}: {changes}", *map(mention, mentions)])
    return clip(line, TEXT_CHARS)


def digest(result: RunResult) -> str:
    """Return one line for a run with nothing new."""
    emoji = _EMOJI[result.verdict]
    check = f"{escape(result.cluster)}, {escape(result.suite)}"
    verdict = escape(lines(result)[0])
    return clip(f"{emoji} {check}: {verdict}", DIGEST_CHARS)


def mention(who: str) -> str:
    """Return the markup that mentions a member, a user group, or here, channel, everyone."""
    if who in ("here", "channel", "everyone"):
        return f"<!{who}>"
    if who.startswith("S"):
        return f"<!subteam^{who}>"
    return f"<@{who}>"


def details(result: RunResult) -> tuple[str, list[Block]]:
    """Return checks and software, which the message does not have, as plain text and blocks.

    Checks that do not fit into a message are left out.
    """
    checks = []
    for check in result.checks:
        glyph = words.GLYPHS[check.verdict]
        name = escape(cut(check.name, 60))
        verdict = check.verdict.value
        reason = _put(own_reason(check, result.suspects), 500)
        checks.append(f"{glyph} *{name}* {verdict}: {reason}")
    versions = []
    for program, version in result.fingerprint.items():
        if version:
            versions.append(f"{program} {version}")
    software = _put(" · ".join(versions), 1500)
    run = _put(result.run_id, 200)
    message = _within(TOTAL_CHARS, listed("Checks", checks))
    message.append(context([software or "software: not known"]))
    return f"Details of run {run}", message


def _within(limit: int, blocks: Sequence[Block]) -> list[Block]:
    """Return the first blocks that hold at most `limit` characters together; what they hold is text
    that is escaped.
    """
    within = []
    size = 0
    for block in blocks:
        size += len(block["text"]["text"])
        if size > limit:
            break
        within.append(block)
    return within


def _pages(lines: Iterable[str]) -> list[str]:
    """Join the lines into texts of at most the size of a section; a longer line is cut when it is
    shown.
    """
    pages = [""]
    for line in lines:
        longer = len(pages[-1]) + 1 + len(line)
        if longer > TEXT_CHARS:
            pages.append("")
        if pages[-1]:
            pages[-1] += "\n"
        pages[-1] += line
    return pages
