"""A run's final state in Prefect: Completed for a pass, Failed for measured and bad, Crashed for not measured."""

import logging
import os
from typing import TYPE_CHECKING, Any

from prefect.states import Crashed

from seatrial.model.coverage import exit_status
from seatrial.model.errors import SeatrialError
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.text.redact import Secrets
from seatrial.text.words import verdict_line
from tasks.check import STATES

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

log = logging.getLogger("seatrial")

MOST_CHARACTERS = 2000  # of a message in Prefect

results: list[RunResult] = []  # of the runs of this process, also where no server could be told of them


def state_of(result: RunResult, require_baseline: bool = False) -> "State[None]":
    """Return the final state for a result."""
    results.append(result)
    status = exit_status(result.verdict, result.coverage, require_baseline)
    return _ended(STATES[status](message=verdict_line(result.verdict, result.coverage, result.reason)))


def crashed_state(error: Exception) -> "State[Exception]":
    """Return the final state of a run without a verdict."""
    what = Secrets.of(os.environ).out_of_line(str(error))[:MOST_CHARACTERS]
    if not isinstance(error, SeatrialError):
        what = f"seatrial itself failed: {type(error).__name__}: {what}"
        log.error("%s", what, exc_info=error)
    return _ended(Crashed(message=f"could not measure: {what}", data=error))


def _ended(state: "State[Any]") -> "State[Any]":
    """Return the state, and keep a process that a runner or worker started from printing the traceback of its end."""
    for name in ("prefect.engine", "prefect.flow_runs"):
        logging.getLogger(name).addFilter(_is_no_end)
    return state


def _is_no_end(record: logging.LogRecord) -> bool:
    """Drop the exception that Prefect logs for a state that is not Completed; its message has been logged before."""
    return "exited with unexpected exception" not in record.getMessage()


def has_verdict(state: "State[Any]") -> bool:
    """Return whether the state is one of `state_of`: the run ended by itself."""
    return (state.message or "").partition(":")[0].partition(" ")[0] in set(Verdict)
