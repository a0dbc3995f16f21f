"""The report of a run as one HTML file without external resources."""

import base64
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from seatrial.checks.table import CHECKS
from seatrial.model.curves import (
    Point,
    bad_judgements,
    busbw_curves,
    latency_table,
    losses,
    plateau,
    share,
)
from seatrial.model.errors import classed
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check, Judgement, RunResult
from seatrial.model.setup import INTRA, arm_of
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.report import charts, trends
from seatrial.report.context import (
    NO_CONTEXT,
    Headline,
    LogFile,
    ReportContext,
    headline_numbers,
    software,
)
from seatrial.report.heatmap import HeatMap, heat_map
from seatrial.report.pairs import pair_matrix
from seatrial.system.extras import how_to_install
from seatrial.text import words
from seatrial.text.headline import lines, own_reason
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


OPEN_ROWS = 6  # a longer table of bad rows is folded under its worst row
log = logging.getLogger("seatrial.report")
MAX_SUSPECTS = 40
MAX_BAD_ROWS = 200
MAX_GOOD_ROWS = 300
MAX_NODES = 128
MAX_TRENDS = 24
LOGS_OPEN = 24  # more are folded


@dataclass(frozen=True, slots=True)
class JudgementRow:
    """One judgement; `what` has the words that the title of its group lacks."""

    what: str
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class JudgementGroup:
    """Judgements of one metric under the same conditions but for message size, placement and
    subject.
    """

    title: str
    rows: tuple[JudgementRow, ...]

    @property
    def folded(self) -> bool:
        return len(self.rows) > OPEN_ROWS

    @property
    def worst(self) -> JudgementRow:
        return min(
            self.rows,
            key=lambda row: (row.judgement.verdict.severity, -abs(row.judgement.deviation or 0.0)),
        )


def groups(judgements: Sequence[Judgement]) -> tuple[JudgementGroup, ...]:
    """Group judgements, the worst group first."""
    by_title: dict[str, list[JudgementRow]] = {}
    for judgement in judgements:
        m = judgement.measurement
        shared = words.condition_words(m, without=_in_row(m))
        title = words.metric_name(m.metric) + (f" · {shared}" if shared else "")
        by_title.setdefault(title, []).append(JudgementRow(_own_words(m), judgement))
    sorted_groups = [
        JudgementGroup(title, tuple(sorted(rows, key=_row_order)))
        for title, rows in by_title.items()
    ]
    return tuple(sorted(sorted_groups, key=lambda group: group.worst.judgement.verdict.severity))


def _in_row(measurement: Measurement) -> tuple[str, ...]:
    """Return the conditions that differ within a group; the title has the others."""
    return (
        ("message_bytes", "placement")
        if "message_bytes" in measurement.conditions
        else ("operation", "arm")
    )


def _own_words(measurement: Measurement) -> str:
    """Return what distinguishes a row: subject, message size, and the placement if in place."""
    usual = ("placement",) if measurement.conditions.get("placement") == "out_of_place" else ()
    others = tuple(key for key in measurement.conditions if key not in _in_row(measurement))
    own = words.condition_words(measurement, without=(*others, *usual))
    return ", ".join(text for text in (words.subject_name(measurement.subject), own) if text)


def _row_order(row: JudgementRow) -> tuple[int, str, int, str]:
    """Return a sort key: by message size if rows have one, else the worst first."""
    m = row.judgement.measurement
    size = m.conditions.get("message_bytes")
    placement = str(m.conditions.get("placement", ""))
    at = size if isinstance(size, int) else 0
    return (
        at,
        "" if placement == "out_of_place" else placement,
        row.judgement.verdict.severity,
        m.subject.name,
    )


def section(check: Check, context: ReportContext) -> dict[str, Any]:
    """Return the variables of a check's section.

    A chart that could not be drawn is empty and `problem` says why.
    """
    bad = [j for _, j in bad_judgements([check])]
    good = [j for j in check.judgements if j.passed]
    curves = busbw_curves(check)
    loss = losses(check)
    problems: list[str] = []

    def last(point: Point) -> float | None:
        return context.past.last_value(point.series)

    return {
        "check": check,
        "lacks_baseline": bool(check.coverage.without_baseline),
        # run.json has only the suspects that the check itself named
        "blamed": (check.suspects or check.raw.suspects)[:MAX_SUSPECTS],
        "busbw": drawn(lambda: charts.busbw_chart(curves, last), problems) if curves else "",
        "loss": drawn(lambda: charts.loss_chart(loss), problems) if loss else "",
        "legend": charts.busbw_caption(curves, last),
        "latency": latency_table(check),
        "bad": groups(bad[:MAX_BAD_ROWS]),
        "good": groups(good[:MAX_GOOD_ROWS]),
        "passed": _passed(good),
        "left_out": max(0, len(bad) - MAX_BAD_ROWS) + max(0, len(good) - MAX_GOOD_ROWS),
        "problem": "; ".join(problems),
        "plateaus": _plateaus(check),
        "logs": _logs(check, context.logs),
    }


def drawn(draw: Callable[[], str], problems: list[str]) -> str:
    """Draw a chart; an error is added to `problems` and not raised."""
    try:
        return draw()
    except ImportError:
        problems[:] = dict.fromkeys(
            (*problems, f"a picture {how_to_install('charts')}; the numbers are below")
        )
        return ""
    except Exception as error:
        log.warning("a chart of the report could not be drawn: %s", classed(error))
        problems.append(f"a chart could not be drawn ({classed(error)}); the numbers are below")
        return ""


def _plateaus(check: Check) -> str:
    """Return plateaus with a known share of the links: "all_reduce 481 GB/s, 107 % of the
    links".
    """
    shares = [(curve.operation, share(check, curve.operation)) for curve in busbw_curves(check)]
    return "; ".join(
        (
            f"{operation} {words.quantity(plateau(check, operation), 'GB/s')}, "
            f"{words.fraction(part)} of the links"
        )
        for operation, part in shares
        if part is not None
    )


def _logs(check: Check, logs: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """Return the logs named after the check or its sweeps: operation, arm and, in the arm `intra`,
    node.
    """
    names = {
        check.name,
        *(name for kind in CHECKS if kind.name == check.name for name in kind.logs),
    }
    for m in check.measurements:
        arm = arm_of(m)
        parts = (m.conditions.get("operation"), arm, m.subject.name if arm == INTRA else "")
        names.add("-".join(str(part) for part in parts if part))
    return tuple(file for file in logs if file.name.removesuffix(".log") in names)


def page(result: RunResult, context: ReportContext) -> dict[str, Any]:
    """Return the variables of the template."""
    headlines = headline_numbers(result, context.past)
    with_past = [headline for headline in headlines if len(headline.trend) > 1][:MAX_TRENDS]
    problems: list[str] = []
    heat = heat_map(result)
    blamed = {suspect.name: suspect for suspect in result.suspects if suspect.kind == "node"}
    nodes = sorted(result.nodes, key=lambda node: str(node.get("name")) not in blamed)[:MAX_NODES]
    fields = dict.fromkeys(str(field) for node in nodes for field in node)
    verdict_line, since, *next_lines = lines(result)
    return {
        "result": result,
        "title": _title(result, verdict_line),
        "since": since,
        "next_lines": next_lines,
        "context": context,
        "past": context.past,
        "bad_headlines": [headline for headline in headlines if not _passes(headline)],
        "good_headlines": [headline for headline in headlines if _passes(headline)],
        "trends": [
            drawn(partial(trends.trend_chart, f"trend{n}", headline), problems)
            for n, headline in enumerate(with_past)
        ],
        "bands": [
            drawn(partial(trends.band_chart, f"band{n}", band), problems)
            for n, band in enumerate(context.bands)
        ],
        "problems": problems,
        "heat": heat,
        "sections": [section(check, context) for check in result.checks],
        "facts": _facts(result, heat),
        "suspects": list(result.suspects)[:MAX_SUSPECTS],
        "pairs": pair_matrix(result),
        "blamed": blamed,
        "software": software(result, context.past),
        "nodes": nodes,
        "node_fields": [field for field in fields if field != "hardware_ids"],  # digests
        "timings": _timings(result.timings),
        "logs_open": LOGS_OPEN,
        "seen": {
            result.verdict,
            *(check.verdict for check in result.checks),
            *(j.verdict for check in result.checks for j in check.judgements),
            *(
                verdict
                for line in (heat.lines if heat else ())
                for verdict in (line.verdict, *line.verdicts)
            ),
        },
    }


def _facts(result: RunResult, heat: HeatMap | None) -> list[tuple[str, str]]:
    judgements = [j for check in result.checks for j in check.judgements]
    gpus = sum(
        int(node.get("gpus") or 0)
        for node in result.nodes
        if str(node.get("gpus") or 0).isdecimal()
    )
    nodes = f"{len(result.nodes):,}"
    facts = [
        ("nodes", _counted(line.verdict for line in heat.lines) if heat else nodes),
        ("GPUs", f"{gpus:,}" if gpus else ""),
        ("checks", _counted(check.verdict for check in result.checks)),
        ("numbers", _counted(j.verdict for j in judgements)),
        (
            "compared",
            f"{result.coverage.judged:,} of {result.coverage.numbers:,}" if judgements else "",
        ),
        ("took", words.duration(result.seconds)),
    ]
    return [(name, text) for name, text in facts if text]


def _counted(verdicts: Iterable[Verdict]) -> str:
    """Return how many have which verdict, the worst first: "1 corrupt, 3 pass"."""
    counts = Counter(verdicts)
    worst_first = sorted(counts, key=lambda verdict: verdict.severity)
    return ", ".join(f"{counts[verdict]:,} {verdict.value}" for verdict in worst_first)


def _passed(good: Sequence[Judgement]) -> str:
    """Return how many numbers passed, and how many of them have no baseline."""
    open_numbers = sum(not judgement.compared for judgement in good)
    passed = f"{words.count(len(good), 'number')} passed"
    return f"{passed}, {open_numbers:,} without a baseline yet" if open_numbers else passed


def _passes(headline: Headline) -> bool:
    return headline.verdict in (Verdict.PASS, None)


def _title(result: RunResult, line: str) -> tuple[str, str, str]:
    """Return the verdict's line in three parts: the second says how much was compared, and is empty
    where all was.
    """
    extent = f" ({result.coverage.words})"
    before, compared, after = line.partition(extent) if result.passed else (line, "", "")
    return before, compared, after


def _judged(judgement: Judgement) -> str:
    """Say how a number was judged; of a pass, which change would have been noticed."""
    if not judgement.compared:
        return "no baseline yet"
    m = judgement.measurement
    bound = judgement.expected.high if judgement.measurement.better == "lower" else None
    bound = judgement.expected.low if bound is None else bound
    if (
        not judgement.passed
        or not bound
        or judgement.deviation is None
        or judgement.deviation <= -1
    ):
        return judgement.reason.sentence
    change = (
        words.fraction(abs(bound * (1 + judgement.deviation) / m.value - 1))
        if m.value
        else "any size"
    )
    return f"would have seen {'an increase' if m.better == 'lower' else 'a loss'} of {change}"


def _with_code(text: str) -> "Markup":
    """Return `text` escaped, with what is in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _timings(timings: Mapping[str, float]) -> list[tuple[str, float, float, float]]:
    """Return step, seconds, and start and width of its bar in percent."""
    whole = sum(timings.values()) or 1.0
    rows = []
    start = 0.0
    for step, seconds in timings.items():
        rows.append((step, seconds, 100 * start / whole, 100 * seconds / whole))
        start += seconds
    return rows


def report_html(result: RunResult, context: ReportContext = NO_CONTEXT) -> str:
    """Render the report of the result in its context."""
    return rendered(_environment(), "report.html.j2", page(result, context))


def rendered(environment: "Environment", template: str, values: Mapping[str, Any]) -> str:
    """Render a page without what files and nodes may hold: escapes, overrides, half a character."""
    text = (
        environment.get_template(template).render(values).encode(errors="backslashreplace").decode()
    )
    return "\n".join(map(printable, text.split("\n")))


@cache
def script() -> str:
    """Return the page's script.

    The page's policy lets no other run, whatever a log has smuggled in.
    """
    return files("seatrial.report").joinpath("templates/report.js").read_text(encoding="utf-8")


def environment_of(package: str) -> "Environment":
    """Load the templates of a package.

    What they show comes from files and machines under test: it is escaped.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _environment() -> "Environment":
    environment = environment_of("seatrial.report")
    environment.globals.update(
        Verdict=Verdict,
        glyphs=words.GLYPHS,
        meanings=words.MEANINGS,
        count=words.count,
        own_reason=own_reason,
        script=script(),
        script_hash=base64.b64encode(hashlib.sha256(script().encode()).digest()).decode(),
    )
    environment.filters.update(
        number=words.number,
        quantity=words.quantity,
        duration=words.duration,
        interval=words.interval,
        percent=words.percent,
        bytes=words.file_size,
        size=format_size,
        unit=words.unit_name,
        suspect=words.suspect_name,
        percentage=words.fraction,
        moment=words.moment,
        judged=_judged,
        with_code=_with_code,
    )
    return environment
