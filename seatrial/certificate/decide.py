"""Check requirements by runs: the worst number that matches decides, and what was not measured is
not shown. Pure.

A number counts only if its check had a result, if it can be compared, and if every node of its run
has one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from fractions import Fraction

from seatrial.certificate.requirements import Condition, Requirement, Waiver, exact, scale
from seatrial.config.run import whole_name
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, CheckResult, Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.text import words
from seatrial.text.words import measurement_name, quantity, some_of

_UNMEASURED = (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
# A check of another verdict did not end as it should
_HAS_NUMBERS = (Verdict.PASS, Verdict.DEGRADED)
_SHOWN_NODES = 4


class Status(StrEnum):
    """The verdict on a requirement, or on all of them."""

    MET = "met"
    NOT_MET = "not met"
    NOT_SHOWN = "not shown"
    EXCEPTED = "excepted"

    @property
    def exit_status(self) -> int:
        """The exit status of `seatrial certify`."""
        return {Status.NOT_MET: 1, Status.NOT_SHOWN: 3}.get(self, 0)


@dataclass(frozen=True, slots=True)
class EvidenceRun:
    """A run, and its run.json in the folder of the certificate."""

    file: str
    result: RunResult


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a value stands: `pointer` is a JSON pointer into the run.json `file`; `value` is in the
    run's own unit.
    """

    run_id: str
    file: str
    pointer: str
    subject: str
    value: float | str
    unit: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a requirement; `measured` is in the unit of the limit, or a verdict.

    `found` is the verdict before the exception, `numbers` how many values were compared.
    """

    requirement: Requirement
    verdict: Status
    found: Status
    reason: Reason
    measured: float | str | None = None
    numbers: int = 0
    evidence: Evidence | None = None
    waiver: Waiver | None = None


@dataclass(frozen=True, slots=True)
class _Tried:
    """A check of a run that a requirement is about; `place` is its pointer."""

    run: EvidenceRun
    place: str
    check: Check


@dataclass(frozen=True, slots=True)
class _Reading:
    """A number in the unit of the limit."""

    value: Fraction
    measurement: Measurement
    evidence: Evidence


def decide(
    requirement: Requirement, runs: Sequence[EvidenceRun], waiver: Waiver | None, issued: date
) -> Outcome:
    """Check one requirement by the runs, then apply the exception if it is still valid."""
    tried = list(_tried(requirement, runs))
    outcome = (
        _by_verdict(requirement, tried)
        if requirement.limit.equals
        else _by_numbers(requirement, tried)
    )
    if waiver is None:
        return outcome
    is_needed = outcome.verdict is not Status.MET and issued <= waiver.until
    return replace(
        outcome, verdict=Status.EXCEPTED if is_needed else outcome.verdict, waiver=waiver
    )


def overall(outcomes: Sequence[Outcome]) -> Status:
    """Return the verdict on all requirements: met only if each is met or excepted."""
    verdicts = {outcome.verdict for outcome in outcomes}
    if Status.NOT_MET in verdicts:
        return Status.NOT_MET
    return Status.NOT_SHOWN if Status.NOT_SHOWN in verdicts or not verdicts else Status.MET


def _tried(requirement: Requirement, runs: Sequence[EvidenceRun]) -> Iterator[_Tried]:
    """Yield the checks of that name in the runs whose conditions match."""
    for run in runs:
        setup = run.result.setup
        facts = {
            "nodes": len(run.result.nodes),
            "hardware": setup.hardware if setup else None,
            "suite": whole_name(run.result.suite),
            "cluster": run.result.cluster,
        }
        if any(facts[name] != value for name, value in requirement.run_conditions.items()):
            continue
        for index, check in enumerate(run.result.checks):
            if check.name == requirement.check:
                yield _Tried(run, f"/checks/{index}", check)


def _by_verdict(requirement: Requirement, tried: Sequence[_Tried]) -> Outcome:
    """Decide by the verdict of the check in each run; a pass whose numbers lack a baseline shows
    nothing.
    """
    if not tried:
        return _not_shown(requirement, _not_measured(requirement))
    worst = min(tried, key=lambda each: each.check.verdict.severity)
    verdict = worst.check.verdict
    gaps = [_gap_of_verdict(each) for each in tried]
    gap = next(filter(None, gaps), None)
    status, reason = Status.MET, Reason()
    if verdict.is_fault:
        status, reason = Status.NOT_MET, _without_result(worst, worst.check)
    elif gap:
        status, reason = Status.NOT_SHOWN, gap
    run = worst.run
    evidence = Evidence(
        run.result.run_id, run.file, f"{worst.place}/verdict", "", verdict.value, ""
    )
    return Outcome(requirement, status, status, reason, verdict.value, len(tried), evidence)


def _gap_of_verdict(tried: _Tried) -> Reason | None:
    check = tried.check
    if check.verdict in _UNMEASURED:
        return _without_result(tried, check)
    if check.coverage.extent in ("none", "some"):
        return Reason.of(
            "requirement-not-compared",
            check=check.name,
            run=tried.run.result.run_id,
            coverage=check.coverage.words,
        )
    measurements = [judgement.measurement for judgement in check.judgements]
    return _parts_missing(tried.run.result, measurements, whole=True)


def _by_numbers(requirement: Requirement, tried: Sequence[_Tried]) -> Outcome:
    """Decide by the worst number.

    One beyond the limit is proof; else a gap in any run leaves it not shown.
    """
    readings = []
    gaps: list[Reason] = []
    for each in tried:
        matching = list(_readings(requirement, each, gaps))
        raw = each.check.raw
        if raw.verdict not in _HAS_NUMBERS:
            gaps.append(_without_result(each, raw))
        measurements = [reading.measurement for reading in matching]
        if reason := _parts_missing(
            each.run.result, measurements, whole="ranks" not in requirement.conditions
        ):
            gaps.append(reason)
        readings += matching
    if not readings:
        return _not_shown(requirement, gaps[0] if gaps else _not_measured(requirement))
    lowest_first = sorted(readings, key=lambda reading: reading.value)
    worst = lowest_first[0] if requirement.limit.at_least is not None else lowest_first[-1]
    status, reason = Status.MET, Reason()
    if not requirement.limit.is_met_by(worst.value):
        status, reason = Status.NOT_MET, _missed(requirement, worst)
    elif gaps:
        status, reason = Status.NOT_SHOWN, gaps[0]
    return Outcome(
        requirement, status, status, reason, float(worst.value), len(readings), worst.evidence
    )


def _readings(requirement: Requirement, tried: _Tried, gaps: list[Reason]) -> Iterator[_Reading]:
    """Yield the numbers that match; what matches and cannot be compared is added to `gaps`."""
    run = tried.run
    for index, judgement in enumerate(tried.check.judgements):
        m = judgement.measurement
        if not _matches(requirement, m):
            continue
        factor = scale(m.unit, requirement.unit or "")
        if factor is None or _is_unusable(judgement):
            gaps.append(
                Reason.of(
                    "requirement-number-unusable",
                    what=measurement_name(m),
                    unit=m.unit,
                    run=run.result.run_id,
                )
            )
            continue
        pointer = f"{tried.place}/judgements/{index}"
        evidence = Evidence(run.result.run_id, run.file, pointer, m.subject.name, m.value, m.unit)
        yield _Reading(exact(m.value) * factor, m, evidence)


def _matches(requirement: Requirement, measurement: Measurement) -> bool:
    """Return whether the measurement has metric, kind of subject and conditions; null is a
    condition that it lacks.
    """
    if measurement.metric != requirement.metric:
        return False
    if requirement.subject not in (None, measurement.subject.kind):
        return False
    expected = requirement.number_conditions.items()
    return all(_equal(measurement.conditions.get(name), value) for name, value in expected)


def _equal(measured: ConditionValue | None, expected: Condition) -> bool:
    """Return whether two conditions are equal; true is not 1, as in the file."""
    return measured == expected and isinstance(measured, bool) == isinstance(expected, bool)


def _is_unusable(judgement: Judgement) -> bool:
    """Return whether the value is not a number, or was not measured properly."""
    if not judgement.measurement.finite or judgement.verdict in (*_UNMEASURED, Verdict.CORRUPT):
        return True
    return judgement.source in ("sanity", "physics") and judgement.verdict.is_fault


def _parts_missing(
    result: RunResult, measurements: Sequence[Measurement], *, whole: bool
) -> Reason | None:
    """Return the reason that parts of the run have no number: nodes, GPUs, and with `whole` ranks;
    None if all have.

    A run goes on without the nodes that it cannot use.
    """
    missing = _unmeasured_parts(result, {measurement.subject for measurement in measurements})
    if whole and result.setup is not None:
        due = result.setup.ranks
        ranks = [m.conditions.get("ranks") for m in measurements if m.subject.kind == "cluster"]
        fewest = min((count for count in ranks if isinstance(count, int)), default=due)
        if fewest < due:
            missing.append(f"{due - fewest} of {due} ranks")
    if not missing:
        return None
    return Reason.of(
        "requirement-parts-missing", parts=some_of(missing, _SHOWN_NODES), run=result.run_id
    )


def _unmeasured_parts(result: RunResult, subjects: Set[Subject]) -> list[str]:
    """Return the nodes and GPUs of the run that are not among the subjects, if these are of such
    parts.
    """
    measured = {node for subject in subjects for node in subject.nodes}
    if not measured:
        return []
    gpus = Counter(subject.nodes[0] for subject in subjects if subject.kind == "gpu")
    missing = []
    for node in result.nodes:
        name, count = str(node.get("name")), node.get("gpus")
        if name not in measured:
            missing.append(name)
        elif gpus and isinstance(count, int) and gpus[name] < count:
            missing.append(f"{words.count(count - gpus[name], 'GPU')} of {name}")
    return missing


def _not_shown(requirement: Requirement, reason: Reason) -> Outcome:
    return Outcome(requirement, Status.NOT_SHOWN, Status.NOT_SHOWN, reason)


def _not_measured(requirement: Requirement) -> Reason:
    number = f"check {requirement.check}"
    if requirement.metric is not None:
        present = {
            name: value
            for name, value in requirement.number_conditions.items()
            if value is not None
        }
        measurement = Measurement(requirement.metric, 0.0, "", Subject("cluster", ""), present)
        number = f"{measurement_name(measurement)} by check {requirement.check}"
    of_run = (f"{name} {value}" for name, value in requirement.run_conditions.items())
    return Reason.of("requirement-not-measured", wanted=", ".join((number, *of_run)))


def _without_result(tried: _Tried, ended: Check | CheckResult) -> Reason:
    return Reason.of(
        "requirement-check-without-pass",
        check=tried.check.name,
        run=tried.run.result.run_id,
        verdict=ended.verdict.value,
        reason=ended.reason,
    )


def _missed(requirement: Requirement, worst: _Reading) -> Reason:
    unit = requirement.unit or ""
    limit = requirement.limit
    shown = quantity(float(worst.value), unit)
    bound = limit.at_least if limit.at_least is not None else limit.at_most
    if shown == quantity(bound, unit):  # three digits hide the difference
        shown = f"{float(worst.value):.12g} {unit}".strip()
    return Reason.of(
        "requirement-limit-missed",
        what=measurement_name(worst.measurement),
        measured=shown,
        limit=f"{limit.words} {unit}".strip(),
        run=worst.evidence.run_id,
    )
