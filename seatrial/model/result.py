"""The result of a run: judgements, checks, suspects and the document `run.json` (schema 1)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from seatrial.model.measurement import Measurement, finite
from seatrial.model.reason import Reason, join
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

Document = dict[str, Any]  # of run.json, or a part of it
SCHEMA = 1

Extent = Literal["none", "some", "all"]
SURE = 0.5  # a suspect of less confidence is more likely innocent than not
SuspectKind = Literal["node", "gpu", "rail", "link", "switch"]


@dataclass(frozen=True, slots=True)
class Coverage:
    """`judged` of `numbers` series were compared with a baseline.

    `without_baseline` names what was measured and compared in no size and on no node: "collectives:
    all_reduce".
    """

    judged: int
    numbers: int
    without_baseline: tuple[str, ...]

    @property
    def extent(self) -> Extent | None:
        """`all` if each operation or metric was compared at some size; None if nothing was
        measured.
        """
        if not self.numbers:
            return None
        if not self.judged:
            return "none"
        return "some" if self.without_baseline else "all"

    @property
    def words(self) -> str:
        """The words beside a pass; empty if everything was compared."""
        if self.extent == "all":
            return ""
        return f"no baseline yet: {self.judged:,} of {self.numbers:,} numbers compared"

    def to_dict(self) -> Document:
        return {
            "judged": self.judged,
            "measured": self.numbers,
            "without_baseline": list(self.without_baseline),
        }


@dataclass(frozen=True, slots=True)
class Expected:
    """The interval a value should fall in, in the measurement's unit; None leaves that side
    open.
    """

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A measurement compared with its baselines.

    `source` names the baseline (catalog, pinned, history, peers, physics, sanity); `deviation` is
    value over centre of the baseline minus one, so -0.9 reads "90 % below". `repeats` are the
    repeated values, in order, whose median is the measurement's value; empty if it was measured
    once. `share` is a plateau as a fraction of what the links allow.
    """

    measurement: Measurement
    verdict: Verdict
    reason: Reason
    source: str
    expected: Expected = Expected()
    deviation: float | None = None
    repeats: tuple[float, ...] = ()
    share: float | None = None

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    @property
    def compared(self) -> bool:
        """Whether the number was compared with a bound, and does not pass only for being finite and
        positive.
        """
        return (
            self.source != "sanity"
            or self.verdict is not Verdict.PASS
            or self.expected != Expected()
        )

    def to_dict(self) -> Document:
        m = self.measurement
        return {
            "metric": m.metric,
            "subject": {"kind": m.subject.kind, "name": m.subject.name},
            "conditions": dict(m.conditions),
            "value": finite(m.value),
            "unit": m.unit,
            "repeats": [finite(value) for value in self.repeats],
            "expected": {"low": finite(self.expected.low), "high": finite(self.expected.high)},
            "source": self.source,
            "deviation": finite(self.deviation),
            "share": finite(self.share),
            **_outcome(self.verdict, self.reason),
        }


@dataclass(frozen=True, slots=True)
class Suspect:
    """A part that is suspected; `confidence` is 0..1, `evidence` a sentence that can be checked.

    `verdict` is what the part is blamed for; None where that is the verdict of the check.
    """

    kind: SuspectKind
    name: str
    confidence: float
    evidence: Reason
    verdict: Verdict | None = None

    @property
    def nodes(self) -> list[str]:
        """The nodes of the suspect: itself, the node that it is part of, or both ends of a link.

        A switch has its own name here.
        """
        ends = self.name.split("--") if self.kind == "link" else [self.name]
        return [end.partition("/")[0] for end in ends]

    def to_dict(self) -> Document:
        return {
            "kind": self.kind,
            "name": self.name,
            "confidence": self.confidence,
            "verdict": self.verdict.value if self.verdict else None,
            **self.evidence.to_dict("evidence"),
        }


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do about a suspect, or about the run where `suspect` is empty; `seatrial explain
    CODE` says more.
    """

    step: str
    code: str | None = None
    suspect: str = ""

    def to_dict(self) -> Document:
        return {"suspect": self.suspect or None, "code": self.code, "step": self.step}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check itself, before its numbers are judged."""

    verdict: Verdict
    reason: Reason
    suspects: tuple[Suspect, ...] = ()

    def to_dict(self) -> Document:
        return {
            **_outcome(self.verdict, self.reason),
            "suspects": [suspect.to_dict() for suspect in self.suspects],
        }


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a run, with its measurements and their judgements.

    `raw_result` is the check's own result; it is set once the numbers have been judged, and
    verdict, reason and suspects then follow from both.
    """

    name: str
    verdict: Verdict
    reason: Reason
    seconds: float = 0.0
    measurements: tuple[Measurement, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    raw_result: CheckResult | None = None

    @property
    def raw(self) -> CheckResult:
        """The result of the check itself, before its numbers were judged."""
        return self.raw_result or CheckResult(self.verdict, self.reason, self.suspects)

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    @property
    def coverage(self) -> Coverage:
        return coverage([self])

    def unjudged(self) -> "Check":
        """Return the check as it was before its numbers were judged."""
        own = self.raw
        return Check(
            self.name,
            own.verdict,
            own.reason,
            self.seconds,
            self.measurements,
            suspects=own.suspects,
        )

    def summary(self) -> Document:
        """Return `to_dict` without the judgements."""
        return {
            "name": self.name,
            **_outcome(self.verdict, self.reason),
            "seconds": round(self.seconds, 3),
            "found": self.raw.to_dict(),
        }

    def to_dict(self) -> Document:
        return {
            **self.summary(),
            "judged": self.coverage.extent,
            "judgements": [j.to_dict() for j in self.judgements],
        }


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run; `to_dict` is `run.json`."""

    run_id: str
    cluster: str
    suite: str
    started: datetime
    finished: datetime
    verdict: Verdict
    reason: Reason
    nodes: Sequence[Mapping[str, Any]] = ()
    checks: Sequence[Check] = ()
    suspects: Sequence[Suspect] = ()
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    # What people should know besides: where its files are, that its nodes are still up
    notes: Sequence[str] = ()
    setup: Setup | None = None  # the cluster's facts that numbers are compared with
    # As run.json has it: findings and tests of groups of nodes
    localization: Mapping[str, Any] | None = None
    folder: Path | None = None  # of the run's files; set by the flow that returns the result
    since: str = ""  # second line of the summary (seatrial/text/headline.py)
    next_steps: Sequence[NextStep] = ()  # in order of harm

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    @property
    def seconds(self) -> float:
        return (self.finished - self.started).total_seconds()

    @property
    def coverage(self) -> Coverage:
        return coverage(self.checks)

    def to_dict(self) -> Document:
        compared = self.coverage
        return {
            "schema": SCHEMA,
            "run_id": self.run_id,
            "cluster": self.cluster,
            "suite": self.suite,
            "started": self.started.isoformat(timespec="seconds"),
            "finished": self.finished.isoformat(timespec="seconds"),
            **_outcome(self.verdict, self.reason),
            "summary": [
                verdict_line(self.verdict, compared, self.reason),
                self.since,
                next_line(self.next_steps[0]) if self.next_steps else "",
            ],
            "next": [step.to_dict() for step in self.next_steps],
            "judged": compared.extent or "none",
            "numbers": compared.to_dict(),
            "nodes": [dict(node) for node in self.nodes],
            "checks": [check.to_dict() for check in self.checks],
            "suspects": [suspect.to_dict() for suspect in self.suspects],
            "localization": self.localization,
            "fingerprint": dict(self.fingerprint),
            "setup": asdict(self.setup) if self.setup else None,
            "timings": {step: round(seconds, 3) for step, seconds in self.timings.items()},
            "notes": list(self.notes),
        }


def _outcome(verdict: Verdict, reason: Reason) -> Document:
    return {"verdict": verdict.value, **reason.to_dict()}


def verdict_line(verdict: Verdict, coverage: Coverage, reason: Reason) -> str:
    """Format `verdict: reason`; a pass without all baselines: "pass (no baseline yet: 3 of 49
    numbers compared)".
    """
    extent = f" ({coverage.words})" if verdict is Verdict.PASS and coverage.words else ""
    return f"{verdict.value}{extent}: {reason}"


def next_line(step: NextStep) -> str:
    """Return the line of a next step: "next: node-2: Check its cable; seatrial explain
    tcp-node-slow".
    """
    parts = ("next", step.suspect, step.step.rstrip("."))
    line = ": ".join(part for part in parts if part)
    return f"{line}; seatrial explain {step.code}" if step.code else line


def coverage(checks: Iterable[Check]) -> Coverage:
    """Count the series that were compared with a baseline; being finite and positive is no
    comparison.

    A series counts once, whatever its repeats and baselines.
    """
    compared: dict[tuple[str, str], bool] = {}
    by_metric: dict[str, bool] = {}
    for check in checks:
        for judgement in check.judgements:
            m = judgement.measurement
            series = (check.name, m.series())
            metric = f"{check.name}: {m.operation or m.metric}"
            compared[series] = compared.get(series, False) or judgement.compared
            by_metric[metric] = by_metric.get(metric, False) or judgement.compared
    open_metrics = tuple(metric for metric, judged in by_metric.items() if not judged)
    return Coverage(sum(compared.values()), len(compared), open_metrics)


def exit_status(verdict: Verdict, coverage: Coverage, require_baseline: bool) -> int:
    """Return the exit status of the verdict; 3 for a pass with numbers without a baseline, if one
    is required.
    """
    if require_baseline and verdict is Verdict.PASS and coverage.extent != "all":
        return Verdict.INCONCLUSIVE.exit_status
    return verdict.exit_status


def merge_suspects(checks: Iterable[Check]) -> list[Suspect]:
    """Merge the suspects of each subject over all checks, with the highest confidence and all
    evidence, the worst first.

    Sure suspects come first; among them, those blamed for the worst verdict.
    """
    blamed = [
        replace(suspect, verdict=suspect.verdict or check.verdict)
        for check in sorted(checks, key=lambda check: check.verdict.severity)
        for suspect in check.suspects
    ]
    merged: dict[tuple[str, str], Suspect] = {}
    for suspect in sorted(blamed, key=_harm):
        known = merged.setdefault((suspect.kind, suspect.name), suspect)
        if known is not suspect:
            merged[suspect.kind, suspect.name] = replace(
                known,
                confidence=max(known.confidence, suspect.confidence),
                evidence=join((known.evidence, suspect.evidence)),
            )
    return sorted(
        merged.values(), key=lambda s: (-min(s.confidence, SURE), _harm(s), -s.confidence)
    )


def _harm(suspect: Suspect) -> int:
    """Return a sort key: 0 for a suspect that is blamed for the worst verdict."""
    return (suspect.verdict or Verdict.FAIL).severity


def now() -> datetime:
    """Return the present, in UTC, as run.json carries it."""
    return datetime.now(UTC)
