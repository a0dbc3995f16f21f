"""Checks and `compare` as steps of the flow: tasks in Prefect that have their names.

A task shows as Failed if its check was measured and bad, as Crashed if it was not measured. The
flow goes on with the step's result, whatever its task is shown as.
"""

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, TypeVar, cast

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Crashed, Failed

from seatrial.checks.contract import CheckContext, CheckType, Repeated, StepResult, try_check
from seatrial.checks.localize.rounds import LOCALIZE
from seatrial.checks.localize.step import Judge, Localized, RepeatDoubts, localize_run
from seatrial.checks.metrics import REPEATED_WHOLE, Doubt, Doubts
from seatrial.detection.noise import AGREEING
from seatrial.history.past import RunContext
from seatrial.judge.assess import RunJudge
from seatrial.judge.knowledge import explained, knowledge_of
from seatrial.model.result import SURE, Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import worst

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    from seatrial.history.store import Store

T = TypeVar("T")
LEAST_REPEATS_S = 30.0  # for the quickest suite, whose checks take less time
STATES = {0: Completed, 1: Failed, 3: Crashed}  # by exit status


# Without the record in which Prefect dumps a bad state with its data: its message gets a record of
# its own.
logging.getLogger("prefect.task_runs").addFilter(
    lambda record: not record.getMessage().startswith("Task run failed with state: ")
)


def final_state(value: T, checks: Iterable[Check | None]) -> T:
    """Return the task's final state, which has `value`, and as its message the reasons of the
    checks that did not pass.

    Its type is that of `value`, as Prefect declares it for a task that returns a state.
    """
    bad = [check for check in checks if check and not check.passed]
    message = "; ".join(f"{check.name} {check.verdict.value}: {check.reason}" for check in bad)
    state = STATES[worst(check.verdict for check in bad).exit_status if bad else 0]
    return cast(T, state(message=message or None, data=value))


def value_of(state: "State[T]") -> T:
    """Return the result of the task. Raises what the task raised."""
    value = state.result(raise_on_failure=False)
    if isinstance(value, BaseException):
        raise value
    return value


@task(cache_policy=NO_CACHE)
def _check(kind: CheckType, context: CheckContext) -> StepResult:
    result = try_check(kind, context)
    return final_state(result, [result.check])


def check_task(kind: CheckType, context: CheckContext) -> StepResult:
    """Run the check as a task. Raises MissingError when the nodes lack what it needs."""
    return value_of(_check.with_options(name=kind.name)(kind, context, return_state=True))


def compare(
    checks: Sequence[Check],
    setup: Setup,
    store: "Store | None" = None,
    context: RunContext | None = None,
    repeat: RepeatDoubts | None = None,
    until: float = math.inf,
) -> list[Check]:
    """Return the checks with their judgements, verdicts, reasons and suspects.

    A measurement in doubt is repeated until its judgement is certain, a suspect explains it, or a
    repeat adds nothing; and no longer than `until` (of time.monotonic) or than the checks took.
    Checks that may name a node go first, then the check whose repeats take the least. Without a
    store, the catalog, physics and peers remain. Raises SeatrialError if the store cannot be read:
    a run without its history would pass what it should not.
    """
    knowledge = knowledge_of(checks, setup, store, context)
    judge = RunJudge(checks, knowledge)
    given_up = set[str]()
    repeats = dict[str, Repeated]()
    budget = RepeatBudget(checks, until)
    while repeat and (doubts := budget.affordable(_without(judge.doubts(), given_up))):
        # What takes seconds first: it may name the part that makes them slow
        if often := _well_measured(doubts):
            doubts = _without(doubts, often) or doubts
            judged = judge.judged(_extended(checks, repeats))
            if any(suspect.confidence >= SURE for check in judged for suspect in check.suspects):
                given_up |= often
                continue
        name = budget.next_of(doubts)
        began = time.monotonic()
        repeated = repeat({name: doubts[name]}, budget.until).get(name, Repeated())
        budget.spend(name, time.monotonic() - began)
        repeats.setdefault(name, Repeated()).add_later(repeated)
        requested = {doubt.measurement.series() for doubt in doubts[name]}
        given_up |= requested - {m.series() for m in repeated.measurements}
        judge.add(repeated.measurements)
        if repeated.over:
            break
    return explained(judge.judged(_extended(checks, repeats)), knowledge.setup)


class RepeatBudget:
    """The time that repeats may take: until `until`, and no longer than the checks took, or
    `LEAST_REPEATS_S`.
    """

    def __init__(self, checks: Sequence[Check], until: float) -> None:
        checks_s = sum(check.seconds for check in checks)
        self.until = min(until, time.monotonic() + max(LEAST_REPEATS_S, checks_s))
        self._next_s = {
            check.name: check.seconds if check.name in REPEATED_WHOLE else 0.0 for check in checks
        }
        self._spent_s = dict.fromkeys(self._next_s, 0.0)

    def affordable(self, doubts: Doubts) -> Doubts:
        """Return the doubts by check whose next repeat would end in time."""
        left_s = self.until - time.monotonic()
        return {name: some for name, some in doubts.items() if self._next_s[name] < left_s}

    def next_of(self, doubts: Doubts) -> str:
        """Return the check to repeat; the first of equal ones.

        Checks whose next reading may name a node come first, then the check whose repeats, with the
        next one, take the least time.
        """

        def order(name: str) -> tuple[bool, float]:
            names_none = not any(map(_may_name_a_node, doubts[name]))
            return names_none, self._spent_s[name] + self._next_s[name]

        return min(doubts, key=order)

    def spend(self, name: str, seconds: float) -> None:
        """Add the time of a repeat of the check; the next one is expected to take as long."""
        self._spent_s[name] += seconds
        self._next_s[name] = seconds


def _well_measured(doubts: Doubts) -> set[str]:
    """Return the series of the whole cluster that were read as often as a judgement needs."""
    every = (doubt for some in doubts.values() for doubt in some)
    return {
        d.measurement.series()
        for d in every
        if d.measurement.subject.kind == "cluster" and d.taken >= AGREEING
    }


def _may_name_a_node(doubt: Doubt) -> bool:
    """Return whether one more reading may name a node: a part that has fewer than three
    readings.
    """
    return doubt.measurement.subject.kind != "cluster" and doubt.taken < AGREEING


def _extended(checks: Sequence[Check], repeats: Mapping[str, Repeated]) -> list[Check]:
    return [
        repeats[check.name].added_to(check) if check.name in repeats else check for check in checks
    ]


def judge_of(setup: Setup, store: "Store | None", context: RunContext) -> Judge:
    """Return `compare` with the cluster's setup, store and context filled in."""
    return lambda checks, repeat, until: compare(checks, setup, store, context, repeat, until)


def _without(doubts: Doubts, given_up: Set[str]) -> Doubts:
    left = {
        check: [d for d in some if d.measurement.series() not in given_up]
        for check, some in doubts.items()
    }
    return {check: some for check, some in left.items() if some}


@task(name="compare", cache_policy=NO_CACHE)
def _compare(
    checks: Sequence[Check], judge: Judge, repeat: RepeatDoubts | None, until: float
) -> list[Check]:
    judged = judge(checks, repeat, until)
    return final_state(judged, judged)


def compare_task(
    checks: Sequence[Check], judge: Judge, repeat: RepeatDoubts | None, until: float
) -> list[Check]:
    """Run the judge as a task."""
    return value_of(_compare(checks, judge, repeat, until, return_state=True))


@task(name=LOCALIZE, cache_policy=NO_CACHE)
def _localize(
    context: CheckContext, checks: Sequence[Check], judge: Judge, until: float
) -> Localized | None:
    localized = localize_run(context, checks, judge, until)
    return final_state(localized, [localized.step.check if localized else None])


def localize_task(
    context: CheckContext, checks: Sequence[Check], judge: Judge, until: float
) -> Localized | None:
    """Run the localisation as a task."""
    return value_of(_localize(context, checks, judge, until, return_state=True))
