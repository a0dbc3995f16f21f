"""What the HTML page shows, in the order it is read. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from seatrial.model.curves import bad_judgements
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.context import NO_CONTEXT, ReportContext
from seatrial.report.headline import Headline, headline_numbers
from seatrial.report.heatmap import heat_map
from seatrial.report.past import software
from seatrial.report.sections import drawn, section
from seatrial.report.trends import trend_chart
from seatrial.runs.explanations import codes_to_explain
from seatrial.text import words

MAX_NODES = 128
MAX_SUSPECTS = 40
MAX_TRENDS = 24
LOGS_OPEN = 24  # more are folded


@dataclass(frozen=True, slots=True)
class Trend:
    """A headline number's history, drawn; `chart` is empty where it could not be."""

    headline: Headline
    chart: str


def page(result: RunResult, context: ReportContext = NO_CONTEXT) -> dict[str, Any]:
    """Everything the template needs."""
    headlines = headline_numbers(result, context.past)
    problems: list[str] = []
    return {
        "result": result,
        "codes": codes_to_explain(result),
        "context": context,
        "past": context.past,
        "headlines": headlines,
        "trends": _trends(headlines, problems),
        "problems": problems,
        "heat": heat_map(result),
        "sections": [section(check, context) for check in result.checks],
        "facts": _facts(result),
        "suspects": list(result.suspects)[:MAX_SUSPECTS],
        "software": software(result, context.past),
        "nodes": sorted(result.nodes, key=_blamed_first(result))[:MAX_NODES],
        "node_fields": _node_fields(result.nodes),
        "timings": _timings(result.timings),
        "logs_open": LOGS_OPEN,
    }


def _facts(result: RunResult) -> list[tuple[str, str]]:
    judgements = [j for check in result.checks for j in check.judgements]
    passed = sum(check.verdict is Verdict.PASS for check in result.checks)
    good = len(judgements) - len(bad_judgements(result.checks))
    gpus = sum(int(node.get("gpus") or 0) for node in result.nodes if str(node.get("gpus") or 0).isdecimal())
    facts = [
        ("nodes", f"{len(result.nodes):,}"),
        ("GPUs", f"{gpus:,}" if gpus else ""),
        ("checks passed", f"{passed} of {len(result.checks)}"),
        ("judgements passed", f"{good:,} of {len(judgements):,}" if judgements else ""),
        ("took", words.duration((result.finished - result.started).total_seconds())),
    ]
    return [(name, text) for name, text in facts if text]


def _trends(headlines: Sequence[Headline], problems: list[str]) -> list[Trend]:
    """Of the headline numbers that earlier runs have measured too."""
    with_past = [headline for headline in headlines if len(headline.trend) > 1][:MAX_TRENDS]
    return [
        Trend(headline, drawn(partial(trend_chart, f"trend{n}", headline), problems))
        for n, headline in enumerate(with_past)
    ]


def _blamed_first(result: RunResult) -> Any:
    blamed = {s.name for s in result.suspects if s.kind == "node"}
    return lambda node: str(node.get("name")) not in blamed


def _node_fields(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(field) for node in nodes[:MAX_NODES] for field in node))


def _timings(timings: Mapping[str, float]) -> list[tuple[str, float, float, float]]:
    """Step, seconds, and where its bar starts and how wide it is, in percent of the whole."""
    whole = sum(timings.values()) or 1.0
    rows, start = [], 0.0
    for step, seconds in timings.items():
        rows.append((step, seconds, 100 * start / whole, 100 * seconds / whole))
        start += seconds
    return rows
