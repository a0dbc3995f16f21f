"""The verdict of a run in a few lines: who and what against what, since when, and what to do about
each suspect. Pure.

Terminal, report, Slack and Prefect show these lines; run.json has them in `summary` and `next`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from seatrial.model.explanations import next_step_of
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, extended, join, parts_of, placed, unplaced
from seatrial.model.result import (
    SURE,
    Check,
    Judgement,
    NextStep,
    RunResult,
    Suspect,
    SuspectKind,
    merge_suspects,
    next_line,
    verdict_line,
)
from seatrial.model.verdict import Verdict, worst
from seatrial.text import words
from seatrial.text.hostlist import host_list

NO_NODE = "no single node explains it"
EARLIER_RUNS = 500  # at most so many are read for the line `since`
NO_HISTORY = "since: not known, without a history of runs"
MAX_STEPS = 5  # lines; run.json has the others
_NOT_TRIED = "prerequisite-failed"
_READ_THE_LOG = "Read `logs/run.log` of the run."


class EarlierRun(Protocol):
    """What the lines need of an earlier run of the same cluster and suite."""

    @property
    def run_id(self) -> str:
        """The id of the run."""

    @property
    def started(self) -> datetime:
        """The time when the run began."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the run."""


def conclude(checks: Sequence[Check], nodes: int = 1) -> tuple[Verdict, Reason]:
    """Return the run's verdict, the worst of its checks, and its reason: the suspects, or numbers
    and references.

    Suspects come before the checks that noticed them, and before a worse check that names none.
    Without one, the reason for several nodes says so. What is no fault of the cluster has
    no suspect.
    """
    verdict = worst(check.verdict for check in checks)
    if verdict is Verdict.PASS:
        names = ", ".join(check.name for check in checks)
        return verdict, Reason.of("all-pass", checks=names)
    bad = [check for check in checks if check.verdict is verdict]
    # A step that was not tried repeats the reason of the step before it.
    first_hand = [check for check in bad if check.reason.code != _NOT_TRIED] or bad
    if not first_hand:
        return verdict, Reason.of("nothing-measured")
    lead, *others = first_hand  # in the order of the run, so that the first is nearest the cause
    lead_reason = placed(lead.name, _against(lead.reason, [lead]))
    if not verdict.is_fault:
        code = lead.reason.code  # what hinders two steps is said once
        more = [check.name for check in others if not code or check.reason.code != code]
        return verdict, _also(lead_reason, more)
    if blame := _blame_in(checks, bad, lead_reason):
        return verdict, blame
    reason = _also(lead_reason, [check.name for check in others])
    if nodes > 1:
        reason = placed(NO_NODE, reason)
    return verdict, reason


def _blame_in(checks: Sequence[Check], bad: Sequence[Check], lead: Reason) -> Reason | None:
    """Return a reason with the suspects of the worst checks, else with those of milder checks and
    the reason of the worst; None without suspects.

    `bad` are the worst of `checks`, and `lead` is their reason.
    """
    faulty = [check for check in checks if check.verdict.is_fault]
    others = [check for check in faulty if check not in bad]
    own = _sure(merge_suspects(bad))
    milder = _sure(merge_suspects(others))
    if own:
        return _blame([*own, *milder], bad, [])
    if milder:
        return _blame(milder, faulty, [lead])
    return None


def _sure(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Return the suspects that are sure enough to be blamed, in their order."""
    return [suspect for suspect in suspects if suspect.confidence >= SURE]


def _blame(suspects: Sequence[Suspect], bad: Sequence[Check], worse: Sequence[Reason]) -> Reason:
    """Return the evidence against the first suspect, the names of the other suspects, and what is
    worse.

    `bad` are the checks whose numbers the evidence may name; a worse reason that says the same is
    left out.
    """
    lead = suspects[0]
    names: dict[SuspectKind, list[str]] = {}
    for suspect in suspects[1:]:
        if (suspect.kind, suspect.name) != (lead.kind, lead.name):
            names.setdefault(suspect.kind, []).append(suspect.name)
    sure = f"{words.fraction(lead.confidence)} sure"
    name = f"{words.suspect_name(lead)} ({sure})"
    others = [words.named(kind, host_list(of_kind)) for kind, of_kind in names.items()]
    evidence = _against(lead.evidence, bad)
    # A worse check may say just what the evidence says
    news = [reason for reason in worse if unplaced(reason) != evidence]
    return _also(placed(name, evidence), [*others, *news])


def _also(reason: Reason, others: Iterable[object]) -> Reason:
    """Append what else is bad to a reason: "; also node-3, storage". The same thing counts once."""
    names = ", ".join(dict.fromkeys(map(str, others)))
    if not names:
        return reason
    return extended(reason, f"; also {names}")


def _against(reason: Reason, checks: Iterable[Check]) -> Reason:
    """Return the first of joined reasons; for a number, its value, what it was compared with, and
    the difference.

    A number that was compared with nothing, or that is 0, keeps its reason.
    """
    first = parts_of(reason)[0]
    if not first:
        return first
    judgements = (judgement for check in checks for judgement in check.judgements)
    for judgement in judgements:
        if judgement.passed or parts_of(judgement.reason)[0] != first:
            continue
        if judgement.deviation is None or judgement.deviation <= -1:
            return first
        return Reason(first.code, first.values, compared(judgement))
    return first


def own_reason(check: Check, suspects: Iterable[Suspect]) -> str:
    """Return the check's reason with only the names of the run's suspects: their evidence is shown
    beside it.

    Other parts of the reason stay.
    """
    # Evidence does not say the place again that stands before a part
    parts = {part: unplaced(part) for part in parts_of(check.reason)}
    said = set(parts.values())
    evidence_of = {each.name: parts_of(each.evidence) for each in suspects}
    blamed = [name for name, evidence in evidence_of.items() if not said.isdisjoint(evidence)]
    if not blamed:
        return check.reason.sentence
    shown_beside = set().union(*evidence_of.values())
    rest = [part for part, alone in parts.items() if alone not in shown_beside]
    blames = Reason.of("nodes-blamed", nodes=host_list(blamed))
    return join((blames, *rest)).sentence


def compared(judgement: Judgement) -> str:
    """Format a judged number in short: "tcp_egress 23.7 MB/s on node-2, peers 995 MB/s (98 %
    less)".

    The deviation must be more than -1: the expected value is computed from it.
    """
    m = judgement.measurement
    deviation = judgement.deviation or 0.0
    centre = words.quantity(m.value / (1 + deviation), m.unit)
    known = {"history": "earlier runs", "physics": "links"}.get(judgement.source, judgement.source)
    off = words.percent(deviation).lstrip("+-")
    side = "more"
    if deviation < 0:
        side = "less"
    return f"{words.measured(m)}, {known} {centre} ({off} {side})"


def other_problems(measurements: Iterable[Measurement]) -> Reason:
    """Say what else is bad, by metric: "also matmul on node-[2-3], all_reduce busbw"; empty without
    any.

    A number of the cluster as a whole names no part.
    """
    subjects: dict[str, list[str]] = {}
    for m in measurements:
        number = f"{m.operation or ''} {m.metric}".strip()
        names = subjects.setdefault(number, [])
        if m.subject.kind != "cluster":
            names.append(m.subject.name)
    if not subjects:
        return Reason()
    parts = []
    for number, names in subjects.items():
        part = number
        if names:
            part += f" on {host_list(names)}"
        parts.append(part)
    return Reason.of("also-bad", others=", ".join(parts))


def since(
    verdict: Verdict, started: datetime, run_id: str, earlier: Sequence[EarlierRun], later: int = 0
) -> str:
    """Say since when the runs end like this; `earlier` are runs of the same cluster and suite, the
    newest first.

    `later` runs began after this one: a clock was set back, and nothing was compared with them. A
    run that could not measure leaves a fault, or a series of passes, as it was. Runs end alike if
    their exit statuses are equal.
    """
    if later:
        lie = "runs of this suite here lie"
        if later == 1:
            lie = "run of this suite here lies"
        return (
            f"{later} {lie} in the future of this run and were not compared with it: check "
            "this machine's clock"
        )
    if not earlier:
        return "since this run, the first of this suite here"
    # Back through the runs that ended alike, to the first that did not
    at = started
    first = run_id
    number = 1
    then = "or longer" if len(earlier) == EARLIER_RUNS else "never different before"
    for run in earlier:
        if run.verdict.exit_status == verdict.exit_status:
            at = run.started
            first = run.run_id
            number += 1
        elif run.verdict is Verdict.PASS:
            then = "passed before"
            break
        elif run.verdict.exit_status != Verdict.INCONCLUSIVE.exit_status:
            then = f"{run.verdict.value} before"
            break
    runs = ""
    if number > 1:
        runs = f", {words.count(number, 'run')}"
    return f"since {words.moment(at)} (run {first}{runs}), {then}"


def next_steps(result: RunResult) -> list[NextStep]:
    """Return the next step of each suspect in order of harm; without suspects, of each check that
    is no pass.

    A check adds none if the suspects are blamed for the same verdict or a worse one. Only a pass
    with all numbers compared has no next step.
    """
    if result.passed and result.coverage.extent == "all":
        return []
    if result.passed:
        return [_step_of("no-baseline")]
    suspects = _sure(result.suspects) or result.suspects
    blamed = [suspect.verdict.severity for suspect in result.suspects if suspect.verdict]
    worst_blamed = min(blamed, default=len(Verdict))
    codes = dict[str, None]()
    for check in result.checks:
        # Suspects speak for the checks that named them, and for milder ones
        if check.passed or check.suspects or check.verdict.severity >= worst_blamed:
            continue
        if code := _code_with_step(check.reason):
            codes[code] = None
    if not suspects and not codes and (code := _code_with_step(result.reason)):
        codes[code] = None
    steps = [*map(_step_of, codes), *map(_suspect_step, suspects)]
    return steps or [NextStep(_READ_THE_LOG)]


def _suspect_step(suspect: Suspect) -> NextStep:
    """Return the next step of a suspect: by its evidence, else to read the log."""
    step = NextStep(_READ_THE_LOG)
    if code := _code_with_step(suspect.evidence):
        step = _step_of(code)
    return replace(step, suspect=suspect.name)


def _step_of(code: str) -> NextStep:
    """Return the next step of a code; to read the log where the code has none."""
    return NextStep(next_step_of(code) or _READ_THE_LOG, code)


def _code_with_step(reason: Reason) -> str | None:
    """Return the first code of joined or placed reasons that has a next step; none for a step that
    was not tried.

    A reason's own code comes before those of its parts.
    """
    for code in (reason.code, *map(_code_with_step, reason.parts)):
        if code != _NOT_TRIED and next_step_of(code):
            return code
    return None


def next_lines(steps: Sequence[NextStep]) -> list[str]:
    """Return a line for each next step, suspects with the same one together; "next: nothing to do"
    without any.

    The first `MAX_STEPS`, and how many more there are.
    """
    if not steps:
        return ["next: nothing to do"]
    suspects: dict[NextStep, list[str]] = {}
    for step in steps:
        names = suspects.setdefault(replace(step, suspect=""), [])
        if step.suspect:
            names.append(step.suspect)
    lines = []
    for step, names in suspects.items():
        of_all = replace(step, suspect=host_list(names))
        lines.append(next_line(of_all))
    more = len(lines) - MAX_STEPS
    if more <= 0:
        return lines
    return [*lines[:MAX_STEPS], f"next: {more} more in `next` of run.json"]


def lines(result: RunResult) -> tuple[str, ...]:
    """Return the lines of the run: its verdict, since when, and a line for each next step.

    Made plain: they hold texts of nodes and logs.
    """
    line = verdict_line(result.verdict, result.coverage, result.reason)
    steps = next_lines(result.next_steps or next_steps(result))
    return tuple(map(words.plain, (line, result.since or NO_HISTORY, *steps)))
