"""What goes into the thread below an incident's message: everything that did not fit. Pure."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from seatrial.alerts.slack import judgement, suspect
from seatrial.alerts.slack_text import TEXT_CHARS, Block, clip, context, cut, escape, section
from seatrial.model.curves import bad_judgements
from seatrial.model.result import RunResult
from seatrial.runs.explanations import codes_to_explain
from seatrial.text import words

MAX_LINES = 20
TOTAL_CHARS = 9000  # Slack refuses a message whose blocks together hold some 13,000


def details(result: RunResult) -> tuple[str, list[Block]]:
    """Every suspect, check and bad number, as many as are worth reading in Slack, and the software."""
    bad = [j for _, j in bad_judgements(result.checks)]
    checks = [
        f"{words.GLYPHS[standing]} *{escape(cut(c.name, 60))}* {words.label(standing)}: {clip(escape(c.reason), 500)}"
        for c in result.checks
        for standing in [c.standing]
    ]
    parts = {
        "Suspects": [suspect(s) for s in result.suspects[:MAX_LINES]],
        "Checks": checks,
        "Not as expected": [judgement(j) for j in bad[:MAX_LINES]],
    }
    hidden = {"Suspects": len(result.suspects) - MAX_LINES, "Not as expected": len(bad) - MAX_LINES}
    message = [block for title, lines in parts.items() if lines for block in _part(title, lines, hidden.get(title, 0))]
    message = [*_within(TOTAL_CHARS, message), context([*_explained(result), _software(result)])]
    return f"Details of run {clip(escape(result.run_id), 200)}", message


def _part(title: str, lines: Sequence[str], hidden: int) -> list[Block]:
    more = [f"and {hidden:,} more in the report"] if hidden > 0 else []
    return [section(text) for text in _pages([f"*{title}*", *lines, *more])]


def _within(limit: int, blocks: Sequence[Block]) -> list[Block]:
    """The first blocks that together hold no more than `limit` characters."""
    ends = accumulate(len(block["text"]["text"]) for block in blocks)
    return [block for block, end in zip(blocks, ends, strict=True) if end <= limit]


def _pages(lines: Iterable[str]) -> list[str]:
    """The lines in as few texts of a section's size as hold them."""
    pages = [""]
    for line in lines:
        if len(pages[-1]) + 1 + len(line) > TEXT_CHARS:
            pages.append("")
        pages[-1] += f"\n{line}" if pages[-1] else line
    return pages


def _explained(result: RunResult) -> list[str]:
    codes = codes_to_explain(result)
    return [f"Meaning and next step: {' · '.join(f'`seatrial explain {code}`' for code in codes)}"] if codes else []


def _software(result: RunResult) -> str:
    facts = " · ".join(f"{name} {version}" for name, version in result.fingerprint.items() if version)
    return clip(escape(facts), 1500) or "software: not known"
