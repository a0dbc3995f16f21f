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
    """The verdict on a requirement, or on all of them.

    Not shown: nothing was measured that proves it or the opposite. Excepted: not met or not shown,
    with an exception that is still valid.
    """

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

    `found` is the verdict before the exception, `numbers` how many values were compared. `evidence`
    is where the worst value stands, None if nothing was measured; `waiver` is the exception, also
    one that was not needed or has ended.
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
    """Check one requirement by the runs, then apply the exception if it is still valid.

    `issued` is the day of the certificate; an exception holds until the end of its last day.
    """
    tried = list(_tried(requirement, runs))
    decided = _by_verdict if requirement.limit.equals else _by_numbers
    outcome = decided(requirement, tried)
    if waiver is None:
        return outcome
    verdict = outcome.verdict
    if verdict is not Status.MET and issued <= waiver.until:
        verdict = Status.EXCEPTED
    return replace(outcome, verdict=verdict, waiver=waiver)


def overall(outcomes: Sequence[Outcome]) -> Status:
    """Return the verdict on all requirements: met only if each is met or excepted.

    Without requirements nothing is shown.
    """
    verdicts = {outcome.verdict for outcome in outcomes}
    if Status.NOT_MET in verdicts:
        return Status.NOT_MET
    if Status.NOT_SHOWN in verdicts or not verdicts:
        return Status.NOT_SHOWN
    return Status.MET


def _tried(requirement: Requirement, runs: Sequence[EvidenceRun]) -> Iterator[_Tried]:
    """Yield the checks of that name in the runs whose conditions match.

    A run that does not know its hardware matches no hardware by name.
    """
    for run in runs:
        result = run.result
        facts = {
            "nodes": len(result.nodes),
            "hardware": result.setup.hardware if result.setup else None,
            "suite": whole_name(result.suite),
            "cluster": result.cluster,
        }
        if any(facts[name] != value for name, value in requirement.run_conditions.items()):
            continue
        for index, check in enumerate(result.checks):
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
    gap = next(filter(None, map(_gap_of_verdict, tried)), None)
    status = Status.MET
    reason = Reason()
    if verdict.is_fault:
        status = Status.NOT_MET
        reason = _without_result(worst, worst.check)
    elif gap:
        status = Status.NOT_SHOWN
        reason = gap
    run = worst.run
    evidence = Evidence(
        run.result.run_id, run.file, f"{worst.place}/verdict", "", verdict.value, ""
    )
    return Outcome(requirement, status, status, reason, verdict.value, len(tried), evidence)


def _gap_of_verdict(tried: _Tried) -> Reason | None:
    """Return why the verdict of a check shows nothing: it has no result, compared too little, or
    left parts of the run out; None if it does.
    """
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
        is_whole = "ranks" not in requirement.conditions  # else fewer parts may be required
        if missing := _parts_missing(each.run.result, measurements, whole=is_whole):
            gaps.append(missing)
        readings += matching
    if not readings:
        return _not_shown(requirement, gaps[0] if gaps else _not_measured(requirement))
    lowest_first = sorted(readings, key=lambda reading: reading.value)
    worst = lowest_first[-1]
    if requirement.limit.at_least is not None:
        worst = lowest_first[0]
    status = Status.MET
    reason = Reason()
    if not requirement.limit.is_met_by(worst.value):
        status = Status.NOT_MET
        unit = requirement.unit or ""
        limit = requirement.limit
        shown = quantity(float(worst.value), unit)
        bound = limit.at_least if limit.at_least is not None else limit.at_most
        if shown == quantity(bound, unit):  # three digits hide the difference
            shown = f"{float(worst.value):.12g} {unit}".strip()
        reason = Reason.of(
            "requirement-limit-missed",
            what=measurement_name(worst.measurement),
            measured=shown,
            limit=f"{limit.words} {unit}".strip(),
            run=worst.evidence.run_id,
        )
    elif gaps:
        status = Status.NOT_SHOWN
        reason = gaps[0]
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
            unusable = Reason.of(
                "requirement-number-unusable",
                what=measurement_name(m),
                unit=m.unit,
                run=run.result.run_id,
            )
            gaps.append(unusable)
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
    """Return whether the value is not a number, or was not measured properly.

    One that is beyond what the hardware can do is no proof of anything.
    """
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
    """Return the nodes and GPUs of the run that are not among the subjects, if there are subjects
    of that kind.
    """
    measured = {node for subject in subjects for node in subject.nodes}
    if not measured:
        return []
    gpus = Counter(subject.nodes[0] for subject in subjects if subject.kind == "gpu")
    missing = []
    for node in result.nodes:
        name = str(node.get("name"))
        count = node.get("gpus")
        if name not in measured:
            missing.append(name)
        elif gpus and isinstance(count, int) and gpus[name] < count:
            missing.append(f"{words.count(count - gpus[name], 'GPU')} of {name}")
    return missing


def _not_shown(requirement: Requirement, reason: Reason) -> Outcome:
    return Outcome(requirement, Status.NOT_SHOWN, Status.NOT_SHOWN, reason)


def _not_measured(requirement: Requirement) -> Reason:
    """Return the reason that no run has what is required, with the conditions that it must meet."""
    number = f"check {requirement.check}"
    if requirement.metric is not None:
        conditions = requirement.number_conditions.items()
        present = {name: value for name, value in conditions if value is not None}
        measurement = Measurement(requirement.metric, 0.0, "", Subject("cluster", ""), present)
        number = f"{measurement_name(measurement)} by check {requirement.check}"
    of_run = (f"{name} {value}" for name, value in requirement.run_conditions.items())
    return Reason.of("requirement-not-measured", wanted=", ".join((number, *of_run)))


def _without_result(tried: _Tried, ended: Check | CheckResult) -> Reason:
    """Return how the check ended, which is no proof; `ended` is the check, or what it said of
    itself.
    """
    return Reason.of(
        "requirement-check-without-pass",
        check=tried.check.name,
        run=tried.run.result.run_id,
        verdict=ended.verdict.value,
        reason=ended.reason,
    )
