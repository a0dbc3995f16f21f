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
from seatrial.model.explanations import explanation_of
from seatrial.model.reason import parts_of
from seatrial.model.result import Check, Expected, NextStep, next_line, verdict_line
from seatrial.model.verdict import Verdict
from seatrial.text import words
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from seatrial.logs.judge import Log, LogsJudgement

_COLUMNS = ("log", "operation", "plateau", "of links", "expected", "latency", "verdict")
_COLOURS = {
    Verdict.PASS.value: "green",
    Verdict.DEGRADED.value: "yellow",
    Verdict.FAIL.value: "red",
    Verdict.CORRUPT.value: "magenta",
    Verdict.INCONCLUSIVE.value: "blue",
    Verdict.NOT_RUN.value: "bright_black",
}


def to_dict(judged: "LogsJudgement", logs: "Iterable[Log]") -> dict[str, Any]:
    """Return verdict, reason with its code and next step, what the logs name, and every judgement
    as in run.json.
    """
    code = judged.reason.code
    named = [
        (log.name, each)
        for log in logs
        for sweep in log.sweeps
        for each in (*sweep.findings, *sweep.notes)
    ]
    shown = [
        (name, replace(each, evidence=Secrets().out_of_line(each.evidence))) for name, each in named
    ]
    held_against_nothing = [
        m for check in judged.checks if not check.judgements for m in check.measurements
    ]
    return {
        "verdict": judged.verdict.value,
        "reason": judged.reason.sentence,
        "code": code,
        "next_step": _next_step(code or ""),
        "findings": [{"log": log, **finding.to_dict()} for log, finding in dict.fromkeys(shown)]
        + _of_tools(logs),
        "judged": judged.coverage.extent or "none",
        "numbers": judged.coverage.to_dict(),
        "judgements": [j.to_dict() for check in judged.checks for j in check.judgements],
        "measurements": [
            {
                "metric": m.metric,
                "value": m.value,
                "unit": m.unit,
                "subject": {"kind": m.subject.kind, "name": m.subject.name},
                "conditions": dict(m.conditions),
            }
            for m in held_against_nothing
        ],
    }


def _of_tools(logs: "Iterable[Log]") -> list[dict[str, Any]]:
    """Return what other tools found, with the fields of a cause in a log."""
    return [
        {
            "log": log.name,
            "code": reason.code,
            "cause": reason.sentence,
            "severity": "fatal" if check.verdict.is_fault else "note",
            "host": None,
            "rank": None,
            "evidence": reason.sentence,
            "next_step": _next_step(reason.code or ""),
        }
        for log in logs
        for check in log.checks
        for reason in parts_of(check.reason)
        if reason.code
    ]


def _next_step(code: str) -> str | None:
    """Return the next step of a code of the packages that are imported: those that judge."""
    explanation = explanation_of(code)
    return explanation.next_step if explanation else None


def show_judged(judged: "LogsJudgement", not_judged: Sequence[str], hints: Sequence[str]) -> None:
    """Print one line per sweep, why those failed that did, and `verdict: reason` as the last
    line.
    """
    encoding = sys.stdout.encoding or "ascii"
    rows = [(*_judgement_cells(check), check.verdict.value) for check in judged.checks]
    for line in _aligned((_COLUMNS, *rows), encoding):
        click.echo(line)
    click.echo()
    bad = [check for check in judged.checks if not check.passed]
    sentences = [f"{check.name}: {check.reason}" for check in bad] if len(judged.checks) > 1 else []
    sentences += (
        [f"not judged, nothing known in it: {words.some_of(not_judged, 20)}"] if not_judged else []
    )
    steps = dict.fromkeys(check.reason.code or "" for check in bad)
    sentences += [next_line(NextStep(step, code)) for code in steps if (step := _next_step(code))]
    for line in (*sentences, *hints, verdict_line(judged.verdict, judged.coverage, judged.reason)):
        click.echo(words.plain(line, encoding))


def _aligned(rows: Sequence[Sequence[str]], encoding: str) -> Iterator[str]:
    """Yield the rows as aligned lines, with a coloured verdict in the last column."""
    plain = [tuple(map(partial(words.plain, encoding=encoding), row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    for *cells, last in plain:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        yield "  ".join(
            (*padded, click.style(last, fg=_COLOURS.get(last), bold=last in _COLOURS or None))
        )


def _judgement_cells(check: Check) -> tuple[str, ...]:
    """Return the cells log, operation, plateau, share, expected and latency."""
    plateau, share, latency = (
        next((m for m in check.measurements if m.metric == metric), None)
        for metric in ("busbw_plateau", SHARE, "latency")
    )
    intervals = (j.expected for j in check.judgements if j.measurement.metric == "busbw_plateau")
    return (
        check.name,
        str(plateau.conditions["operation"]) if plateau else "",
        words.quantity(plateau.value, "GB/s") if plateau else "",
        words.fraction(share.value) if share else "",
        words.interval(next(intervals, Expected()), "GB/s") if plateau else "",
        words.quantity(latency.value, "us") if latency else "",
    )
