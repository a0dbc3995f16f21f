"""A run without the secrets that its logs may have put into what it says. Pure."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from seatrial.model.measurement import Measurement
from seatrial.model.reason import rewritten
from seatrial.model.result import Check, CheckResult, Judgement, RunResult, Suspect
from seatrial.text.redact import Secrets

Clean = Callable[[str], str]


@lru_cache(1)
def _cleaner(secrets: Secrets) -> Clean:
    """Take `secrets`, what looks like one, and control characters out of a text; each text is looked at once."""

    @cache
    def clean(text: str) -> str:
        return secrets.out_of_line(text)

    return clean


def without_secrets(result: RunResult, secrets: Secrets) -> RunResult:
    """The run with every text clean: reasons, evidence, notes, facts, and the names of nodes, checks and suites."""
    clean = _cleaner(secrets)
    return replace(
        result,
        cluster=clean(result.cluster),
        suite=clean(result.suite),
        reason=rewritten(result.reason, clean),
        notes=tuple("\n".join(map(clean, note.split("\n"))) for note in result.notes),  # ours, of several lines
        nodes=tuple({key: _fact(fact, clean) for key, fact in node.items()} for node in result.nodes),
        fingerprint={clean(name): clean(version) for name, version in result.fingerprint.items()},
        suspects=tuple(_suspect(suspect, clean) for suspect in result.suspects),
        checks=tuple(_check(check, clean) for check in result.checks),
    )


def _fact(fact: Any, clean: Clean) -> Any:
    """Of what a node says of itself: text, in a list too."""
    if isinstance(fact, list | tuple):
        return [_fact(each, clean) for each in fact]
    return clean(fact) if isinstance(fact, str) else fact


def _suspect(suspect: Suspect, clean: Clean) -> Suspect:
    return replace(suspect, name=clean(suspect.name), evidence=rewritten(suspect.evidence, clean))


def _check(check: Check, clean: Clean) -> Check:
    return replace(
        check,
        name=clean(check.name),
        reason=rewritten(check.reason, clean),
        measurements=tuple(_measurement(m, clean) for m in check.measurements),
        judgements=tuple(_judgement(judgement, clean) for judgement in check.judgements),
        suspects=tuple(_suspect(suspect, clean) for suspect in check.suspects),
        raw_result=_check_result(check.raw_result, clean) if check.raw_result else None,
    )


def _check_result(check_result: CheckResult, clean: Clean) -> CheckResult:
    suspects = tuple(_suspect(suspect, clean) for suspect in check_result.suspects)
    return replace(check_result, reason=rewritten(check_result.reason, clean), suspects=suspects)


def _judgement(judgement: Judgement, clean: Clean) -> Judgement:
    """The same object where nothing changes: a thousand nodes have a hundred thousand of them."""
    measurement, reason = _measurement(judgement.measurement, clean), rewritten(judgement.reason, clean)
    if measurement is judgement.measurement and reason == judgement.reason:
        return judgement
    return replace(judgement, measurement=measurement, reason=reason)


def _measurement(measurement: Measurement, clean: Clean) -> Measurement:
    name = clean(measurement.subject.name)
    conditions = {key: _fact(value, clean) for key, value in measurement.conditions.items()}
    if name == measurement.subject.name and conditions == measurement.conditions:
        return measurement
    return replace(measurement, subject=replace(measurement.subject, name=name), conditions=conditions)
