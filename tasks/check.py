"""Any check as a step of the flow: a task in Prefect that has the check's name.

A task shows as Failed if its check was measured and bad, as Crashed if it was not measured. The flow goes on with the
step's result, whatever its task is shown as.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar, cast

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Crashed, Failed

from seatrial.checks.contract import CheckContext, CheckType, StepResult, try_check
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict, worst

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State


T = TypeVar("T")


def _is_no_dump(record: logging.LogRecord) -> bool:
    """Prefect logs a bad state with all that is in it, and then once more with its message, which is enough."""
    return not record.getMessage().startswith("Task run failed with state: ")


logging.getLogger("prefect.task_runs").addFilter(_is_no_dump)

STATES = {0: Completed, 1: Failed, 3: Crashed}  # by exit status


def shown(value: T, checks: Iterable[Check | None]) -> T:
    """The task's final state, which has `value`, and the reasons of the checks that did not pass as its message.

    Its type is that of `value`, as Prefect has it of a task that returns a state.
    """
    bad = [check for check in checks if check and check.verdict is not Verdict.PASS]
    message = "; ".join(f"{check.name} {check.verdict.value}: {check.reason}" for check in bad)
    state = STATES[worst(check.verdict for check in bad).exit_status if bad else 0]
    return cast(T, state(message=message or None, data=value))


def value_of(state: "State[T]") -> T:
    """The result of the task. Raises what the task raised."""
    value = state.result(raise_on_failure=False)
    if isinstance(value, BaseException):
        raise value
    return value


@task(cache_policy=NO_CACHE)
def _check(kind: CheckType, context: CheckContext) -> StepResult:
    result = try_check(kind, context)
    return shown(result, [result.check])


def check_task(kind: CheckType, context: CheckContext) -> StepResult:
    """Run the check as a task. Raises MissingError when the nodes lack what it needs."""
    return value_of(_check.with_options(name=kind.name)(kind, context, return_state=True))
