"""Judgements of logs, as text and as JSON.

Without rich, which takes longer to load than a log to judge.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from seatrial.model.curves import SHARE
from seatrial.model.explanations import next_step_of
from seatrial.model.measurement import Measurement
from seatrial.model.reason import parts_of
from seatrial.model.result import Check, Expected, NextStep, next_line, verdict_line
from seatrial.model.verdict import Verdict
from seatrial.text import words
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from seatrial.causes.table import Finding
    from seatrial.logs.judge import Log, LogsJudgement

Document = dict[str, Any]

_COLUMNS = ("log", "operation", "plateau", "of links", "expected", "latency", "verdict")
_NO_FINDING = (None, "tool-passed", "tool-measured")  # codes of summaries
_COLOURS = {
    Verdict.PASS.value: "green",
    Verdict.DEGRADED.value: "yellow",
    Verdict.FAIL.value: "red",
    Verdict.CORRUPT.value: "magenta",
    Verdict.INCONCLUSIVE.value: "blue",
    Verdict.NOT_RUN.value: "bright_black",
}


def to_dict(judged: "LogsJudgement", logs: "Iterable[Log]") -> Document:
    """Return verdict, reason with its code and next step, what the logs name, and every judgement
    as in run.json.

    `measurements` has the numbers of checks without judgements. `logs` is iterated more than once,
    so it must not be an iterator.
    """
    code = judged.reason.code
    findings: list[Document] = [
        {"log": log, **finding.to_dict()} for log, finding in dict.fromkeys(_named(logs))
    ]
    judgements: list[Document] = []
    measurements: list[Document] = []
    for check in judged.checks:
        judgements += [judgement.to_dict() for judgement in check.judgements]
        if not check.judgements:  # compared with nothing
            measurements += map(_measurement, check.measurements)
    return {
        "verdict": judged.verdict.value,
        "reason": judged.reason.sentence,
        "code": code,
        "next_step": next_step_of(code),
        "findings": findings + _of_tools(logs),
        "judged": judged.coverage.extent or "none",
        "numbers": judged.coverage.to_dict(),
        "judgements": judgements,
        "measurements": measurements,
    }


def _named(logs: "Iterable[Log]") -> "Iterator[tuple[str, Finding]]":
    """Yield what the logs name, each with its log, without secrets."""
    for log in logs:
        for sweep in log.sweeps:
            for finding in (*sweep.findings, *sweep.notes):
                evidence = Secrets().out_of_line(finding.evidence)
                yield log.name, replace(finding, evidence=evidence)


def _measurement(m: Measurement) -> Document:
    """Return a number without a judgement, with the fields that it has in run.json."""
    return {
        "metric": m.metric,
        "value": m.value,
        "unit": m.unit,
        "subject": {"kind": m.subject.kind, "name": m.subject.name},
        "conditions": dict(m.conditions),
    }


def _of_tools(logs: "Iterable[Log]") -> list[Document]:
    """Return what other tools found, with the fields of a cause in a log.

    The host and rank are null: tools name them in their own words, within the cause.
    """
    found = []
    for log in logs:
        for check in log.checks:
            severity = "fatal" if check.verdict.is_fault else "note"
            for reason in parts_of(check.reason):
                if reason.code in _NO_FINDING:
                    continue
                found.append(
                    {
                        "log": log.name,
                        "code": reason.code,
                        "cause": reason.sentence,
                        "severity": severity,
                        "host": None,
                        "rank": None,
                        "evidence": reason.sentence,
                        "next_step": next_step_of(reason.code),
                    }
                )
    return found


def show_judged(judged: "LogsJudgement", not_judged: Sequence[str], hints: Sequence[str]) -> None:
    """Print one line per sweep, why those failed that did, and `verdict: reason` as the last
    line.

    `not_judged` are names of logs in which nothing is known. `hints` are sentences that come before
    the last line. Characters that the terminal cannot show are replaced.
    """
    encoding = sys.stdout.encoding or "ascii"
    rows: list[Sequence[str]] = [_COLUMNS]
    for check in judged.checks:
        rows.append((*_judgement_cells(check), check.verdict.value))
    for line in _aligned(rows, encoding):
        click.echo(line)
    click.echo()
    bad = [check for check in judged.checks if not check.passed]
    sentences = []
    if len(judged.checks) > 1:
        sentences += [f"{check.name}: {check.reason}" for check in bad]
    if not_judged:
        unknown = words.some_of(not_judged, 20)
        sentences.append(f"not judged, nothing known in it: {unknown}")
    for code in dict.fromkeys(check.reason.code or "" for check in bad):
        if step := next_step_of(code):
            sentences.append(next_line(NextStep(step, code)))
    last = verdict_line(judged.verdict, judged.coverage, judged.reason)
    for line in (*sentences, *hints, last):
        click.echo(words.plain(line, encoding))


def _aligned(rows: Sequence[Sequence[str]], encoding: str) -> Iterator[str]:
    """Yield the rows as aligned lines, with a coloured verdict in the last column.

    The first row, of headings, decides nothing but a width: its last cell is no verdict.
    """
    to_plain = partial(words.plain, encoding=encoding)
    plain = [tuple(map(to_plain, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    for *cells, last in plain:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        colour = _COLOURS.get(last)
        verdict = click.style(last, fg=colour, bold=colour is not None or None)
        yield "  ".join((*padded, verdict))


def _judgement_cells(check: Check) -> tuple[str, ...]:
    """Return the cells log, operation, plateau, share, expected and latency; empty for what the log
    does not have.

    Of several measurements or judgements of a metric, the first one is shown.
    """
    by_metric = {m.metric: m for m in reversed(check.measurements)}
    operation = busbw = expected = ""
    plateau = by_metric.get("busbw_plateau")
    if plateau:
        operation = str(plateau.conditions["operation"])
        busbw = words.quantity(plateau.value, "GB/s")
        interval = Expected()
        for judgement in reversed(check.judgements):
            if judgement.measurement.metric == "busbw_plateau":
                interval = judgement.expected
        expected = words.interval(interval, "GB/s")
    share = by_metric.get(SHARE)
    latency = by_metric.get("latency")
    return (
        check.name,
        operation,
        busbw,
        words.fraction(share.value) if share else "",
        expected,
        words.quantity(latency.value, "us") if latency else "",
    )
