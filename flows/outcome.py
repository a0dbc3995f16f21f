"""How a run's end shows in Prefect: Completed for a pass, Failed for measured and bad, Crashed for not measured."""

import logging
from typing import TYPE_CHECKING, Any

from prefect.states import Completed, Crashed, Failed

from seatrial.errors import SeatrialError
from seatrial.result import RunResult
from seatrial.verdict import Verdict

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

log = logging.getLogger("seatrial")

_STATES = {0: Completed, 1: Failed, 3: Crashed}  # by exit status


def state_of(result: RunResult) -> "State[RunResult]":
    """So that lists and automations see what people see."""
    message = f"{result.verdict.value}: {result.reason}"
    return _STATES[result.verdict.exit_status](message=message, data=result)


def broken_off(error: Exception) -> "State[Exception]":
    """The run could not come to a verdict; nothing is said about the cluster."""
    what = str(error)
    if not isinstance(error, SeatrialError):
        what = f"seatrial itself failed: {type(error).__name__}: {error}"
        log.error("%s", what, exc_info=error)
    return Crashed(message=f"could not measure: {what}", data=error)


def came_to_a_verdict(state: "State[Any]") -> bool:
    """Whether the run ended by itself, as `state_of` says it."""
    return (state.message or "").partition(": ")[0] in set(Verdict)
