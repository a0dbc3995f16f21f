"""Run a flow from a terminal, on a temporary Prefect server unless one is configured."""

import contextlib
import importlib
import logging
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any

from seatrial.flows.serving.server import has_lasting_server, last_words, provide_prefect_server
from seatrial.model.errors import InputError, classed
from seatrial.model.reason import Reason, placed
from seatrial.model.result import RunResult

log = logging.getLogger("seatrial")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What later steps need, in the order of their need.
_IMPORTED_AHEAD = (
    "fastapi",
    "prefect.task_engine",
    "alembic.command",
    "seatrial.history.store",
    "seatrial.history.engine",
    "paramiko",
    "pandas",
    "matplotlib.figure",
    "matplotlib.backends.backend_svg",
    "jinja2",
    "seatrial.report.html",
    "seatrial.report.terminal",
)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run without a verdict."""

    exit_status: int
    reason: Reason


class _Terminated(BaseException):
    """SIGTERM or SIGHUP, also outside the flow, where Prefect raises no exception for it."""


class _SignalHandlers:
    """Handlers of SIGINT, SIGTERM and SIGHUP until this process ends: the first signal interrupts,
    others are ignored.

    `number` is the first signal, also if it came while Python could not raise an exception for it.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        sys.unraisablehook = self._lost
        for number in _SIGNALS:
            signal.signal(number, self._stop)

    def _stop(self, number: int, frame: object) -> None:
        if self.number is None:
            self.number = number
            raise KeyboardInterrupt if number == signal.SIGINT else _Terminated

    def _lost(self, error: "sys.UnraisableHookArgs") -> None:
        """Print no traceback of an interruption that a destructor has swallowed."""
        if not isinstance(error.exc_value, (KeyboardInterrupt, _Terminated)):
            sys.__unraisablehook__(error)

    def end(self) -> None:
        """Ignore signals from now on.

        Python restores the default handlers as it ends, and a signal would kill the process.
        """
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @property
    def unfinished(self) -> Unfinished | None:
        """The end of a run that was interrupted."""
        if self.number is None:
            return None
        how, status = ("interrupted", 130) if self.number == signal.SIGINT else ("terminated", 143)
        return Unfinished(status, Reason.of("cut-off", how=f"{how}; everything is taken down"))


def _import_ahead() -> None:
    """Load modules while this process waits for its Prefect server; a failure shows up where they
    are needed.
    """
    for name in _IMPORTED_AHEAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def flow_by_hand(flow: str, **parameters: Any) -> RunResult | Unfinished:
    """Run a flow, MODULE:NAME, that ends in the result of a run; the parameters are the flow's."""
    listening = _SignalHandlers()
    try:
        result = _run_flow(flow, **parameters)
    except (KeyboardInterrupt, _Terminated):
        result = None
    except InputError as error:
        result = error
    except Exception as error:
        line = last_words()
        output = f"Its server printed: {line}" if line else ""
        result = Reason.of("prefect-failed", problem=f"Prefect failed: {classed(error)}. {output}")
    listening.end()
    if interrupted := listening.unfinished:
        return interrupted
    if isinstance(result, Reason):
        return Unfinished(3, result)
    if isinstance(result, RunResult):
        return result
    if isinstance(result, InputError):
        return Unfinished(2, placed("seatrial", result.reason))
    return Unfinished(
        3, Reason.of("prefect-failed", problem=f"the run did not end in a verdict: {result}")
    )


def _run_flow(flow: str, **parameters: Any) -> Any:
    """Return the flow's result, or the exception it ended in, also where Prefect does not know of
    its end.

    Prefect is imported while its server starts.
    """
    provide_prefect_server()
    from prefect.events.clients import PrefectEventsClient
    from prefect.events.worker import EventsWorker
    from prefect.settings import get_current_settings

    from seatrial.flows.serving.ui import errors, results

    module, _, name = flow.partition(":")
    started = getattr(importlib.import_module(module), name)

    threading.Thread(target=_import_ahead, daemon=True).start()
    if not has_lasting_server():
        # Not watched, and its thread takes a second to end
        get_current_settings().flows.heartbeat_frequency = None
        # Else each lost event takes 11 s
        EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=2)
    results.clear()
    errors.clear()

    ended: Any = None
    try:
        ended = started(**parameters, return_state=True).result(raise_on_failure=False)
    except Exception as error:
        if not (results or errors):  # the flow has not begun
            raise
        log.warning("Prefect does not know how the run ended: %s", classed(error))
    return (results or errors or [ended])[-1]
