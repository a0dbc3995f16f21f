"""Compare: hold every measurement of the run against what is known, measure again what that leaves in doubt, and say
what it makes of each check."""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.assess import assess
from seatrial.baselines.catalog.links import with_links
from seatrial.baselines.catalog.nearest import missing_reference
from seatrial.baselines.known import Knowledge
from seatrial.baselines.nights import nights_before
from seatrial.baselines.setup import Setup, setup_of
from seatrial.checks.efficiency import with_shares
from seatrial.cluster import Cluster
from seatrial.repeats import Doubt
from seatrial.result import Check, now
from seatrial.verdict import worst
from tasks.repeat import Repeated

if TYPE_CHECKING:
    from seatrial.history.store import Store

MOST_REPEATING_S = 600  # no repeat is begun later, so that a cluster full of doubt does not hold a night's run for ever
Again = Callable[[Mapping[str, Sequence[Doubt]]], Mapping[str, Repeated]]


@dataclass(frozen=True, slots=True)
class Occasion:
    """Which earlier runs compare: those of the same suite, before `started`, first of all with the same software."""

    suite: str = "quick"
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    started: datetime = field(default_factory=now)


def compare(
    checks: Sequence[Check],
    cluster: Cluster,
    store: "Store | None",
    occasion: Occasion | None = None,
    again: Again | None = None,
) -> list[Check]:
    """The checks with their judgements, verdicts, reasons and suspects.

    What is in doubt is measured `again`, until the judgement is sure either way or nothing more comes of it. Without a
    store, the catalog, physics and peers remain. Raises SeatrialError when the store cannot be read: a run that
    silently forgets its history would pass what it should not.
    """
    knowledge = knowledge_of(checks, cluster, store, occasion or Occasion())
    measured = [with_shares(check, knowledge.setup) for check in checks]
    found = assess(measured, knowledge)
    enough, given_up = time.monotonic() + MOST_REPEATING_S, set[str]()
    while again and (doubts := _without(found.doubts, given_up)) and time.monotonic() < enough:
        more = again(doubts)
        measured = [_extended(check, more.get(check.name), knowledge.setup) for check in measured]
        given_up |= _unanswered(doubts, more)
        found = assess(measured, knowledge)
    return [_explained(check, knowledge.setup) for check in found.checks] if cluster.gpus else found.checks


def _without(doubts: Mapping[str, Sequence[Doubt]], given_up: Set[str]) -> dict[str, list[Doubt]]:
    left = {check: [d for d in some if d.measurement.series() not in given_up] for check, some in doubts.items()}
    return {check: some for check, some in left.items() if some}


def _unanswered(doubts: Mapping[str, Sequence[Doubt]], more: Mapping[str, Repeated]) -> set[str]:
    asked = {d.measurement.series() for some in doubts.values() for d in some}
    return asked - {m.series() for repeated in more.values() for m in repeated.measurements}


def _extended(check: Check, repeated: Repeated | None, setup: Setup) -> Check:
    """The check with what was measured again, and what broke while it was."""
    if repeated is None:
        return check
    more = with_shares(replace(check, measurements=tuple(repeated.measurements)), setup).measurements
    reasons = (check.reason, *(reason for _, reason in repeated.problems))
    return replace(
        check,
        verdict=worst((check.verdict, *(verdict for verdict, _ in repeated.problems))),
        reason="; ".join(reasons),
        measurements=(*check.measurements, *more),
    )


def _explained(check: Check, setup: Setup) -> Check:
    """Where nothing published compares, the reason says what comes nearest."""
    missing = missing_reference(check, setup)
    return replace(check, reason=f"{check.reason}; {missing}") if missing else check


def knowledge_of(checks: Sequence[Check], cluster: Cluster, store: "Store | None", occasion: Occasion) -> Knowledge:
    """What the store and the cluster file know about the measurements of `checks`."""
    setup = with_links(setup_of(cluster))
    if store is None:
        return Knowledge(setup)
    names = sorted({m.series() for check in checks for m in check.measurements if m.better})
    nights = nights_before(store, cluster.name, occasion.suite, occasion.fingerprint, names, occasion.started)
    return Knowledge(setup, store.pinned(cluster.name), nights.values(), nights)


@task(name="compare", cache_policy=NO_CACHE)
def compare_task(
    checks: Sequence[Check],
    cluster: Cluster,
    store: "Store | None",
    occasion: Occasion | None = None,
    again: Again | None = None,
) -> list[Check]:
    """`compare` as a step of the flow."""
    return compare(checks, cluster, store, occasion, again)
