"""A certificate as data and as a page.

The same evidence, requirements and time give the same bytes. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from seatrial import __version__
from seatrial.certificate.decide import EvidenceRun, Outcome, Status, decide, overall
from seatrial.certificate.requirements import RequirementsFile
from seatrial.model.result import Document
from seatrial.report.html import environment_of, rendered
from seatrial.text.words import number, unit_name

if TYPE_CHECKING:
    from jinja2 import Environment

SCHEMA = 1


def document(file: RequirementsFile, runs: Sequence[EvidenceRun], issued: datetime) -> Document:
    """Return the content of certificate.json."""
    waivers = {waiver.id: waiver for waiver in file.exceptions}
    outcomes = [
        decide(each, runs, waivers.get(each.id), issued.date()) for each in file.requirements
    ]
    verdicts = [outcome.verdict.value for outcome in outcomes]
    return {
        "schema": SCHEMA,
        "seatrial": __version__,
        "name": file.name,
        "issued": issued.isoformat(timespec="seconds"),
        "verdict": overall(outcomes).value,
        "counts": {status.value: verdicts.count(status) for status in Status},
        "runs": [_run(run) for run in runs],
        "requirements": [_row(outcome) for outcome in outcomes],
    }


def _run(run: EvidenceRun) -> Document:
    result = run.result
    return {
        "run_id": result.run_id,
        "cluster": result.cluster,
        "suite": result.suite,
        "hardware": result.setup.hardware if result.setup else None,
        "nodes": len(result.nodes),
        "started": result.started.isoformat(timespec="seconds"),
        "finished": result.finished.isoformat(timespec="seconds"),
        "verdict": result.verdict.value,
        "file": run.file,
    }


def _row(outcome: Outcome) -> Document:
    requirement, evidence, waiver = outcome.requirement, outcome.evidence, outcome.waiver
    row = {
        "id": requirement.id,
        "text": requirement.text,
        "check": requirement.check,
        "metric": requirement.metric,
        "limit": requirement.limit.words,
        "unit": requirement.unit,
        "subject": requirement.subject,
        "conditions": dict(requirement.conditions),
        "source": requirement.source,
        "verdict": outcome.verdict.value,
        "found": outcome.found.value,
        "measured": outcome.measured,
        "numbers": outcome.numbers,
        "code": outcome.reason.code,
        "reason": outcome.reason.sentence,
        "evidence": None,
        "exception": None,
    }
    if evidence is not None:
        row["evidence"] = asdict(evidence)
    if waiver is not None:
        row["exception"] = waiver.model_dump(mode="json", exclude={"id"})
    return row


def as_json(certificate: Mapping[str, Any]) -> str:
    """Return certificate.json as text."""
    return json.dumps(certificate, indent=1, allow_nan=False) + "\n"


def as_page(certificate: Mapping[str, Any]) -> str:
    """Render certificate.html: one file that loads nothing, for screens and paper."""
    return rendered(_environment(), "certificate.html.j2", {"certificate": certificate})


@cache
def _environment() -> "Environment":
    environment = environment_of("seatrial.certificate")
    environment.filters.update(value=_value, unit=unit_name)
    return environment


def _value(measured: float | str | None) -> str:
    """Return a measured value for people."""
    return measured if isinstance(measured, str) else number(measured)
