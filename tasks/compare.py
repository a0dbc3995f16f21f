"""Compare: hold every measurement of the run against what is known, measure again what that leaves in doubt, and say
what it makes of each check."""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.checks.contract import Doubt, Repeated
from seatrial.judge.assess import RunJudge
from seatrial.judge.knowledge import RunContext, explained, knowledge_of
from seatrial.model.reason import join
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import worst
from tasks.check import shown, value_of

if TYPE_CHECKING:
    from seatrial.history.store import Store

MOST_REPEATING_S = 600  # no repeat is begun later, so that a cluster full of doubt does not hold a night's run for ever
Again = Callable[[Mapping[str, Sequence[Doubt]], float], Mapping[str, Repeated]]  # until when, of time.monotonic


def compare(
    checks: Sequence[Check],
    setup: Setup,
    store: "Store | None" = None,
    context: RunContext | None = None,
    again: Again | None = None,
) -> list[Check]:
    """The checks with their judgements, verdicts, reasons and suspects.

    What is in doubt is measured `again`, until the judgement is sure either way or nothing more comes of it. Without a
    store, the catalog, physics and peers remain. Raises SeatrialError when the store cannot be read: a run that
    silently forgets its history would pass what it should not.
    """
    knowledge = knowledge_of(checks, setup, store, context)
    judge = RunJudge(checks, knowledge)
    enough, given_up, repeats = time.monotonic() + MOST_REPEATING_S, set[str](), dict[str, Repeated]()
    while again and (doubts := _without(judge.doubts(), given_up)) and time.monotonic() < enough:
        more = again(doubts, enough)
        for name, repeated in more.items():
            repeats.setdefault(name, Repeated()).add(repeated)
        given_up |= _unanswered(doubts, more)
        judge.add(m for repeated in more.values() for m in repeated.measurements)
        if any(repeated.over for repeated in more.values()):
            break
    return explained(judge.judged([_extended(check, repeats.get(check.name)) for check in checks]), knowledge.setup)


def _without(doubts: Mapping[str, Sequence[Doubt]], given_up: Set[str]) -> dict[str, list[Doubt]]:
    left = {check: [d for d in some if d.measurement.series() not in given_up] for check, some in doubts.items()}
    return {check: some for check, some in left.items() if some}


def _unanswered(doubts: Mapping[str, Sequence[Doubt]], more: Mapping[str, Repeated]) -> set[str]:
    requested = {d.measurement.series() for some in doubts.values() for d in some}
    return requested - {m.series() for repeated in more.values() for m in repeated.measurements}


def _extended(check: Check, repeated: Repeated | None) -> Check:
    """The check with what was measured again, what broke while it was, and who is to blame for that."""
    if repeated is None:
        return check
    own = repeated.check or check
    return replace(
        own,
        verdict=worst((own.verdict, *(verdict for verdict, _ in repeated.problems))),
        reason=join((own.reason, *(reason for _, reason in repeated.problems))),
        measurements=(*check.measurements, *repeated.measurements),
        suspects=(*own.suspects, *repeated.suspects),
    )


@task(name="compare", cache_policy=NO_CACHE)
def _compare(
    checks: Sequence[Check], setup: Setup, store: "Store | None", context: RunContext, again: Again | None
) -> list[Check]:
    judged = compare(checks, setup, store, context, again)
    return shown(judged, judged)


def compare_task(
    checks: Sequence[Check], setup: Setup, store: "Store | None", context: RunContext, again: Again | None
) -> list[Check]:
    """`compare` as a step of the flow."""
    return value_of(_compare(checks, setup, store, context, again, return_state=True))
