"""The end of a run: its result is recorded, uploaded and sent, each step whether or not the others fail."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prefect.runtime import deployment

from flows.serving.artifacts import show_files
from seatrial.config.run import RESULT
from seatrial.history import open_store
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.progress import log
from seatrial.runs.run_state import RunState
from tasks.metrics import metrics_task
from tasks.notify import notify_task
from tasks.record import record_task, write_run_json
from tasks.upload import CUT_TIMEOUT_S as CUT_UPLOAD_S
from tasks.upload import upload, upload_task

if TYPE_CHECKING:
    from seatrial.history.store import Store

_CUT = {"KeyboardInterrupt": "Ctrl-C", "TerminationSignal": "SIGTERM"}  # what Prefect raises, as people say it


def publish_results(trial: RunState, store: "Store | None", notify: bool) -> None:
    """Record, upload, publish and notify. A step that fails becomes a check, and the others go on."""
    run = trial.run
    written: Mapping[str, Path] = {}
    with trial.attempt("record"):
        written = record_task(trial.result(), run, store, run.logs / "run.log")
        trial.note(_missing(written))
        show_files(run, written, trial.result())
    if run.cluster.upload:
        with trial.attempt("upload"):
            trial.note(upload_task(run))
    if os.environ.get("SEATRIAL_METRICS"):
        with trial.attempt("metrics"):
            trial.note(metrics_task(trial.result(), store))
    if notify:  # also of what could not be recorded
        with trial.attempt("notify"):
            notified = notify_task(trial.result(), run.cluster, store, written.get("report.html"))
            trial.note(f"alerts: {notified.summary}" if notified.failed else None)


def _missing(written: Mapping[str, Path]) -> str | None:
    missing = [name for name in RESULT if name not in written]
    return f"{', '.join(missing)} could not be written: logs/run.log says why" if missing else None


def rewrite_run_json(trial: RunState) -> RunResult:
    """Write run.json again, now with all timings.

    Raises SeatrialError if none could be written at all, except after an alert of a deployment's run: its crash would
    send a second one.
    """
    result = trial.result()
    try:
        write_run_json(result, trial.run.out)
    except SeatrialError as error:
        is_served = deployment.id and "notify" in trial.done
        if "record" not in trial.done and not is_served:
            raise
        log.warning("run.json is as it was before the last steps: %s", error)
    return result


def record_cut(trial: RunState, cut: BaseException) -> None:
    """Write and upload the run.json of a run that is interrupted or cancelled."""
    cut_by = type(cut).__name__
    reason = Reason.of("cut-off", how=f"cut off by {_CUT.get(cut_by, cut_by)} before it was through")
    trial.add(Check("run", Verdict.INCONCLUSIVE, reason))
    try:
        write_run_json(trial.result(), trial.run.out)
    except SeatrialError as error:  # must not stand in the place of what cut the run off
        log.error("%s", error)
    upload(trial.run, CUT_UPLOAD_S)


@contextmanager
def opened_history() -> "Iterator[tuple[Store | None, str | None]]":
    """Open the history, or give the reason why it cannot be opened: a run without one still measures."""
    try:
        store = open_store()
    except Exception as error:
        log.warning("history: %s; this run is not added to it", error)
        yield None, str(error)
        return
    with store:
        yield store, None
