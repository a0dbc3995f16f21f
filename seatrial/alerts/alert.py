"""An alert: an incident with the run that shows it, and its plain text and JSON forms. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from seatrial.config.notify import Notify
from seatrial.history.incident import Incident, RunOutcome
from seatrial.history.rows import RunRow
from seatrial.model.curves import bad_judgements
from seatrial.model.explanations import next_step_of
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.difference import Difference
from seatrial.text import words
from seatrial.text.headline import lines

Mentions = Mapping[str, Sequence[str]]  # members and groups of Slack, by verdict
ROWS = 3  # enough to convince

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

    `result` is None if the check did not run, or its run can no longer be read; `since` is None
    without a good run.
    """

    incident: Incident
    result: RunResult | None = None
    since: Difference | None = None
    run_link: str | None = None  # an address
    report_link: str | None = None  # an address, or a path on the machine that ran the check

    @property
    def over(self) -> bool:
        """Whether the incident has ended; then `result` is the run that ended it."""
        return self.incident.closed is not None

    @property
    def run_id(self) -> str:
        """The run that shows or ended it, even if it can no longer be read; "" if the check did not
        run.
        """
        if self.result:
            return self.result.run_id
        if self.over or self.incident.kind == "silent":
            return ""
        return self.incident.last_run


def headline(incident: Incident) -> str:
    """Return the title: "h100-east fails (3 runs)"; for an ended incident, how it ended.

    The title is not escaped for any receiver.
    """
    name = words.plain(incident.cluster)
    if incident.closed:
        return _OVER[incident.kind].format(name, incident.changes[-1])
    sentence = _OPEN[incident.kind].format(name, _FAULTS.get(incident.verdict, ""))
    if incident.run_count == 1 or incident.kind == "silent":
        return sentence
    runs = words.count(incident.run_count, "run")
    return f"{sentence} ({runs})"


def other_news(incident: Incident, news: Sequence[str]) -> Sequence[str]:
    """Return the news without the end of the incident, the last entry, which the headline says."""
    if incident.closed:
        return news[:-1]
    return news


def span(incident: Incident) -> str:
    """Return duration, number of runs and worst verdict: "since 14 Mar 2026 02:00 UTC, 3 runs,
    worst fail".

    The worst verdict is left out if it is the present one.
    """
    opened = words.moment(incident.opened)
    lasted = f"since {opened}"
    if incident.closed:
        lasted = f"from {opened} to {words.moment(incident.closed)}"
    if incident.kind != "silent":
        lasted += f", {words.count(incident.run_count, 'run')}"
    if incident.worst is not incident.verdict:
        lasted += f", worst {incident.worst.value}"
    return lasted


def worst_judgements(result: RunResult) -> list[Judgement]:
    """Return the worst judgements, each of another number if there are enough; `ROWS` at most."""
    firsts: dict[tuple[str, str, object], Judgement] = {}
    others = []
    for _, judgement in bad_judgements(result.checks):
        m = judgement.measurement
        number = (m.metric, m.subject.name, m.operation)
        if number not in firsts and len(firsts) < ROWS:
            firsts[number] = judgement
        else:
            others.append(judgement)
    return [*firsts.values(), *others][:ROWS]


def software(since: Difference) -> list[str]:
    """Return changed software, a line each: "driver 570.1 → 575.3"."""
    changes = []
    for change in since.software:
        # Facts of the run, not software; a stored run may lack its nodes
        if change.what in ("suite", "nodes", "cluster"):
            continue
        before = change.before or "none"
        after = change.after or "none"
        changes.append(f"{change.what} {before} → {after}")
    return changes


def numbers(since: Difference) -> list[str]:
    """Return numbers that got worse beyond their noise, `ROWS` at most: "busbw plateau of
    all_reduce 387 → 205 GB/s (-47 %)".
    """
    moved = since.measurements
    is_worse = moved["direction"] == "worse"
    news = moved[is_worse & (moved["sigmas"] >= 3.0)]  # smaller moves are noise

    def is_of_one_size(row: Any) -> bool:
        """Return whether a number is for one message size of a sweep, unlike its plateau."""
        return "message_bytes" in row.conditions

    worse: list[Any] = sorted(news.itertuples(), key=is_of_one_size)
    lines = []
    for row in worse[:ROWS]:
        was = words.number(row.before)
        now = words.quantity(row.after, row.unit)
        off = words.percent(row.ratio - 1)
        lines.append(f"{row.what} {was} → {now} ({off})")
    return lines


@dataclass(frozen=True, slots=True)
class Markup:
    """A receiver's markup: `put(text, limit)` escapes and cuts untrusted text; `bold` is the mark
    before and after bold text.
    """

    put: Callable[[object, int], str]
    bold: str = ""

    def strong(self, text: object, limit: int) -> str:
        """Return text in bold, escaped and cut to `limit` characters."""
        return f"{self.bold}{self.put(text, limit)}{self.bold}"


PLAIN = Markup(lambda text, limit: words.plain(text)[:limit])


def evidence(alert: Alert, markup: Markup, most: int) -> list[Part]:
    """Return the first `most` suspects, the worst numbers, and the changes since the last good run.

    Empty for an ended incident, or without a run. A suspect: "node-5 (10.20.0.16), 97 % sure: every
    pair with node-5 reaches ...". Untrusted text is escaped by `markup`.
    """
    run = alert.result
    if run is None or alert.over:
        return []
    suspects = []
    for suspect in run.suspects[:most]:
        name = markup.strong(words.suspect_name(suspect, run.nodes), 120)
        sure = words.fraction(suspect.confidence)
        why = markup.put(suspect.evidence, 400)
        suspects.append(f"{name}, {sure} sure: {why}")
    numbers = [_number(judgement, markup) for judgement in worst_judgements(run)]
    bad = len(bad_judgements(run.checks))
    return [
        ("Suspects", suspects, len(run.suspects) - most),
        ("Not as expected", numbers, bad - len(numbers)),
        _changed(alert.since, markup),
    ]


def _number(judgement: Judgement, markup: Markup) -> str:
    """Format a bad number with the expected interval, or with the reason if there is no
    interval.
    """
    m = judgement.measurement
    name = markup.put(words.measurement_name(m), 160)
    value = markup.strong(words.quantity(m.value, m.unit), 40)
    measured = f"{name}: {value}"
    interval = words.interval(judgement.expected, m.unit)
    if interval == "–":
        return f"{measured}, {markup.put(judgement.reason, 240)}"
    expected = markup.put(f"{interval} ({judgement.source})", 100)
    off = ""
    if judgement.deviation is not None:
        off = f", {words.percent(judgement.deviation)}"
    return f"{measured}, expected {expected}{off}"


def _changed(since: Difference | None, markup: Markup) -> Part:
    """Return what has changed since the last good run, or that there is no good run."""
    if since is None:
        return "Since the last good run", ["there is none: nothing passed here before"], 0
    changed = "; ".join(software(since)) or "as it was"
    changes = [*numbers(since), f"software: {changed}"]
    before = since.before
    run = markup.put(f"{before.run_id}, {words.moment(before.started)}", 200)
    lines = [markup.put(line, 800) for line in changes]
    return f"Since the last good run, {run}", lines, 0


def verdict_lines(alert: Alert) -> tuple[str, ...]:
    """Return the lines of the verdict: those of the run, or what is known of a check that did not
    run.

    For an ended incident, they say what it was.
    """
    incident = alert.incident
    if alert.over:
        return (f"It was: {incident.reason}",)
    if alert.result:
        return lines(alert.result)
    verdict = f"{incident.verdict.value}: {incident.reason}"
    step = f"next: {next_step_of('run-overdue')}; seatrial history {incident.cluster}"
    return tuple(map(words.plain, (verdict, span(incident), step)))


def report_address(
    notify: Notify, run_id: str, cluster: str, upload: str | None, path: str | None
) -> str | None:
    """Return the address of the report: the cluster file's, the bucket's, else the local path.

    `upload` is where the bucket has the runs; an address of gs:// becomes that of its web page.
    """
    if notify.report_url:
        return notify.report_url.replace("{run_id}", run_id).replace("{cluster}", cluster)
    if not upload:
        return path
    if upload.startswith("gs://"):
        bucket = upload.removeprefix("gs://")
        return f"https://storage.cloud.google.com/{bucket}/{run_id}/report.html"
    return f"{upload}/{run_id}/report.html"


def mentions_for(incident: Incident, mentions: Mentions) -> tuple[str, ...]:
    """Return the members and groups to mention; none when the incident is over, as it
    needs no action.
    """
    if incident.closed:
        return ()
    return tuple(mentions.get(incident.verdict.value, ()))


def overdue(
    last: RunRow | None, suite: str, max_age: timedelta, now: datetime
) -> RunOutcome | None:
    """Return a silent outcome if the last run is older than `max_age`, or missing; else None.

    A run counts from its end.
    """
    run_id = ""
    late = f"no run of suite {suite} is recorded"
    if last is not None:
        age = now - last.finished
        if age <= max_age:
            return None
        run_id = last.run_id
        late = f"the last run, {run_id}, ended {hours(age)} ago, {hours(max_age)} are allowed"
    return _silent(run_id, now, Reason.of("run-overdue", late=late))


def silent(why: str, last: RunRow | None, now: datetime) -> RunOutcome:
    """Return a silent outcome: the check died or was not started, for the reason `why`.

    `last` is the last run that is recorded, None without one.
    """
    run_id = last.run_id if last else ""
    return _silent(run_id, now, uncoded(words.plain(why)))


def hours(span: timedelta) -> str:
    """Format a time span, in hours below three days: "26 h", "3 days"."""
    whole = round(span.total_seconds() / 3600)
    if whole < 72:
        return f"{whole} h"
    return f"{whole // 24} days"


def _silent(run_id: str, now: datetime, reason: Reason) -> RunOutcome:
    """Return the outcome of a check that did not run; `run_id` is the last run, or empty."""
    return RunOutcome(run_id, now, "silent", Verdict.NOT_RUN, reason)


def subject(alert: Alert) -> str:
    """Return headline and reason on one line, cut to 150 characters, as the subject of a mail."""
    line = f"seatrial: {headline(alert.incident)}"
    if not alert.over:
        line += f": {alert.incident.reason}"
    return words.harmless(line)[:150]


def full_text(alert: Alert, news: Sequence[str]) -> str:
    """Return the whole alert as text; `news` are the changes that its reader has not received.

    Paragraphs with an empty line between them, in lines of at most `LINE_CHARS`. Addresses stay as
    they are, to be followed and copied.
    """
    incident = alert.incident
    unsaid = other_news(incident, news)
    if len(news) >= len(incident.changes) and len(unsaid) < 2:
        unsaid = ()  # the headline says it
    parts = [
        [headline(incident)],
        _bullets("What is new", unsaid),
        verdict_lines(alert),
        *(_bullets(*part) for part in evidence(alert, PLAIN, MAX_SUSPECTS)),
    ]
    paragraphs = []
    for part in parts:
        paragraphs.append([words.harmless(line)[:LINE_CHARS] for line in part])

    ours = about(alert)
    for label, link in (("run", alert.run_link), ("report", alert.report_link)):
        if link:
            ours.append(f"{label}: {link}")
    paragraphs.append([words.plain(line)[:LINE_CHARS] for line in ours])
    texts = ["\n".join(paragraph) for paragraph in paragraphs if paragraph]
    return "\n\n".join(texts) + "\n"


def digest(result: RunResult) -> str:
    """Return one line for a run with nothing new: cluster, suite and verdict."""
    line = f"{result.cluster}, {result.suite}: {lines(result)[0]}"
    return words.harmless(line)[:LINE_CHARS]


def event(alert: Alert, news: Sequence[str]) -> dict[str, Any]:
    """Return the alert as JSON (docs/alerts.md); `text` is for chats with incoming webhooks, the
    rest for programs: what an alert does not have is null or empty, never missing.
    """
    incident = alert.incident
    text = (headline(incident), *other_news(incident, news))
    change = "changed"
    if len(news) == len(incident.changes):
        change = "opened"
    closed = None
    if incident.closed:
        change = "closed"
        closed = incident.closed.isoformat(timespec="seconds")
    changed = []
    if alert.since:
        changed = software(alert.since)
    suspects = []
    steps = []
    judgements = []
    if alert.result and not alert.over:
        suspects = [each.to_dict() for each in alert.result.suspects[:MAX_SUSPECTS]]
        steps = [each.to_dict() for each in alert.result.next_steps[:MAX_SUSPECTS]]
        judgements = [each.to_dict() for each in worst_judgements(alert.result)]
    return {
        "schema": SCHEMA,
        "event": change,
        "text": "\n".join(map(words.harmless, text)),
        "incident": {
            "id": incident.id,
            "kind": incident.kind,
            "cluster": incident.cluster,
            "suite": incident.suite,
            "opened": incident.opened.isoformat(timespec="seconds"),
            "closed": closed,
            "verdict": incident.verdict.value,
            "worst": incident.worst.value,
            "reason": incident.reason.sentence,
            "runs": incident.run_count,
            "changes": list(incident.changes),
        },
        "news": list(news),
        "run_id": alert.run_id or None,
        "suspects": suspects,
        "next": steps,
        "judgements": judgements,
        "software": changed,
        "links": {"run": alert.run_link, "report": alert.report_link},
    }


def about(alert: Alert) -> list[str]:
    """Return cluster, suite, run and span, nodes and time, and notes, a line each.

    The lines are not escaped for any receiver; an ended incident has the first line alone.
    """
    incident = alert.incident
    check = f"{incident.cluster} · suite {incident.suite}"
    if alert.run_id:
        check += f" · run {alert.run_id}"
    facts = [f"{check} · {span(incident)}"]
    run = alert.result
    if run and not alert.over:
        nodes = words.count(len(run.nodes), "node")
        took = words.duration(run.seconds)
        facts.append(f"{nodes} · {took}")
        facts += run.notes
    return facts


def _bullets(title: str, lines: Sequence[str], more: int = 0) -> list[str]:
    """Return the lines below their title, and how many more there are; nothing without lines.

    `more` of 0 or less says nothing.
    """
    if not lines:
        return []
    bullets = [f"{title}:", *(f"- {line}" for line in lines)]
    if more > 0:
        bullets.append(f"- and {more:,} more in the report")
    return bullets
