"""Any check as a step of the flow: a task in Prefect that has the check's name."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.checks.contract import CheckContext, CheckType, StepResult, try_check
from tasks.shown import shown, value_of


@task(cache_policy=NO_CACHE)
def _check(kind: CheckType, context: CheckContext) -> StepResult:
    result = try_check(kind, context)
    return shown(result, [result.check])


def check_task(kind: CheckType, context: CheckContext) -> StepResult:
    """What the check came to. Raises MissingError when the nodes lack what it needs."""
    return value_of(_check.with_options(name=kind.name)(kind, context, return_state=True))
