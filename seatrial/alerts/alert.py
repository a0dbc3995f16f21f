"""An alert: an incident with the run that shows it, and its plain text and JSON forms. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from seatrial.config.notify import Notify
from seatrial.history.incident import Incident, RunOutcome
from seatrial.history.rows import RunRow
from seatrial.model.curves import bad_judgements
from seatrial.model.reason import Reason
from seatrial.model.result import Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.difference import Difference
from seatrial.runs.explanations import CATALOG
from seatrial.text import words
from seatrial.text.headline import lines

Mentions = Mapping[str, Sequence[str]]  # members and groups of Slack, by verdict
ROWS = 3  # as many as convince

_OPEN = {
    "fault": "{} {}",
    "unmeasured": "{} could not be checked",
    "silent": "{}: the check did not run",
}
_FAULTS = {
    Verdict.DEGRADED: "is degraded",
    Verdict.FAIL: "fails",
    Verdict.CORRUPT: "computes wrong numbers",
}
_OVER = {
    "fault": "{} recovered: {}",
    "unmeasured": "{} is measured again",
    "silent": "{}: the check runs again",
}
Part = tuple[str, list[str], int]  # title, lines, and how many more there are
SCHEMA = 1
MAX_SUSPECTS = 10
LINE_CHARS = 600


@dataclass(frozen=True, slots=True)
class Alert:
    """An incident with `result`, the run that shows or ended it, and `since`, the changes since the
    last good run.

    `result` is None if the check did not run.
    """

    incident: Incident
    result: RunResult | None = None
    since: Difference | None = None
    run_link: str | None = None  # an address
    report_link: str | None = None  # an address, or a path on the machine that ran the check

    @property
    def over(self) -> bool:
        return self.incident.closed is not None

    @property
    def run_id(self) -> str:
        """The run that shows or ended it, even if it can no longer be read; "" if the check did not
        run.
        """
        if self.result:
            return self.result.run_id
        return "" if self.over or self.incident.kind == "silent" else self.incident.last_run


def headline(incident: Incident) -> str:
    """Return the title: "h100-east fails (3 runs)"."""
    name = words.plain(incident.cluster)
    if incident.closed:
        return _OVER[incident.kind].format(name, incident.changes[-1])
    sentence = _OPEN[incident.kind].format(name, _FAULTS.get(incident.verdict, ""))
    if incident.run_count == 1 or incident.kind == "silent":
        return sentence
    return f"{sentence} ({words.count(incident.run_count, 'run')})"


def other_news(incident: Incident, news: Sequence[str]) -> Sequence[str]:
    """Return the news without the end of the incident, which the headline says."""
    return news[:-1] if incident.closed else news


def span(incident: Incident) -> str:
    """Return duration, number of runs and worst verdict: "since 14 Mar 2026 02:00 UTC, 3 runs,
    worst fail".
    """
    opened = words.moment(incident.opened)
    lasted = (
        f"from {opened} to {words.moment(incident.closed)}"
        if incident.closed
        else f"since {opened}"
    )
    worst = f", worst {incident.worst.value}" if incident.worst is not incident.verdict else ""
    counted = "" if incident.kind == "silent" else f", {words.count(incident.run_count, 'run')}"
    return f"{lasted}{counted}{worst}"


def worst_judgements(result: RunResult) -> list[Judgement]:
    """Return the worst judgements, each of another number if there are enough."""
    bad = [judgement for _, judgement in bad_judgements(result.checks)]
    firsts: dict[tuple[str, str, object], Judgement] = {}
    for judgement in bad:
        m = judgement.measurement
        firsts.setdefault((m.metric, m.subject.name, m.operation), judgement)
    chosen = list(firsts.values())[:ROWS]
    others = (judgement for judgement in bad if all(judgement is not one for one in chosen))
    return [*chosen, *islice(others, ROWS - len(chosen))]


def software(since: Difference) -> list[str]:
    """Return changed software: "driver 570.1 → 575.3"."""
    # They say nothing when a run is there without its nodes
    left_out = ("suite", "nodes", "cluster")
    return [
        f"{change.what} {change.before or 'none'} → {change.after or 'none'}"
        for change in since.software
        if change.what not in left_out
    ]


def numbers(since: Difference) -> list[str]:
    """Return numbers that got worse beyond their noise: "busbw plateau of all_reduce 387 → 205 GB/s
    (-47 %)".
    """
    moved = since.measurements
    news = moved[(moved["direction"] == "worse") & (moved["sigmas"] >= 3.0)]  # less is none
    # Sweeps first
    worse: list[Any] = sorted(news.itertuples(), key=lambda row: "message_bytes" in row.conditions)
    lines = []
    for row in worse[:ROWS]:
        was, now = words.number(row.before), words.quantity(row.after, row.unit)
        lines.append(f"{row.what} {was} → {now} ({words.percent(row.ratio - 1)})")
    return lines


@dataclass(frozen=True, slots=True)
class Markup:
    """A receiver's markup: `put` makes untrusted text harmless and cuts it."""

    put: Callable[[object, int], str]
    bold: str = ""


PLAIN = Markup(lambda text, limit: words.plain(text)[:limit])


def evidence(alert: Alert, markup: Markup, most: int) -> list[Part]:
    """Return the first `most` suspects, the worst numbers, and the changes since the last good run.

    Nothing of what is over. A suspect: "node-5 (10.20.0.16), 97 % sure: every pair with node-5
    reaches ...".
    """
    run, put, bold = alert.result, markup.put, markup.bold
    if run is None or alert.over:
        return []
    suspects = [
        f"{bold}{put(words.suspect_name(s, run.nodes), 120)}{bold}, "
        f"{words.fraction(s.confidence)} sure: "
        f"{put(s.evidence, 400)}"
        for s in run.suspects[:most]
    ]
    numbers = [_number(judgement, markup) for judgement in worst_judgements(run)]
    return [
        ("Suspects", suspects, len(run.suspects) - most),
        ("Not as expected", numbers, len(bad_judgements(run.checks)) - len(numbers)),
        _changed(alert.since, markup),
    ]


def _number(judgement: Judgement, markup: Markup) -> str:
    m, put = judgement.measurement, markup.put
    measured = (
        f"{put(words.measurement_name(m), 160)}: "
        f"{markup.bold}{put(words.quantity(m.value, m.unit), 40)}{markup.bold}"
    )
    expected = words.interval(judgement.expected, m.unit)
    if expected == "–":
        return f"{measured}, {put(judgement.reason, 240)}"
    off = f", {words.percent(judgement.deviation)}" if judgement.deviation is not None else ""
    return f"{measured}, expected {put(f'{expected} ({judgement.source})', 100)}{off}"


def _changed(since: Difference | None, markup: Markup) -> Part:
    if since is None:
        return "Since the last good run", ["there is none: nothing passed here before"], 0
    changes = [*numbers(since), f"software: {'; '.join(software(since)) or 'as it was'}"]
    before = f"{since.before.run_id}, {words.moment(since.before.started)}"
    return (
        f"Since the last good run, {markup.put(before, 200)}",
        [markup.put(line, 800) for line in changes],
        0,
    )


def verdict_lines(alert: Alert) -> tuple[str, ...]:
    """Return the lines of the verdict: those of the run, or what is known of a check that did not
    run.
    """
    incident = alert.incident
    if alert.over:
        return (f"It was: {incident.reason}",)
    if alert.result:
        return lines(alert.result)
    step = f"next: {CATALOG['run-overdue'].next_step}; seatrial history {incident.cluster}"
    return tuple(
        map(words.plain, (f"{incident.verdict.value}: {incident.reason}", span(incident), step))
    )


def report_address(
    notify: Notify, run_id: str, cluster: str, upload: str | None, path: str | None
) -> str | None:
    """Return the address of the report: the cluster file's, the bucket's, else the local path."""
    if notify.report_url:
        return notify.report_url.replace("{run_id}", run_id).replace("{cluster}", cluster)
    if upload and upload.startswith("gs://"):
        return (
            f"https://storage.cloud.google.com/{upload.removeprefix('gs://')}/{run_id}/report.html"
        )
    return f"{upload}/{run_id}/report.html" if upload else path


def mentions_for(incident: Incident, mentions: Mentions) -> tuple[str, ...]:
    """Return the members and groups to mention; none when the incident is over."""
    return () if incident.closed else tuple(mentions.get(incident.verdict.value, ()))


def overdue(
    last: RunRow | None, suite: str, max_age: timedelta, now: datetime
) -> RunOutcome | None:
    """Return a silent outcome if the last run is older than `max_age`, or missing; else None."""
    if last is None:
        return _silent(
            "", now, Reason.of("run-overdue", late=f"no run of suite {suite} is recorded").sentence
        )
    age = now - last.finished
    if age <= max_age:
        return None
    return _silent(
        last.run_id,
        now,
        Reason.of(
            "run-overdue",
            late=f"the last run, {last.run_id}, ended {hours(age)} ago, {hours(max_age)} are "
            "allowed",
        ).sentence,
    )


def silent(why: str, last: RunRow | None, now: datetime) -> RunOutcome:
    """Return a silent outcome: the check died or was not started, for the reason `why`."""
    return _silent(last.run_id if last else "", now, words.plain(why))


def hours(span: timedelta) -> str:
    """Format a time span: "26 h", "3 days"."""
    whole = round(span.total_seconds() / 3600)
    return f"{whole} h" if whole < 72 else f"{whole // 24} days"


def _silent(run_id: str, now: datetime, reason: str) -> RunOutcome:
    return RunOutcome(run_id, now, "silent", Verdict.NOT_RUN, reason)


def subject(alert: Alert) -> str:
    """Return headline and reason on one line, cut to 150 characters."""
    reason = "" if alert.over else f": {alert.incident.reason}"
    return words.harmless(f"seatrial: {headline(alert.incident)}{reason}")[:150]


def full_text(alert: Alert, news: Sequence[str]) -> str:
    """Return the whole alert as text; `news` are the changes that its reader has not received."""
    incident = alert.incident
    unsaid = other_news(incident, news)
    parts = [
        [headline(incident)],
        _bullets(
            "What is new", unsaid if len(incident.changes) > len(news) or len(unsaid) > 1 else ()
        ),
        verdict_lines(alert),
        *(_bullets(*part) for part in evidence(alert, PLAIN, MAX_SUSPECTS)),
    ]
    paragraphs = [[words.harmless(line)[:LINE_CHARS] for line in part] for part in parts]
    links = ("run", alert.run_link), ("report", alert.report_link)
    # To be followed and copied as it is
    ours = [*about(alert), *(f"{label}: {link}" for label, link in links if link)]
    paragraphs.append([words.plain(line)[:LINE_CHARS] for line in ours])
    return "\n\n".join("\n".join(part) for part in paragraphs if part) + "\n"


def digest(result: RunResult) -> str:
    """Return one line for a run with nothing new."""
    return words.harmless(f"{result.cluster}, {result.suite}: {lines(result)[0]}")[:LINE_CHARS]


def event(alert: Alert, news: Sequence[str]) -> dict[str, Any]:
    """Return the alert as JSON (docs/alerts.md); `text` is for chats with incoming webhooks, the
    rest for programs.
    """
    incident, run = alert.incident, alert.result
    return {
        "schema": SCHEMA,
        "event": "closed"
        if alert.over
        else "opened"
        if len(news) == len(incident.changes)
        else "changed",
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
            "runs": incident.run_count,
            "changes": list(incident.changes),
        },
        "news": list(news),
        "run_id": alert.run_id or None,
        "suspects": [s.to_dict() for s in run.suspects[:MAX_SUSPECTS]]
        if run and not alert.over
        else [],
        "next": [s.to_dict() for s in run.next_steps[:MAX_SUSPECTS]]
        if run and not alert.over
        else [],
        "judgements": [j.to_dict() for j in worst_judgements(run)]
        if run and not alert.over
        else [],
        "software": software(alert.since) if alert.since else [],
        "links": {"run": alert.run_link, "report": alert.report_link},
    }


def about(alert: Alert) -> list[str]:
    """Return cluster, suite, run and span, nodes and time, and notes, a line each."""
    incident, run = alert.incident, alert.result if not alert.over else None
    shown = f" · run {alert.run_id}" if alert.run_id else ""
    facts = [f"{incident.cluster} · suite {incident.suite}{shown} · {span(incident)}"]
    if run:
        took = words.duration(run.seconds)
        facts += [f"{words.count(len(run.nodes), 'node')} · {took}", *run.notes]
    return facts


def _bullets(title: str, lines: Sequence[str], more: int = 0) -> list[str]:
    rest = [f"- and {more:,} more in the report"] if more > 0 else []
    return [f"{title}:", *(f"- {line}" for line in lines), *rest] if lines else []
