"""The verdict of a run in three lines: who and what against what, since when, and what to do. Pure.

Terminal, report, Slack, Prefect and `summary` of run.json show these lines.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, code_of, explanation_of, extended, parts_of, placed, recorded
from seatrial.model.result import SURE, UNJUDGED, Check, Judgement, RunResult, Suspect, merge_suspects, verdict_line
from seatrial.model.verdict import Verdict, worst
from seatrial.text import words
from seatrial.text.hostlist import host_list

NO_NODE = "no single node explains it"
NO_HISTORY = "since: not known, without a history of runs"
_NOT_TRIED = "prerequisite-failed"


class EarlierRun(Protocol):
    """What the lines need of an earlier run of the same cluster and suite."""

    @property
    def run_id(self) -> str: ...
    @property
    def started(self) -> datetime: ...
    @property
    def verdict(self) -> Verdict: ...


def conclude(checks: Sequence[Check], nodes: int = 1) -> tuple[Verdict, str]:
    """Return the run's verdict, the worst of its checks, and its reason: the suspects, or numbers and references.

    Suspects come before the checks that noticed them, and before a worse check that names none. Without one, the reason
    for several nodes says so.
    """
    verdict = worst(check.verdict for check in checks)
    if verdict is Verdict.PASS:
        return verdict, f"{', '.join(check.name for check in checks)}: all pass"
    bad = [check for check in checks if check.verdict is verdict]
    # A step that was not tried repeats the reason of the step before it.
    first_hand = [check for check in bad if code_of(check.reason) != _NOT_TRIED] or bad
    if not first_hand:
        return verdict, Reason.of("nothing-measured")
    lead, *others = first_hand
    own = [suspect for suspect in merge_suspects(bad) if suspect.confidence >= SURE]
    faulty = [check for check in checks if check.verdict.is_fault]
    milder = merge_suspects(check for check in faulty if check not in bad)
    if verdict.is_fault and (suspects := [*own, *(s for s in milder if s.confidence >= SURE)]):
        worse = [] if own else [placed(lead.name, _against(lead.reason, [lead]))]
        return verdict, _blame(suspects, bad if own else faulty, worse)
    cause = None if verdict.is_fault else code_of(lead.reason)  # what hinders two steps is said once
    more = [check.name for check in others if not cause or code_of(check.reason) != cause]
    reason = _also(placed(lead.name, _against(lead.reason, [lead])), more)
    return verdict, placed(NO_NODE, reason) if verdict.is_fault and nodes > 1 else reason


def _blame(suspects: Sequence[Suspect], bad: Sequence[Check], worse: Sequence[str]) -> str:
    lead, *others = suspects
    others = [suspect for suspect in others if (suspect.kind, suspect.name) != (lead.kind, lead.name)]
    what = placed(f"{words.suspect_name(lead)} ({words.fraction(lead.confidence)} sure)", _against(lead.evidence, bad))
    kinds = dict.fromkeys(suspect.kind for suspect in others)
    names = {kind: [suspect.name for suspect in others if suspect.kind == kind] for kind in kinds}
    return _also(what, [*(words.named(kind, host_list(of_kind)) for kind, of_kind in names.items()), *worse])


def _also(reason: str, others: Iterable[str]) -> str:
    names = ", ".join(dict.fromkeys(others))
    return extended(reason, f"; also {names}" if names else "")


def _against(reason: str, checks: Iterable[Check]) -> str:
    """The first of joined reasons; that of a number as value, what it was held against, and the difference."""
    first = parts_of(reason)[0]
    bad = (j for check in checks for j in check.judgements if j.verdict is not Verdict.PASS)
    judgement = next((j for j in bad if first and j.reason.startswith(first)), None)
    if judgement is None or judgement.deviation is None or judgement.deviation <= -1:
        return first
    return recorded(compared(judgement), code_of(first))


def own_reason(check: Check, suspects: Iterable[Suspect]) -> str:
    """The check's reason; of the run's suspects only the names, since what is held against them stands beside them."""
    parts = parts_of(check.reason) if len(parts_of(check.reason)) > 1 else tuple(check.reason.split("; "))
    said = [(each, sentence) for each in suspects for sentence in each.evidence.split("; ") if sentence]
    blamed = [each.name for each, sentence in said if any(sentence in part for part in parts)]
    rest = [part for part in parts if not any(sentence in part for _, sentence in said)]
    return "; ".join((f"blames {host_list(blamed)}", *rest)) if blamed else check.reason


def compared(judgement: Judgement) -> str:
    """A judged number in short: "tcp_egress 23.7 MB/s on node-2, peers 995 MB/s (98 % less)"."""
    m, deviation = judgement.measurement, judgement.deviation or 0.0
    centre = words.quantity(m.value / (1 + deviation), m.unit)
    known = {"history": "earlier runs", "physics": "links"}.get(judgement.source, judgement.source)
    off = words.percent(deviation).lstrip("+-")
    return f"{words.measured(m)}, {known} {centre} ({off} {'less' if deviation < 0 else 'more'})"


def also(measurements: Iterable[Measurement]) -> str:
    """What else is bad, by metric: "also matmul on node-[2-3], all_reduce busbw"; empty without any."""
    subjects: dict[str, list[str]] = {}
    for m in measurements:
        name = f"{m.operation or ''} {m.metric}".strip()
        subjects.setdefault(name, []).extend(() if m.subject.kind == "cluster" else (m.subject.name,))
    parts = [f"{name} on {host_list(on)}" if on else name for name, on in subjects.items()]
    return f"also {', '.join(parts)}" if parts else ""


def since(verdict: Verdict, started: datetime, run_id: str, earlier: Sequence[EarlierRun]) -> str:
    """Since when the runs end like this; `earlier` are runs of the same cluster and suite, the newest first.

    A run that could not measure leaves a fault, or a series of passes, as it was.
    """
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
    then = f"{words.label(before)} before" if before else "never different before"
    return f"since {words.moment(at)} (run {first}{runs}), {'passed before' if before is Verdict.PASS else then}"


def steps(result: RunResult) -> dict[str, str]:
    """The next step by code, of the run first, then of its checks that are no pass and of its suspects."""
    bad = [check.reason for check in result.checks if check.verdict is not Verdict.PASS]
    reasons = (result.reason, *bad, *(suspect.evidence for suspect in result.suspects))
    codes = dict.fromkeys(code for reason in reasons if (code := code_of(reason)) and code != _NOT_TRIED)
    known = ((code, explanation_of(code)) for code in codes)
    return {code: entry.next_step for code, entry in known if entry and entry.next_step}


def next_step(result: RunResult) -> str:
    """What to do about the run's verdict, with the code whose meaning `seatrial explain` prints."""
    if result.verdict is Verdict.PASS:
        code = "no-baseline" if result.standing == UNJUDGED else None
    else:
        code = next(iter(steps(result)), None)
    entry = explanation_of(code) if code else None
    if entry and entry.next_step:
        return f"{entry.next_step.rstrip('.')}; seatrial explain {code}"
    return "nothing to do" if result.verdict is Verdict.PASS else "read logs/run.log of the run"


def lines(result: RunResult) -> tuple[str, str, str]:
    """The three lines of the run."""
    line = verdict_line(result.verdict, result.coverage, result.reason)
    return (
        words.plain(line),
        words.plain(result.since or NO_HISTORY),
        words.plain(result.next_step or f"next: {next_step(result)}"),
    )
