"""A run as a Slack message in Block Kit, within Slack's limits. Pure; sending is the task's.

Limits: https://docs.slack.dev/reference/block-kit/blocks (50 blocks, 150 characters in a header, 3000 in a section's
text, 2000 in a field). Everything together stays far below the 40,000 characters Slack takes.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Any

from seatrial.report import words
from seatrial.report.series import bad_judgements
from seatrial.result import Judgement, RunResult, Suspect
from seatrial.verdict import Verdict

HEADER_CHARS = 150
TEXT_CHARS = 3000
MAX_SUSPECTS = 5
MAX_JUDGEMENTS = 5

Block = dict[str, Any]

_EMOJI = {
    Verdict.PASS: ":large_green_circle:",
    Verdict.DEGRADED: ":large_orange_circle:",
    Verdict.FAIL: ":red_circle:",
    Verdict.CORRUPT: ":large_purple_circle:",
    Verdict.INCONCLUSIVE: ":large_blue_circle:",
    Verdict.NOT_RUN: ":white_circle:",
}


def blocks(result: RunResult, previous: Verdict | None, report: str | None = None) -> tuple[str, list[Block]]:
    """The message as plain text (notifications, screen readers) and as blocks.

    `previous` is the verdict of the run before; a pass after anything else is said as a recovery. `report` is where the
    report lies, a path or an address.
    """
    said = _headline(result, previous)
    text = _clip(f"{_escape(said)}: {_escape(result.reason)}", TEXT_CHARS)
    found = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(said, HEADER_CHARS), "emoji": False}},
        _section(f"{_EMOJI[result.verdict]} *{words.label(result.verdict)}* {_escape(result.reason)}"),
        *_suspects(result.suspects),
        *_judgements([j for _, j in bad_judgements(result.checks)]),
        _context(_about(result, report)),
    ]
    if command := _next_command(result):
        found.append(_section(f"*Next*  {_code(command)}"))
    return text, found


def recovered(result: RunResult, previous: Verdict | None) -> bool:
    """Whether this run passes where the one before did not."""
    return result.verdict is Verdict.PASS and previous not in (None, Verdict.PASS)


def _headline(result: RunResult, previous: Verdict | None) -> str:
    """What happened, and whether it is new: the first words that a phone shows."""
    if recovered(result, previous) and previous:
        return f"{words.plain(result.cluster)} recovered: pass again after {words.label(previous)}"
    if previous is None or result.verdict is Verdict.PASS:
        return words.plain(words.headline(result))
    since = "as before" if previous is result.verdict else f"was {words.label(previous)}"
    return f"{words.plain(words.headline(result))} ({since})"


def _suspects(suspects: Sequence[Suspect]) -> list[Block]:
    if not suspects:
        return []
    lines = [
        f"• *{s.kind} {_escape(_cut(s.name, 80))}* ({s.confidence:.0%}): {_clip(_escape(s.evidence), 400)}"
        for s in suspects[:MAX_SUSPECTS]
    ]
    return [_section("\n".join(["*Suspects*", *lines, *_more(len(suspects), MAX_SUSPECTS)]))]


def _judgements(bad: Sequence[Judgement]) -> list[Block]:
    if not bad:
        return []
    lines = [f"• {_judgement(j)}" for j in bad[:MAX_JUDGEMENTS]]
    return [_section("\n".join(["*Not as expected*", *lines, *_more(len(bad), MAX_JUDGEMENTS)]))]


def _judgement(judgement: Judgement) -> str:
    """The number against what was expected, and who expects it."""
    m = judgement.measurement
    measured = f"{_escape(_cut(words.what(m), 160))}: *{_escape(_cut(words.quantity(m.value, m.unit), 40))}*"
    expected = words.interval(judgement.expected, m.unit)
    if expected == "–":
        return f"{measured}, {_clip(_escape(judgement.reason), 240)}"
    off = f", {words.percent(judgement.deviation)}" if judgement.deviation is not None else ""
    return f"{measured}, expected {_escape(_cut(f'{expected} ({judgement.source})', 100))}{off}"


def _about(result: RunResult, report: str | None) -> list[str]:
    """Cluster, suite and run; the software; where the report lies: one element each."""
    took = words.duration((result.finished - result.started).total_seconds())
    size = f"{len(result.nodes)} nodes"
    lines = [f"{result.cluster} · {size} · suite {result.suite} · run {result.run_id} · {took}"]
    if result.fingerprint:
        lines.append(" · ".join(f"{name} {version}" for name, version in result.fingerprint.items()))
    if report:
        lines.append(f"report: {report}")
    lines += result.notes
    return [_clip(text, 600) for line in lines if (text := _escape(line))]


def _next_command(result: RunResult) -> str | None:
    """The one command that leads on: what is missing here, or since when it is so."""
    if result.verdict is Verdict.PASS:
        return None
    if result.verdict is Verdict.NOT_RUN:
        return "seatrial doctor"
    if result.verdict is Verdict.INCONCLUSIVE:
        return f"seatrial report {shlex.quote(words.plain(result.run_id))}"
    return f"seatrial history {shlex.quote(words.plain(result.cluster))}"


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": _clip(text, TEXT_CHARS)}}


def _context(lines: Sequence[str]) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": line} for line in lines]}


def _more(count: int, shown: int) -> list[str]:
    return [f"and {count - shown:,} more in the report"] if count > shown else []


def _escape(text: object) -> str:
    """Slack's three special characters; with them gone no text can mention or link anything."""
    return words.plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(text: str) -> str:
    return f"`{_clip(_escape(text.replace('`', chr(39))), 200)}`"


def _cut(text: str, limit: int) -> str:
    line = words.plain(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _clip(escaped: str, limit: int) -> str:
    """Cut escaped text without leaving half an entity behind."""
    if len(escaped) <= limit:
        return escaped
    return re.sub(r"&[a-z]{0,3}$", "", escaped[: limit - 1]) + "…"
