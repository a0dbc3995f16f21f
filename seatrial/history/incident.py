"""Incidents: a problem of a cluster from its first run to its end, and which receivers got it.

Pure.

There is at most one open incident of each kind for a cluster and suite:

- `fault`: measured, and not a pass. Over with the next pass; a run without a measurement leaves it
  as it is.
- `unmeasured`: the check could not measure, which is no fault of the cluster. Over with the next
  measurement.
- `silent`: no run was recorded in its time, or the check itself died. Over with the next run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from seatrial.model.reason import Reason, rewritten
from seatrial.model.result import SURE, RunResult
from seatrial.model.verdict import Verdict, worst
from seatrial.text import words

Kind = Literal["fault", "unmeasured", "silent"]

REASON_CHARS = 2000
# How long failed deliveries of an incident that is over are repeated
KEEP_TRYING = timedelta(days=7)
_OVER: Mapping[Kind, str] = {
    "fault": "pass again",
    "unmeasured": "measured again",
    "silent": "runs again",
}
_ENDED_BY: Mapping[Kind, frozenset[Kind | None]] = {
    "fault": frozenset({None}),
    "unmeasured": frozenset({None, "fault"}),
    "silent": frozenset({None, "fault", "unmeasured"}),
}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of one run, or its absence; `kind` is None for a pass."""

    run_id: str
    at: datetime
    kind: Kind | None
    verdict: Verdict
    reason: Reason
    suspects: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """The number of changes that a sink received, and the `place` that it gave them."""

    reported: int = 0
    place: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Incident:
    """A problem of a cluster. `changes` are its news in sentences, from its opening to its end.

    `suspects` and `checks` are all that were ever part of it, so that each is news once.
    """

    cluster: str
    suite: str
    kind: Kind
    opened: datetime
    seen: datetime
    last_run: str
    verdict: Verdict
    worst: Verdict
    reason: Reason
    suspects: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    run_count: int = 1
    changes: tuple[str, ...] = ()
    closed: datetime | None = None
    receipts: Mapping[str, Receipt] = field(default_factory=dict)
    id: int | None = None

    def news(self, sink: str) -> tuple[str, ...]:
        """Return the changes that were not delivered to that sink."""
        return self.changes[self.receipts.get(sink, Receipt()).reported :]

    @property
    def settled(self) -> bool:
        """Whether it is over and every sink has all changes."""
        return self.closed is not None and not any(self.news(sink) for sink in self.receipts)

    def with_receipt(self, sink: str, receipt: Receipt) -> "Incident":
        return replace(self, receipts={**self.receipts, sink: receipt})


def outcome_of(result: RunResult) -> RunOutcome:
    """Return the outcome of a run."""
    return RunOutcome(
        result.run_id,
        result.finished,
        _kind(result.verdict),
        result.verdict,
        rewritten(result.reason, lambda text: words.plain(text)[:REASON_CHARS]),
        _unique(words.suspect_name(s) for s in result.suspects if s.confidence >= SURE),
        _unique(c.name for c in result.checks if c.verdict.is_fault),
    )


def advance(
    incidents: Sequence[Incident],
    cluster: str,
    suite: str,
    outcome: RunOutcome,
    sinks: Iterable[str],
) -> list[Incident]:
    """Return the unsettled `incidents` of the cluster and suite after a run, and a new one if there
    is.

    Open incidents are for all `sinks`. The same outcome twice changes nothing.
    """
    after = [_followed(incident, outcome) for incident in incidents]
    if outcome.kind and not any(
        i.kind == outcome.kind and i.last_run == outcome.run_id for i in after
    ):
        opened = Incident(
            cluster,
            suite,
            outcome.kind,
            outcome.at,
            outcome.at,
            outcome.run_id,
            outcome.verdict,
            outcome.verdict,
            outcome.reason,
            outcome.suspects,
            outcome.checks,
            changes=(f"{outcome.verdict.value}: {outcome.reason}",),
        )
        after.append(opened)
    names = tuple(sinks)
    return [_addressed(incident, names, outcome.at) for incident in after]


def _followed(incident: Incident, outcome: RunOutcome) -> Incident:
    if incident.closed or incident.last_run == outcome.run_id:
        return incident
    # A check that is silent again after another run was not silent all the time.
    if incident.kind == outcome.kind and incident.kind != "silent":
        changed = _change(incident, outcome)
        return replace(
            incident,
            seen=outcome.at,
            last_run=outcome.run_id,
            run_count=incident.run_count + 1,
            verdict=outcome.verdict,
            worst=worst((incident.worst, outcome.verdict)),
            reason=outcome.reason,
            suspects=_unique((*incident.suspects, *outcome.suspects)),
            checks=_unique((*incident.checks, *outcome.checks)),
            changes=(*incident.changes, changed) if changed else incident.changes,
        )
    if incident.kind == outcome.kind or outcome.kind in _ENDED_BY[incident.kind]:
        over = _OVER[incident.kind]
        if incident.kind == "fault":
            over += f" after {words.count(incident.run_count, 'run')}, worst {incident.worst.value}"
        return replace(incident, closed=outcome.at, changes=(*incident.changes, over))
    return incident


def _change(incident: Incident, outcome: RunOutcome) -> str | None:
    """Return what is new: a verdict worse than any before, a new suspect or a new check; None if
    nothing is.
    """
    if incident.kind != "fault":
        return None
    new = []
    if worst((incident.worst, outcome.verdict)) is not incident.worst:
        new.append(f"{outcome.verdict.value}, was {incident.verdict.value}")
    if suspects := [name for name in outcome.suspects if name not in incident.suspects]:
        new.append(f"new suspect{'s' * (len(suspects) > 1)}: {words.some_of(suspects, 3)}")
    if checks := [name for name in outcome.checks if name not in incident.checks]:
        new.append(f"now also {words.some_of(checks, 3)}")
    return "; ".join(new) or None


def _addressed(incident: Incident, sinks: Iterable[str], now: datetime) -> Incident:
    """Address an open incident to every sink; mark one that ended long ago as delivered to its
    sinks.
    """
    if incident.closed is None:
        return replace(
            incident, receipts={**{sink: Receipt() for sink in sinks}, **incident.receipts}
        )
    if now - incident.closed < KEEP_TRYING:
        return incident
    delivered = {
        sink: replace(r, reported=len(incident.changes)) for sink, r in incident.receipts.items()
    }
    return replace(incident, receipts=delivered)


def _kind(verdict: Verdict) -> Kind | None:
    if verdict is Verdict.PASS:
        return None
    return "fault" if verdict.is_fault else "unmeasured"


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words.plain(name) for name in names))
