"""Read a finished run back from what it wrote: run.json, and measurements.csv where it lies beside
it.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from seatrial.model.errors import InputError, os_errors_named
from seatrial.model.measurement import ConditionValue, Measurement, Subject, SubjectKind
from seatrial.model.reason import CODE, MAX_CODE, MAX_TEXT, Reason
from seatrial.model.result import (
    SCHEMA,
    Check,
    CheckResult,
    Expected,
    Judgement,
    NextStep,
    RunResult,
    Suspect,
    SuspectKind,
)
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.runs.measurements_file import MAX_BYTES, read_measurements
from seatrial.system.private import read_opener

MAX_VALUES = 8_000_000  # objects, lists and their items: bounds the memory that a file takes
MAX_NAME = 1000  # characters
MAX_NODES = 10_000
MAX_TESTS = 100_000  # of the localisation
# None in older files
Code = Annotated[str, Field(pattern=CODE, max_length=MAX_CODE)] | None


def _at_most(characters: int) -> AfterValidator:
    """Return a validator that limits a text's length.

    Pydantic's own refuses texts that are no UTF-8, such as file names.
    """

    def bounded(text: str) -> str:
        if len(text) > characters:
            raise PydanticCustomError(
                "too_long", f"must have at most {characters:,} characters, has {len(text):,}"
            )
        return text

    return AfterValidator(bounded)


Text = Annotated[str, _at_most(MAX_TEXT)]
Name = Annotated[str, _at_most(MAX_NAME)]
Values = Annotated[dict[Name, Text | int | float], Field(max_length=100)]


class _Model(BaseModel):
    """A part of run.json. Its numbers are finite: Python reads NaN and infinity, which JSON
    lacks.
    """

    model_config = ConfigDict(allow_inf_nan=False)


class _Subject(_Model):
    kind: SubjectKind
    name: Name


class _Reason(_Model):
    """A reason; files of earlier versions hold no values or parts, and some no code."""

    code: Code = None
    values: Values = {}
    reason: Text
    parts: list[Any] = []

    @property
    def recorded(self) -> Reason:
        return Reason.from_dict(vars(self))


class _VerdictWithReason(_Reason):
    """A verdict and why."""

    verdict: Verdict


class _Judgement(_VerdictWithReason):
    metric: Name
    subject: _Subject
    conditions: Annotated[dict[Name, ConditionValue], Field(max_length=100)] = {}
    value: float | None
    unit: Name
    repeats: Annotated[list[float | None], Field(max_length=1000)] = []
    expected: Expected = Expected()
    source: Text
    deviation: float | None = None
    share: float | None = None

    def to_judgement(self) -> Judgement:
        return Judgement(
            measurement=Measurement(
                metric=self.metric,
                value=_number(self.value),
                unit=self.unit,
                subject=Subject(self.subject.kind, self.subject.name),
                conditions=self.conditions,
            ),
            verdict=self.verdict,
            reason=self.recorded,
            source=self.source,
            expected=self.expected,
            deviation=self.deviation,
            repeats=tuple(_number(value) for value in self.repeats),
            share=self.share,
        )


def _number(value: float | None) -> float:
    """Read null as NaN, which JSON lacks."""
    return float("nan") if value is None else value


class _Suspect(_Reason):
    kind: SuspectKind
    name: Name
    confidence: float
    reason: Text = Field(alias="evidence")
    verdict: Verdict | None = None  # not in files of earlier versions

    def to_suspect(self) -> Suspect:
        return Suspect(
            kind=self.kind,
            name=self.name,
            confidence=self.confidence,
            evidence=self.recorded,
            verdict=self.verdict,
        )


class _NextStep(_Model):
    suspect: Name | None = None
    code: Code = None
    step: Text


class _CheckResult(_VerdictWithReason):
    suspects: list[_Suspect] = []

    def to_check_result(self) -> CheckResult:
        return CheckResult(
            self.verdict, self.recorded, tuple(suspect.to_suspect() for suspect in self.suspects)
        )


class _Check(_VerdictWithReason):
    name: Name
    seconds: float = 0.0
    found: _CheckResult | None = None
    judgements: list[_Judgement] = []

    def to_check(self, measurements: tuple[Measurement, ...]) -> Check:
        judgements = tuple(j.to_judgement() for j in self.judgements)
        check_result = self.found.to_check_result() if self.found else None
        return Check(
            name=self.name,
            verdict=self.verdict,
            reason=self.recorded,
            seconds=self.seconds,
            measurements=measurements,
            judgements=judgements,
            raw_result=check_result,
        )


def _writable(name: str) -> str:
    """Check that the text is UTF-8: a run id and the name of a cluster become names of files."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise PydanticCustomError("encoding", "must be text that UTF-8 has") from error
    return name


_Name = Annotated[Name, AfterValidator(_writable)]


def _within_years(time: datetime) -> datetime:
    """Check the years: a clock that was never set says 1970, and times far from any run's
    overflow.
    """
    if not 1970 <= time.year <= 2999:
        raise PydanticCustomError("year", f"must be of a year from 1970 to 2999, is of {time.year}")
    return time


_Time = Annotated[AwareDatetime, AfterValidator(_within_years)]


def _measurable(setup: Setup) -> Setup:
    """Check that there are nodes and ranks: limits are computed from their numbers."""
    for name in ("nodes", "slots_per_node"):
        if getattr(setup, name) < 1:
            raise PydanticCustomError(
                "setup", f"{name} must be at least 1, is {getattr(setup, name)}"
            )
    return setup


class _OpenModel(_Model):
    """A part of the localisation, whose other fields are kept as they are."""

    model_config = ConfigDict(extra="allow")


class _GroupTest(_OpenModel):
    nodes: Annotated[list[Name], Field(max_length=MAX_NODES)]
    ratio: float | None = None
    slow: bool = False
    busbw_gb_s: float | None = None


class _Finding(_OpenModel):
    kind: Name
    sides: Annotated[list[list[Name]], Field(max_length=MAX_NODES)] = []


class _Localization(_OpenModel):
    findings: Annotated[list[_Finding], Field(max_length=1000)] = []
    tests: Annotated[list[_GroupTest], Field(max_length=MAX_TESTS)] = []


class _RunDocument(_VerdictWithReason):
    run_id: _Name
    cluster: _Name
    suite: Name
    started: _Time
    finished: _Time
    nodes: Annotated[list[dict[Name, JsonValue]], Field(max_length=MAX_NODES)] = []
    checks: Annotated[list[_Check], Field(max_length=1000)] = []
    suspects: list[_Suspect] = []
    localization: _Localization | None = None
    fingerprint: Annotated[dict[Name, Name | None], Field(max_length=1000)] = {}
    setup: Annotated[Setup, AfterValidator(_measurable)] | None = None
    timings: Annotated[dict[Name, float], Field(max_length=1000)] = {}
    notes: Annotated[list[Text], Field(max_length=MAX_NODES)] = []
    summary: Annotated[list[Text], Field(min_length=3, max_length=3)] = ["", "", ""]
    # Not in files of earlier versions, whose third line of `summary` is all of it
    next: list[_NextStep] = []


def load_result(path: Path) -> RunResult:
    """Return the result in `path`, a run.json or the folder of a run; with measurements.csv beside
    it, samples and all.

    Raises InputError with one line that names file, field and next step.
    """
    file = path / "run.json" if path.is_dir() else path
    run = _validate(file, _read_document(file))
    measured = read_measurements(file.with_name("measurements.csv"), run.run_id)
    return RunResult(
        run_id=run.run_id,
        cluster=run.cluster,
        suite=run.suite,
        started=run.started,
        finished=run.finished,
        verdict=run.verdict,
        reason=run.recorded,
        nodes=run.nodes,
        checks=[check.to_check(tuple(measured.get(check.name, ()))) for check in run.checks],
        suspects=[suspect.to_suspect() for suspect in run.suspects],
        fingerprint={name: version or "" for name, version in run.fingerprint.items()},
        timings=run.timings,
        setup=run.setup,
        localization=run.localization.model_dump() if run.localization else None,
        notes=tuple(run.notes),
        since=run.summary[1],
        next_steps=_next_steps(run),
    )


def _next_steps(run: _RunDocument) -> tuple[NextStep, ...]:
    if run.next:
        return tuple(NextStep(each.step, each.code, each.suspect or "") for each in run.next)
    line = run.summary[2].removeprefix("next: ")
    return (NextStep(line),) if line else ()


def _read_document(file: Path) -> dict[str, Any]:
    with os_errors_named(f"{file}: cannot be read"):
        try:
            with open(file, "rb", opener=read_opener) as content:
                raw = content.read(MAX_BYTES + 1)
        except FileNotFoundError as error:
            raise InputError(
                f"{file}: is not there; name a run's folder or its run.json"
            ) from error
    if len(raw) > MAX_BYTES:
        raise InputError(f"{file}: is larger than {MAX_BYTES:,} bytes, so it is no run.json")
    if sum(raw.count(mark) for mark in (b"{", b"[", b",")) > MAX_VALUES:
        raise InputError(f"{file}: has more than {MAX_VALUES:,} values, so it is no run.json")
    try:
        document = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: is not JSON: {str(error).splitlines()[0]}") from error
    if not isinstance(document, dict):
        raise InputError(
            f"{file}: must be an object as `seatrial run` writes it, is a {type(document).__name__}"
        )
    return document


def _validate(file: Path, document: dict[str, Any]) -> _RunDocument:
    if "schema" not in document:
        raise InputError(f"{file}: schema: is missing, so it is not the run.json of a run")
    if document["schema"] != SCHEMA:
        raise InputError(
            f"{file}: schema: is {document['schema']!r}, this seatrial reads {SCHEMA}; "
            "use the one that wrote it"
        )
    try:
        return _RunDocument.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"]
        raise InputError(f"{file}: {field}: {message[:1].lower()}{message[1:]}") from error
