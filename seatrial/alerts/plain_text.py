"""An alert in plain text, for e-mail and whatever else takes text, and as JSON for machines. Pure.

Each chat has a markup of its own, so the text neither mentions people nor links.
"""

from collections.abc import Sequence
from typing import Any

from seatrial.alerts.alert import Alert, headline, next_command, numbers, other_news, software, span, worst_judgements
from seatrial.model.result import Judgement, RunResult, Suspect
from seatrial.text import words

SCHEMA = 1
MAX_SUSPECTS = 10
LINE_CHARS = 600


def subject(alert: Alert) -> str:
    """The headline and the reason, which names suspects first, as far as they fit."""
    reason = "" if alert.over else f": {alert.incident.reason}"
    return words.harmless(f"seatrial: {headline(alert.incident)}{reason}")[:150]


def full_text(alert: Alert, news: Sequence[str]) -> str:
    """The whole alert as text; `news` is what its reader has not heard yet."""
    incident = alert.incident
    unsaid = other_news(incident, news)
    parts = [
        [headline(incident)],
        _bullets("What is new", unsaid if len(incident.changes) > len(news) or len(unsaid) > 1 else ()),
        [f"It was: {incident.reason}" if alert.over else f"{words.label(incident.verdict)}: {incident.reason}"],
        *(_findings(alert, alert.result) if alert.result and not alert.over else []),
    ]
    notes = alert.result.notes if alert.result and not alert.over else ()
    ours = [notes, _where(alert)]  # addresses and commands, to be followed and copied as they are
    paragraphs = [[words.harmless(line)[:LINE_CHARS] for line in part] for part in parts]
    paragraphs += [[words.plain(line)[:LINE_CHARS] for line in part] for part in ours]
    return "\n\n".join("\n".join(part) for part in paragraphs if part) + "\n"


def digest(result: RunResult) -> str:
    """One line of a run with nothing new."""
    return words.harmless(f"{words.headline(result)}, {result.suite}: {result.reason}")[:LINE_CHARS]


def event(alert: Alert, news: Sequence[str]) -> dict[str, Any]:
    """The alert as JSON (docs/alerts.md); `text` alone says it, as chats with incoming webhooks take it.

    All else is for programs, and exactly as it was said.
    """
    incident, run = alert.incident, alert.result
    return {
        "schema": SCHEMA,
        "event": "closed" if alert.over else "opened" if len(news) == len(incident.changes) else "changed",
        "text": "\n".join(map(words.harmless, (headline(incident), *other_news(incident, news)))),
        "incident": {
            "id": incident.id,
            "kind": incident.kind,
            "cluster": incident.cluster,
            "suite": incident.suite,
            "opened": incident.opened.isoformat(timespec="seconds"),
            "closed": incident.closed.isoformat(timespec="seconds") if incident.closed else None,
            "verdict": incident.verdict.value,
            "worst": incident.worst.value,
            "reason": incident.reason,
            "runs": incident.nights,
            "changes": list(incident.changes),
        },
        "news": list(news),
        "run_id": alert.run_id or None,
        "suspects": [s.to_dict() for s in run.suspects[:MAX_SUSPECTS]] if run and not alert.over else [],
        "judgements": [j.to_dict() for j in worst_judgements(run)] if run and not alert.over else [],
        "software": software(alert.since) if alert.since else [],
        "links": {"run": alert.run_link, "report": alert.report_link},
    }


def _findings(alert: Alert, run: RunResult) -> list[list[str]]:
    since = alert.since
    changes = (
        [*numbers(since), "software: " + ("; ".join(software(since)) or "as it was")] if since else ["there is none"]
    )
    return [
        _bullets("Suspects", [_suspect(s) for s in run.suspects[:MAX_SUSPECTS]], len(run.suspects) - MAX_SUSPECTS),
        _bullets("Not as expected", [_judgement(j) for j in worst_judgements(run)]),
        _bullets("Since the last good run" + (f", {since.before.run_id}" if since else ""), changes),
    ]


def _where(alert: Alert) -> list[str]:
    incident, command = alert.incident, next_command(alert)
    return [
        f"cluster {incident.cluster}, suite {incident.suite}, {span(incident)}",
        *([f"run: {run}"] if (run := alert.run_link or alert.run_id) else []),
        *([f"report: {alert.report_link}"] if alert.report_link else []),
        *([f"next: {command}"] if command else []),
    ]


def _bullets(title: str, lines: Sequence[str], more: int = 0) -> list[str]:
    rest = [f"- and {more:,} more in the report"] if more > 0 else []
    return [f"{title}:", *(f"- {line}" for line in lines), *rest] if lines else []


def _suspect(suspect: Suspect) -> str:
    return f"{suspect.kind} {suspect.name} ({suspect.confidence:.0%}): {suspect.evidence}"


def _judgement(judgement: Judgement) -> str:
    m = judgement.measurement
    expected = words.interval(judgement.expected, m.unit)
    rest = f"expected {expected} ({judgement.source})" if expected != "–" else judgement.reason
    return f"{words.what(m)}: {words.quantity(m.value, m.unit)}, {rest}"
