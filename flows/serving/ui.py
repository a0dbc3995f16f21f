"""A flow run in Prefect's UI: its tags, labels, states, log, progress and files.

Nothing here can end a run or hold a measurement up: what Prefect does not take is left out.
"""

import contextvars
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_progress_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run as current
from prefect.states import Crashed, Running

from seatrial.checks.contract import PlannedNodes
from seatrial.checks.suites import nodes_of
from seatrial.checks.table import CHECKS
from seatrial.config.run import PICTURE, Run, Suite, published, secrets_of
from seatrial.model.errors import SeatrialError
from seatrial.model.result import RunResult, exit_status, verdict_line
from seatrial.model.verdict import Verdict
from seatrial.report.paper import curve_png
from seatrial.runs.cluster_lock import ProcessIdentity
from seatrial.runs.progress import RedactingFormatter
from seatrial.system.private import write_atomic
from seatrial.text.escape import escape
from seatrial.text.printable import printable
from seatrial.text.redact import Secrets
from tasks.check import STATES

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

log = logging.getLogger("seatrial")

MOST_CHARACTERS = 2000  # of a message in Prefect
RUN, PROCESS, SLOT, LINE = "seatrial.run", "seatrial.process", "seatrial.slot", "seatrial.line"
_EVERY_S = 2.0
_STEPS = ("image", "launch", *(kind.name for kind in CHECKS), "compare", "collect", "teardown", "record")
_ENGINE = ("prefect", "prefect.flow_runs", "prefect.task_runs")  # the loggers that Prefect's settings give handlers

# Of the runs of this process, also if no server could be reached.
results: list[RunResult] = []
errors: list[Exception] = []


def cluster_tag(cluster: str) -> str:
    return f"cluster:{cluster}"


def introduce(run: Run) -> None:
    """Tag the flow run with its cluster and suite, and label it with its process."""
    with _decorated() as client:
        tags = {*current.tags, cluster_tag(run.cluster.name), f"suite:{printable(run.suite.name)}"}
        client.update_flow_run(UUID(current.id), tags=sorted(tags))
        labels: dict[str, bool | int | float | str] = {RUN: run.run_id, PROCESS: str(ProcessIdentity.here())}
        client.update_flow_run_labels(UUID(current.id), labels)


def show_verdict(result: RunResult) -> None:
    """Tag the flow run with its verdict: the state Failed covers several."""
    with _decorated() as client:
        tags = {*client.read_flow_run(UUID(current.id)).tags, f"verdict:{result.verdict.value}"}
        client.update_flow_run(UUID(current.id), tags=sorted(tags))


def set_label(flow_run_id: UUID, name: str, value: str) -> None:
    with _decorated() as client:
        client.update_flow_run_labels(flow_run_id, {name: value})


@contextmanager
def show_waiting() -> Iterator[Callable[[str], None]]:
    """Give a function that shows the flow run as Waiting, with a reason, until the block ends."""
    flow_run_id, waits = UUID(current.id), False

    def show(reason: str) -> None:
        nonlocal waits
        waits = True
        with _decorated() as client:
            client.set_flow_run_state(flow_run_id, Running(name="Waiting", message=reason), force=True)

    try:
        yield show
    finally:
        if waits:
            with _decorated() as client:
                client.set_flow_run_state(flow_run_id, Running(), force=True)


@contextmanager
def _decorated() -> Iterator[SyncPrefectClient]:
    try:
        with get_client(sync_client=True) as client:
            yield client
    except Exception as error:  # HTTP, Prefect's own errors, answers that are none: the verdict must come out after any
        log.debug("Prefect does not show it: %s: %s", type(error).__name__, error)


def state_of(result: RunResult, require_baseline: bool = False) -> "State[RunResult]":
    """Return the final state for a result; only Completed has it, since Prefect takes the others' data for errors."""
    results.append(result)
    status = exit_status(result.verdict, result.coverage, require_baseline)
    message = verdict_line(result.verdict, result.coverage, result.reason)
    return _ended(STATES[status](message=message, data=None if status else result))


def crashed_state(error: Exception) -> "State[Exception]":
    """Return the final state of a run without a verdict."""
    errors.append(error)
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


@contextmanager
def forward_logs(secrets: Secrets | None = None) -> Iterator[None]:
    """Send the log to Prefect whatever its settings are, without `secrets`, or those of the environment."""
    logger, handler = logging.getLogger("seatrial"), APILogHandler()
    secrets = secrets or Secrets.of(os.environ)
    handler.setFormatter(RedactingFormatter("%(message)s", secrets))
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logging.getLogger("prefect.task_runs").setLevel(logging.WARNING)  # steps say themselves that they have ended
    try:
        with _redacted(secrets):
            yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _redacted(secrets: Secrets) -> Iterator[None]:
    """Remove secrets from the log of Prefect's engine, too, and from its tracebacks."""
    formatter = RedactingFormatter("%(message)s", secrets)

    def plain(record: logging.LogRecord) -> bool:
        record.msg, record.args = formatter.format(record), ()
        record.exc_info = record.exc_text = None
        return True

    handlers = {each for name in _ENGINE for each in logging.getLogger(name).handlers}
    for each in handlers:
        each.addFilter(plain)
    try:
        yield
    finally:
        for each in handlers:
            each.removeFilter(plain)


def share(suite: Suite, step: str, units: int, nodes: PlannedNodes) -> float:
    """Return how much of a run on `nodes` is done, in percent: steps count alike, a check by its `units`."""
    if step not in _STEPS:
        return 0.0
    kind = next((kind for kind in CHECKS if kind.name == step), None)
    section = suite.section(kind.section) if kind else None
    within = units / kind.units(section, nodes) if kind and section else 0.0
    return 100 * (_STEPS.index(step) + min(within, 1.0)) / len(_STEPS)


class _Watcher(logging.Handler):
    """Follows the log of a run; keeps its progress and its newest line, which Prefect shows as Markdown."""

    def __init__(self, suite: Suite, nodes: PlannedNodes, secrets: Secrets) -> None:
        super().__init__(logging.INFO)
        self._secrets = secrets
        self._suite, self._nodes = suite, nodes
        self._step, self._units = "", 0
        self.now: tuple[float, str] = (0.0, "")

    def emit(self, record: logging.LogRecord) -> None:
        step = getattr(record, "step", None)
        if step in _STEPS and not hasattr(record, "seconds"):
            self._step, self._units = step, 0
        self._units += getattr(record, "units", 0)
        message = self._secrets.out_of_line(record.getMessage())
        self.now = share(self._suite, self._step, self._units, self._nodes), escape(f"{self._step}: {message}"[:300])


@contextmanager
def progress(run: Run) -> Iterator[None]:
    """Show the run's progress in Prefect during the block."""
    try:
        shown = create_progress_artifact(0.0, key=f"progress-{run.cluster.name}", description=run.run_id)
    except Exception as error:
        log.debug("no progress in Prefect: %s", error)
        yield
        return
    assert isinstance(shown, UUID)
    watcher = _Watcher(run.suite, nodes_of(run.cluster), secrets_of(run.cluster))
    over = threading.Event()
    logger = logging.getLogger("seatrial")
    logger.addHandler(watcher)
    sender = threading.Thread(
        target=contextvars.copy_context().run, args=(_send, shown, watcher, over), name="progress", daemon=True
    )
    sender.start()
    try:
        yield
        watcher.now = (100.0, f"{run.run_id}: done")
    finally:
        logger.removeHandler(watcher)
        over.set()
        sender.join(5)


def _send(artifact: UUID, watcher: _Watcher, over: threading.Event) -> None:
    """Send the newest state every two seconds, and the last one."""
    sent, ends = None, False
    while not ends:
        ends = over.wait(_EVERY_S)
        if (now := watcher.now) != sent:
            try:
                update_progress_artifact(artifact, progress=now[0], description=now[1])
                sent = now
            except Exception as error:
                log.debug("progress: %s", error)


def show_files(run: Run, written: Mapping[str, Path], result: RunResult) -> None:
    """Link the report and show the picture, if a browser can reach the run's folder."""
    where = published(run.out)
    if where is None:
        return
    try:
        if "report.html" in written:
            create_link_artifact(f"{where}/report.html", link_text="report", key=f"report-{run.cluster.name}")
        if picture := curve_png(result):
            write_atomic(run.out / PICTURE, picture)
            create_image_artifact(f"{where}/{PICTURE}", key=f"busbw-{run.cluster.name}", description=run.run_id)
    except Exception as error:
        log.warning("Prefect shows no link to the report: %s", error)
