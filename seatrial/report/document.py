"""The report as one JSON document: the run as in run.json, and what the page shows besides."""

from collections.abc import Sequence
from typing import Any

from seatrial.history.rows import RunRow
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.context import Headline, ReportContext, headline_numbers, software
from seatrial.report.heatmap import Column, heat_map


def report_json(result: RunResult, context: ReportContext) -> dict[str, Any]:
    """{"run", "last_good", "headlines", "software", "nodes", "logs"}; docs/report.md says what is in each."""
    last = context.past.last_good
    heat = heat_map(result)
    columns, lines = (heat.columns, heat.lines) if heat else ((), ())
    return {
        "run": result.to_dict(),
        "last_good": _last_good(last) if last else None,
        "headlines": [_headline(headline) for headline in headline_numbers(result, context.past)],
        "software": [
            {"what": f.what, "last_good": f.before, "this_run": f.after} for f in software(result, context.past)
        ],
        "nodes": [
            {"name": line.node, "blamed": line.blamed, "verdicts": _verdicts(columns, line.verdicts)} for line in lines
        ],
        "logs": [{"name": file.name, "bytes": file.size} for file in context.logs],
    }


def _last_good(row: RunRow) -> dict[str, Any]:
    return {"run_id": row.run_id, "started": row.started.isoformat(timespec="seconds")}


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
            {"run_id": then.run_id, "started": then.started.isoformat(timespec="seconds"), "value": then.value}
            for then in headline.trend
        ],
    }


def _verdicts(columns: Sequence[Column], verdicts: Sequence[Verdict | None]) -> dict[str, str | None]:
    return {
        f"{column.check}: {column.title}": verdict.value if verdict else None
        for column, verdict in zip(columns, verdicts, strict=True)
    }
