"""Incidents: what is wrong with a cluster, from the night it shows until it is over, and who has heard of it. Pure.

There is at most one open incident of each kind for a cluster and suite:

- `fault`: measured, and not a pass. Over with the next pass; a night without a measurement leaves it as it is.
- `unmeasured`: the check could not measure, which is no fault of the cluster. Over with the next measurement.
- `silent`: no run was recorded in its time, or the check itself died. Over with the next run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from seatrial.model.result import SURE, RunResult
from seatrial.model.verdict import Verdict, worst
from seatrial.text import words

Kind = Literal["fault", "unmeasured", "silent"]

REASON_CHARS = 2000
KEEP_TRYING = timedelta(days=7)  # how long an incident that is over is still told to those who could not be told
_OVER: Mapping[Kind, str] = {"fault": "pass again", "unmeasured": "measured again", "silent": "runs again"}
_ENDED_BY: Mapping[Kind, frozenset[Kind | None]] = {
    "fault": frozenset({None}),
    "unmeasured": frozenset({None, "fault"}),
    "silent": frozenset({None, "fault", "unmeasured"}),
}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What one run brings, or its absence; `kind` is None for a pass."""

    run_id: str
    at: datetime
    kind: Kind | None
    verdict: Verdict
    reason: str
    suspects: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """How many changes of an incident one sink was told, and in which `place` the sink put them."""

    reported: int = 0
    place: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Incident:
    """What is wrong. `changes` are the sentences worth telling, from its opening to its end, in order.

    `suspects` and `checks` are all that were ever part of it, so that what comes and goes is news once.
    """

    cluster: str
    suite: str
    kind: Kind
    opened: datetime
    seen: datetime
    last_run: str
    verdict: Verdict
    worst: Verdict
    reason: str
    suspects: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    nights: int = 1
    changes: tuple[str, ...] = ()
    closed: datetime | None = None
    receipts: Mapping[str, Receipt] = field(default_factory=dict)
    id: int | None = None

    def news(self, sink: str) -> tuple[str, ...]:
        """What that sink has not heard yet."""
        return self.changes[self.receipts.get(sink, Receipt()).reported :]

    @property
    def settled(self) -> bool:
        """Whether it is over and everybody knows."""
        return self.closed is not None and not any(self.news(sink) for sink in self.receipts)

    def with_receipt(self, sink: str, receipt: Receipt) -> "Incident":
        return replace(self, receipts={**self.receipts, sink: receipt})


def outcome_of(result: RunResult) -> RunOutcome:
    """What a run brings."""
    return RunOutcome(
        result.run_id,
        result.finished,
        _kind(result.verdict),
        result.verdict,
        words.plain(result.reason)[:REASON_CHARS],
        _unique(f"{s.kind} {s.name}" for s in result.suspects if s.confidence >= SURE),
        _unique(c.name for c in result.checks if c.verdict.is_fault),
    )


def advance(
    known: Sequence[Incident], cluster: str, suite: str, night: RunOutcome, sinks: Iterable[str]
) -> list[Incident]:
    """The incidents after that night: `known` ones (of the cluster and suite, not settled) gone on, and a new one.

    Every one of `sinks` is to hear of those that are open, also one that is new. The same night twice changes nothing.
    """
    after = [_followed(incident, night) for incident in known]
    if night.kind and not any(i.kind == night.kind and i.last_run == night.run_id for i in after):
        after.append(_opened(cluster, suite, night.kind, night))
    names = tuple(sinks)
    return [_given_up(_addressed(incident, names), night.at) for incident in after]


def _followed(incident: Incident, night: RunOutcome) -> Incident:
    if incident.closed or incident.last_run == night.run_id:
        return incident
    # Who is silent again after another run has not been silent all the time, though that run may have told nobody.
    if incident.kind == night.kind and incident.kind != "silent":
        return _again(incident, night)
    if incident.kind == night.kind or night.kind in _ENDED_BY[incident.kind]:
        return replace(incident, closed=night.at, changes=(*incident.changes, _over(incident)))
    return incident


def _over(incident: Incident) -> str:
    of = f" after {nights(incident.nights)} of {words.label(incident.verdict)}" if incident.kind == "fault" else ""
    return f"{_OVER[incident.kind]}{of}"


def _again(incident: Incident, night: RunOutcome) -> Incident:
    changed = _change(incident, night)
    return replace(
        incident,
        seen=night.at,
        last_run=night.run_id,
        nights=incident.nights + 1,
        verdict=night.verdict,
        worst=worst((incident.worst, night.verdict)),
        reason=night.reason,
        suspects=_unique((*incident.suspects, *night.suspects)),
        checks=_unique((*incident.checks, *night.checks)),
        changes=(*incident.changes, changed) if changed else incident.changes,
    )


def _change(incident: Incident, night: RunOutcome) -> str | None:
    """What is new, if it is worth a word: a verdict worse than any before, a suspect or a check that was in order."""
    if incident.kind != "fault":
        return None
    new = []
    if worst((incident.worst, night.verdict)) is not incident.worst:
        new.append(f"{words.label(night.verdict)}, was {words.label(incident.verdict)}")
    if suspects := [name for name in night.suspects if name not in incident.suspects]:
        new.append(f"new suspect{'s' * (len(suspects) > 1)}: {words.some_of(suspects, 3)}")
    if checks := [name for name in night.checks if name not in incident.checks]:
        new.append(f"now also {words.some_of(checks, 3)}")
    return "; ".join(new) or None


def _opened(cluster: str, suite: str, kind: Kind, night: RunOutcome) -> Incident:
    return Incident(
        cluster,
        suite,
        kind,
        night.at,
        night.at,
        night.run_id,
        night.verdict,
        night.verdict,
        night.reason,
        night.suspects,
        night.checks,
        changes=(f"{words.label(night.verdict)}: {night.reason}",),
    )


def _addressed(incident: Incident, sinks: Iterable[str]) -> Incident:
    """An open incident is for every sink; one that is over only for those that were there before."""
    if incident.closed:
        return incident
    return replace(incident, receipts={**{sink: Receipt() for sink in sinks}, **incident.receipts})


def _given_up(incident: Incident, now: datetime) -> Incident:
    """What is long over is not told any more."""
    if incident.closed is None or now - incident.closed < KEEP_TRYING:
        return incident
    receipts = {sink: replace(r, reported=len(incident.changes)) for sink, r in incident.receipts.items()}
    return replace(incident, receipts=receipts)


def _kind(verdict: Verdict) -> Kind | None:
    if verdict is Verdict.PASS:
        return None
    return "fault" if verdict.is_fault else "unmeasured"


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words.plain(name) for name in names))


def nights(count: int) -> str:
    """How often it was seen: "1 run", "3 runs"; they need not be nights."""
    return f"{count} run{'' if count == 1 else 's'}"
