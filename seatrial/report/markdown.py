"""A run as Markdown, for a Prefect artifact and CI logs, and as one JSON document."""

from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.model.curves import bad_judgements
from seatrial.model.result import RunResult
from seatrial.report.context import Headline, ReportContext, headline_numbers, software
from seatrial.report.heatmap import HeatMapRow, heat_map
from seatrial.text import words
from seatrial.text.escape import code, escape
from seatrial.text.headline import lines, own_reason

MAX_ROWS = 20

Cell = str | float | None


def summary(result: RunResult) -> str:
    """Return the lines of the run, suspects, checks, notes, the worst judgements and the software,
    in that order.
    """
    verdict, *others = map(escape, lines(result))
    checks = [
        (
            check.name,
            f"{words.GLYPHS[check.verdict]} {check.verdict.value}",
            own_reason(check, result.suspects),
            words.duration(check.seconds),
        )
        for check in result.checks
    ]
    parts = [
        f"## {words.GLYPHS[result.verdict]} {escape(result.cluster)}",
        "\n\n".join((f"**{verdict}**", *others)),
        _facts(result),
        _suspects(result),
        _table("Checks", ("check", "verdict", "reason", "time"), checks),
        _notes(result),
        _bad(result),
        _software(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def report_markdown(result: RunResult, context: ReportContext) -> str:
    """Return the summary, and what is known of earlier runs: the headline numbers beside those of
    the last good run.
    """
    last = context.past.last_good
    title = "Headline numbers"
    if last:
        title += f", last good run {code(last.run_id)}"
    head = ("number", "measured", "expected", "last good run", "change", "verdict")
    numbers = _table(title, head, map(_headline_row, headline_numbers(result, context.past)))
    rows = [
        (fact.what, fact.before or "–", fact.after or "–")
        for fact in software(result, context.past)
        if last and fact.differs
    ]
    parts = (
        summary(result),
        numbers,
        _table("Software that changed", ("what", "last good run", "this run"), rows),
    )
    stripped = [part.rstrip("\n") for part in parts if part]
    return "\n\n".join(stripped) + "\n"


def judgement_rows(result: RunResult, limit: int = 500) -> list[dict[str, Cell]]:
    """Return up to `limit` judgements as flat rows for a table, the worst first, every text
    formatted for people.
    """
    judged = []
    for check in result.checks:
        judged += [(check, judgement) for judgement in check.judgements]
    judged.sort(key=lambda judged: judged[1].verdict.severity)
    return [
        {
            "check": check.name,
            "verdict": j.verdict.value,
            "metric": j.measurement.metric,
            "subject": words.subject_name(j.measurement.subject) or "cluster",
            "conditions": words.condition_words(j.measurement),
            "value": words.quantity(j.measurement.value, j.measurement.unit),
            "expected": words.interval(j.expected, j.measurement.unit),
            "off by": words.percent(j.deviation),
            "source": j.source,
            "reason": j.reason.sentence,
        }
        for check, j in judged[:limit]
    ]


def _facts(result: RunResult) -> str:
    suite = escape(result.suite)
    took = words.duration(result.seconds)
    nodes = words.count(len(result.nodes), "node")
    started = words.moment(result.started)
    run_id = code(result.run_id)
    return f"suite {suite} · {nodes} · {started} · {took} · run `{run_id}`"


def _notes(result: RunResult) -> str:
    notes = [f"- {escape(note)}" for note in result.notes[:MAX_ROWS]]
    return "\n".join([*notes, *_more(len(result.notes), "notes")])


def _software(result: RunResult) -> str:
    versions = result.fingerprint.items()
    return " · ".join(f"{escape(name)} `{code(version)}`" for name, version in versions if version)


def _suspects(result: RunResult) -> str:
    if not result.suspects:
        return ""
    lines = ["### Suspects", ""]
    for suspect in result.suspects[:MAX_ROWS]:
        name = escape(words.suspect_name(suspect, result.nodes))
        confidence = words.fraction(suspect.confidence)
        evidence = escape(suspect.evidence)
        lines.append(f"- **{name}** ({confidence}): {evidence}")
    lines += _more(len(result.suspects), "suspects")
    return "\n".join(lines)


def _headline_row(headline: Headline) -> tuple[str, ...]:
    m = headline.measurement
    return (
        headline.name,
        words.quantity(m.value, m.unit),
        words.interval(headline.expected, m.unit),
        words.quantity(headline.last, m.unit),
        words.percent(headline.change),
        headline.verdict.value if headline.verdict else "recorded",
    )


def _bad(result: RunResult) -> str:
    bad = bad_judgements(result.checks)
    rows = [
        (
            words.measurement_name(j.measurement),
            words.quantity(j.measurement.value, j.measurement.unit),
            words.interval(j.expected, j.measurement.unit),
            words.percent(j.deviation),
            j.source,
            j.verdict.value,
        )
        for _, j in bad[:MAX_ROWS]
    ]
    table = _table(
        "Not as expected", ("what", "measured", "expected", "off by", "source", "verdict"), rows
    )
    lines = [table, *_more(len(bad), "judgements")]
    return "\n".join(lines)


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = [_line(map(escape, row)) for row in rows]
    if not body:
        return ""
    rule = "|" + "---|" * len(head)
    lines = [f"### {title}", "", _line(head), rule]
    return "\n".join(lines + body)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _more(count: int, noun: str) -> list[str]:
    more = count - MAX_ROWS
    if more <= 0:
        return []
    return ["", f"and {more} more {noun} in `run.json`"]


def report_json(result: RunResult, context: ReportContext) -> dict[str, Any]:
    """Return {"run", "last_good", "headlines", "software", "nodes", "logs"}; docs/report.md
    describes each.
    """
    last = context.past.last_good
    heat = heat_map(result)
    titles = []
    rows: Sequence[HeatMapRow] = ()
    if heat:
        titles = [f"{column.check}: {column.title}" for column in heat.columns]
        rows = heat.lines
    last_good = None
    if last:
        last_good = {"run_id": last.run_id, "started": last.started.isoformat(timespec="seconds")}
    headlines = headline_numbers(result, context.past)
    return {
        "run": result.to_dict(),
        "last_good": last_good,
        "headlines": [_headline(headline) for headline in headlines],
        "software": [
            {"what": f.what, "last_good": f.before, "this_run": f.after}
            for f in software(result, context.past)
        ],
        "nodes": [
            {
                "name": line.node,
                "blamed": line.blamed,
                "verdicts": dict(zip(titles, line.verdicts, strict=True)),
            }
            for line in rows
        ],
        "logs": [{"name": file.name, "bytes": file.size} for file in context.logs],
    }


def _headline(headline: Headline) -> dict[str, Any]:
    m = headline.measurement
    return {
        "name": headline.name,
        "metric": m.metric,
        "conditions": dict(m.conditions),
        "value": m.value,
        "unit": m.unit,
        "expected": {"low": headline.expected.low, "high": headline.expected.high},
        "verdict": headline.verdict.value if headline.verdict else None,
        "last_good": headline.last,
        "change": headline.change,
        "history": [
            {
                "run_id": then.run_id,
                "started": then.started.isoformat(timespec="seconds"),
                "value": then.value,
            }
            for then in headline.trend
        ],
    }
