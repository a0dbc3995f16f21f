"""The verdict of a run in a few lines: who and what against what, since when, and what to do about
each suspect. Pure.

Terminal, report, Slack and Prefect show these lines; run.json has them in `summary` and `next`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from seatrial.model.explanations import explanation_of
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, extended, join, parts_of, placed, uncoded, unplaced
from seatrial.model.result import (
    SURE,
    Check,
    Judgement,
    NextStep,
    RunResult,
    Suspect,
    merge_suspects,
    next_line,
    verdict_line,
)
from seatrial.model.verdict import Verdict, worst
from seatrial.text import words
from seatrial.text.hostlist import host_list

NO_NODE = "no single node explains it"
NO_HISTORY = "since: not known, without a history of runs"
MAX_STEPS = 5  # lines; run.json has the others
_NOT_TRIED = "prerequisite-failed"
_READ_THE_LOG = "Read `logs/run.log` of the run."


class EarlierRun(Protocol):
    """What the lines need of an earlier run of the same cluster and suite."""

    @property
    def run_id(self) -> str: ...
    @property
    def started(self) -> datetime: ...
    @property
    def verdict(self) -> Verdict: ...


def conclude(checks: Sequence[Check], nodes: int = 1) -> tuple[Verdict, Reason]:
    """Return the run's verdict, the worst of its checks, and its reason: the suspects, or numbers
    and references.

    Suspects come before the checks that noticed them, and before a worse check that names none.
    Without one, the reason for several nodes says so.
    """
    verdict = worst(check.verdict for check in checks)
    if verdict is Verdict.PASS:
        return verdict, uncoded(f"{', '.join(check.name for check in checks)}: all pass")
    bad = [check for check in checks if check.verdict is verdict]
    # A step that was not tried repeats the reason of the step before it.
    first_hand = [check for check in bad if check.reason.code != _NOT_TRIED] or bad
    if not first_hand:
        return verdict, Reason.of("nothing-measured")
    lead, *others = first_hand
    lead_reason = placed(lead.name, _against(lead.reason, [lead]))
    own = [suspect for suspect in merge_suspects(bad) if suspect.confidence >= SURE]
    faulty = [check for check in checks if check.verdict.is_fault]
    milder = merge_suspects(check for check in faulty if check not in bad)
    if verdict.is_fault and (suspects := [*own, *(s for s in milder if s.confidence >= SURE)]):
        return verdict, _blame(suspects, bad if own else faulty, [] if own else [lead_reason])
    cause = None if verdict.is_fault else lead.reason.code  # what hinders two steps is said once
    more = [check.name for check in others if not cause or check.reason.code != cause]
    reason = _also(lead_reason, more)
    return verdict, placed(NO_NODE, reason) if verdict.is_fault and nodes > 1 else reason


def _blame(suspects: Sequence[Suspect], bad: Sequence[Check], worse: Sequence[Reason]) -> Reason:
    lead, *others = suspects
    others = [
        suspect for suspect in others if (suspect.kind, suspect.name) != (lead.kind, lead.name)
    ]
    name = f"{words.suspect_name(lead)} ({words.fraction(lead.confidence)} sure)"
    kinds = dict.fromkeys(suspect.kind for suspect in others)
    names = {kind: [suspect.name for suspect in others if suspect.kind == kind] for kind in kinds}
    more = (words.named(kind, host_list(of_kind)) for kind, of_kind in names.items())
    return _also(placed(name, _against(lead.evidence, bad)), [*more, *worse])


def _also(reason: Reason, others: Iterable[object]) -> Reason:
    names = ", ".join(dict.fromkeys(map(str, others)))
    return extended(reason, f"; also {names}" if names else "")


def _against(reason: Reason, checks: Iterable[Check]) -> Reason:
    """Return the first of joined reasons; that of a number as value, what it was compared with, and
    the difference.
    """
    first = parts_of(reason)[0]
    bad = (j for check in checks for j in check.judgements if not j.passed)
    judgement = next((j for j in bad if first and parts_of(j.reason)[0] == first), None)
    if judgement is None or judgement.deviation is None or judgement.deviation <= -1:
        return first
    return Reason(first.code, first.values, compared(judgement))


def own_reason(check: Check, suspects: Iterable[Suspect]) -> str:
    """Return the check's reason; of the run's suspects only the names, since their evidence is
    shown beside them.
    """
    parts = {part: unplaced(part) for part in parts_of(check.reason)}
    evidence_of = {each.name: parts_of(each.evidence) for each in suspects}
    blamed = [
        name for name, evidence in evidence_of.items() if not {*parts.values()}.isdisjoint(evidence)
    ]
    rest = [
        part
        for part, alone in parts.items()
        if not any(alone in evidence for evidence in evidence_of.values())
    ]
    return (
        join((uncoded(f"blames {host_list(blamed)}"), *rest)).sentence
        if blamed
        else check.reason.sentence
    )


def compared(judgement: Judgement) -> str:
    """Format a judged number in short: "tcp_egress 23.7 MB/s on node-2, peers 995 MB/s (98 %
    less)".
    """
    m, deviation = judgement.measurement, judgement.deviation or 0.0
    centre = words.quantity(m.value / (1 + deviation), m.unit)
    known = {"history": "earlier runs", "physics": "links"}.get(judgement.source, judgement.source)
    off = words.percent(deviation).lstrip("+-")
    return f"{words.measured(m)}, {known} {centre} ({off} {'less' if deviation < 0 else 'more'})"


def other_problems(measurements: Iterable[Measurement]) -> Reason:
    """Say what else is bad, by metric: "also matmul on node-[2-3], all_reduce busbw"; empty without
    any.
    """
    subjects: dict[str, list[str]] = {}
    for m in measurements:
        name = f"{m.operation or ''} {m.metric}".strip()
        subjects.setdefault(name, []).extend(
            () if m.subject.kind == "cluster" else (m.subject.name,)
        )
    parts = [f"{name} on {host_list(on)}" if on else name for name, on in subjects.items()]
    return uncoded(f"also {', '.join(parts)}" if parts else "")


def since(
    verdict: Verdict, started: datetime, run_id: str, earlier: Sequence[EarlierRun], later: int = 0
) -> str:
    """Say since when the runs end like this; `earlier` are runs of the same cluster and suite, the
    newest first.

    `later` runs began after this one: a clock was set back, and nothing was compared with them.

    A run that could not measure leaves a fault, or a series of passes, as it was.
    """
    if later:
        lie = "run of this suite here lies" if later == 1 else "runs of this suite here lie"
        return (
            f"{later} {lie} in the future of this run and were not compared with it: check "
            "this machine's clock"
        )
    if not earlier:
        return "since this run, the first of this suite here"
    streak = [(started, run_id)]
    before: Verdict | None = None
    for run in earlier:
        if run.verdict.exit_status == verdict.exit_status:
            streak.append((run.started, run.run_id))
        elif run.verdict.exit_status != Verdict.INCONCLUSIVE.exit_status:
            before = run.verdict
            break
    at, first = streak[-1]
    runs = f", {words.count(len(streak), 'run')}" if len(streak) > 1 else ""
    then = f"{before.value} before" if before else "never different before"
    return (
        f"since {words.moment(at)} (run {first}{runs}), "
        f"{'passed before' if before is Verdict.PASS else then}"
    )


def next_steps(result: RunResult) -> list[NextStep]:
    """Return the next step of each suspect in order of harm; without suspects, of each check that
    is no pass.
    """
    if result.passed:
        return [] if result.coverage.extent == "all" else [_step_of("no-baseline")]
    sure = [suspect for suspect in result.suspects if suspect.confidence >= SURE]
    suspects = [_suspect_step(suspect) for suspect in sure or result.suspects]
    blameless = [check for check in result.checks if not check.passed and not check.suspects]
    worst_blamed = min(
        (s.verdict.severity for s in result.suspects if s.verdict), default=len(Verdict)
    )
    worse = [check for check in blameless if check.verdict.severity < worst_blamed]
    codes = dict.fromkeys(code for check in worse if (code := _code_with_step(check.reason)))
    if not suspects and not codes:
        codes = dict.fromkeys(code for code in (_code_with_step(result.reason),) if code)
    steps = [*map(_step_of, codes), *suspects]
    return steps or [NextStep(_READ_THE_LOG)]


def _suspect_step(suspect: Suspect) -> NextStep:
    code = _code_with_step(suspect.evidence)
    step = _step_of(code) if code else NextStep(_READ_THE_LOG)
    return replace(step, suspect=suspect.name)


def _step_of(code: str) -> NextStep:
    entry = explanation_of(code)
    return NextStep(entry.next_step if entry and entry.next_step else _READ_THE_LOG, code)


def _code_with_step(reason: Reason) -> str | None:
    """Return the first code of joined or placed reasons that has a next step; none for a step that
    was not tried.
    """
    for code in (reason.code, *map(_code_with_step, reason.parts)):
        entry = explanation_of(code) if code and code != _NOT_TRIED else None
        if entry and entry.next_step:
            return code
    return None


def next_lines(steps: Sequence[NextStep]) -> list[str]:
    """Return a line for each next step, suspects with the same one together; "next: nothing to do"
    without any.
    """
    if not steps:
        return ["next: nothing to do"]
    suspects: dict[NextStep, list[str]] = {}
    for step in steps:
        suspects.setdefault(replace(step, suspect=""), []).append(step.suspect)
    joined = [
        replace(step, suspect=host_list(name for name in names if name))
        for step, names in suspects.items()
    ]
    lines = [next_line(step) for step in joined[:MAX_STEPS]]
    more = len(joined) - MAX_STEPS
    return [*lines, f"next: {more} more in `next` of run.json"] if more > 0 else lines


def lines(result: RunResult) -> tuple[str, ...]:
    """Return the lines of the run: its verdict, since when, and a line for each next step."""
    line = verdict_line(result.verdict, result.coverage, result.reason)
    steps = next_lines(result.next_steps or next_steps(result))
    return tuple(map(words.plain, (line, result.since or NO_HISTORY, *steps)))
