"""An alert: an incident, and the run that shows it, made ready for every sink to put into its own words. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from seatrial.config.notify import Notify
from seatrial.history.incident import Incident, nights
from seatrial.model.curves import bad_judgements
from seatrial.model.result import Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.difference import Difference
from seatrial.text import words

ROWS = 3  # as many as convince
_MOVED = 3.0  # sigmas: less is no news
_LEFT_OUT = ("suite", "nodes", "cluster")  # facts that say nothing when a run is there without its nodes

_OPEN = {"fault": "{} {}", "unmeasured": "{} could not be checked", "silent": "{}: the check did not run"}
_FAULTS = {Verdict.DEGRADED: "is degraded", Verdict.FAIL: "fails", Verdict.CORRUPT: "computes wrong numbers"}
_OVER = {"fault": "{} recovered: {}", "unmeasured": "{} is measured again", "silent": "{}: the check runs again"}


@dataclass(frozen=True, slots=True)
class Alert:
    """An incident with `result`, the run that shows or ended it, and `since`, the changes since the last good run.

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
        """The run that shows or ended it, also if that run can no longer be read; "" if the check did not run."""
        if self.result:
            return self.result.run_id
        return "" if self.over or self.incident.kind == "silent" else self.incident.last_run


def headline(incident: Incident) -> str:
    """The first words, which a phone shows: "h100-east fails (3 runs)"."""
    name = words.plain(incident.cluster)
    if incident.closed:
        return _OVER[incident.kind].format(name, incident.changes[-1])
    sentence = _OPEN[incident.kind].format(name, _FAULTS.get(incident.verdict, ""))
    return sentence if incident.nights == 1 or incident.kind == "silent" else f"{sentence} ({nights(incident.nights)})"


def other_news(incident: Incident, news: Sequence[str]) -> Sequence[str]:
    """The news that the headline does not say: it says the end itself."""
    return news[:-1] if incident.closed else news


def span(incident: Incident) -> str:
    """Since when, how often, and how bad it was: "since 2026-03-14 02:00 UTC, 3 runs, worst fail"."""
    opened = f"{incident.opened:%Y-%m-%d %H:%M} UTC"
    lasted = f"from {opened} to {incident.closed:%Y-%m-%d %H:%M} UTC" if incident.closed else f"since {opened}"
    worst = f", worst {words.label(incident.worst)}" if incident.worst is not incident.verdict else ""
    counted = "" if incident.kind == "silent" else f", {nights(incident.nights)}"
    return f"{lasted}{counted}{worst}"


def worst_judgements(result: RunResult) -> list[Judgement]:
    """The judgements that convince: the worst ones, each of another number where there are enough."""
    bad = [judgement for _, judgement in bad_judgements(result.checks)]
    firsts: dict[tuple[str, str, object], Judgement] = {}
    for judgement in bad:
        firsts.setdefault(_about(judgement), judgement)
    chosen = list(firsts.values())[:ROWS]
    others = (judgement for judgement in bad if all(judgement is not one for one in chosen))
    return [*chosen, *islice(others, ROWS - len(chosen))]


def _about(judgement: Judgement) -> tuple[str, str, object]:
    m = judgement.measurement
    return m.metric, m.subject.name, m.operation


def software(since: Difference) -> list[str]:
    """What is not the software it was: "driver 570.1 → 575.3"."""
    return [
        f"{change.what} {change.before or 'none'} → {change.after or 'none'}"
        for change in since.software
        if change.what not in _LEFT_OUT
    ]


def numbers(since: Difference) -> list[str]:
    """The numbers that got worse, beyond their own noise: "busbw plateau of all_reduce 387 → 205 GB/s (-47 %)"."""
    moved = since.measurements
    worse: list[Any] = list(moved[(moved["direction"] == "worse") & (moved["sigmas"] >= _MOVED)].itertuples())
    worse.sort(key=lambda row: "message_bytes" in row.conditions)  # sweeps before single sizes
    return [_moved(row) for row in worse[:ROWS]]


def _moved(row: Any) -> str:
    was, now = words.number(row.before), words.quantity(row.after, row.unit)
    return f"{row.what} {was} → {now} ({words.percent(row.ratio - 1)})"


def next_command(alert: Alert) -> str | None:
    """The one command that leads on: what is missing here, what is in the report, or what is not as it was."""
    run, before = alert.result, alert.since.before if alert.since else None
    if alert.over:
        return None
    if alert.incident.kind == "silent" or run is None:
        return f"seatrial history {words.plain(alert.incident.cluster)}"
    if run.verdict is Verdict.NOT_RUN:
        return "seatrial doctor"
    if run.verdict is Verdict.INCONCLUSIVE or before is None:
        return f"seatrial report {words.plain(run.run_id)}"
    return f"seatrial compare {words.plain(before.run_id)} {words.plain(run.run_id)}"


def report_address(notify: Notify, run_id: str, cluster: str, upload: str | None, path: str | None) -> str | None:
    """Where people read the report: as the cluster file says, in the bucket, else on the machine that ran the check."""
    if notify.report_url:
        return notify.report_url.replace("{run_id}", run_id).replace("{cluster}", cluster)
    if upload and upload.startswith("gs://"):
        return f"https://storage.cloud.google.com/{upload.removeprefix('gs://')}/{run_id}/report.html"
    return f"{upload}/{run_id}/report.html" if upload else path


def mentions_for(incident: Incident, mentions: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The members and groups to mention; none when the incident is over."""
    return () if incident.closed else tuple(mentions.get(incident.verdict.value, ()))
