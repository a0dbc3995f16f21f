"""A flow run in Prefect's UI: its tags, labels, states, log and files.

Nothing here can end a run or hold a measurement up: what Prefect does not take is left out.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.artifacts import create_image_artifact, create_link_artifact, create_markdown_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run as current
from prefect.states import Crashed, Running

from seatrial.config.run import PICTURE, Run, published
from seatrial.model.errors import SeatrialError, classed
from seatrial.model.result import RunResult, exit_status, verdict_line
from seatrial.model.verdict import Verdict
from seatrial.report.paper import curve_png
from seatrial.runs.progress import RedactingFormatter
from seatrial.system.private import write_atomic
from seatrial.tasks.check import STATES
from seatrial.text.escape import escape
from seatrial.text.printable import printable
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

log = logging.getLogger("seatrial")

MOST_CHARACTERS = 2000  # of a message in Prefect
RUN = "seatrial.run"
SLOT = "seatrial.slot"

# Of the runs of this process, also if no server could be reached.
results: list[RunResult] = []
errors: list[Exception] = []


def cluster_tag(cluster: str) -> str:
    return f"cluster:{cluster}"


def introduce(run: Run) -> None:
    """Tag the flow run with its cluster and suite, and label it with its run id."""
    add_tags(cluster_tag(run.cluster.name), f"suite:{printable(run.suite.name)}")
    set_label(UUID(current.id), RUN, run.run_id)


def show_verdict(result: RunResult) -> None:
    """Tag the flow run with its verdict: the state Failed covers several."""
    add_tags(f"verdict:{result.verdict.value}")


def add_tags(*tags: str) -> None:
    """Add tags to those that the flow run has."""
    with _decorated() as client:
        known = client.read_flow_run(UUID(current.id)).tags
        client.update_flow_run(UUID(current.id), tags=sorted({*known, *tags}))


def set_label(flow_run_id: UUID, name: str, value: str) -> None:
    with _decorated() as client:
        client.update_flow_run_labels(flow_run_id, {name: value})


@contextmanager
def show_waiting() -> Iterator[Callable[[str], None]]:
    """Give a function that shows the flow run as Waiting, with a reason, until the block ends."""
    flow_run_id = UUID(current.id)
    waits = False

    def show(reason: str) -> None:
        nonlocal waits
        waits = True
        with _decorated() as client:
            client.set_flow_run_state(
                flow_run_id, Running(name="Waiting", message=reason), force=True
            )

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
    except Exception as error:
        # Errors of HTTP or Prefect, or malformed answers: the verdict must come out after any
        log.debug("Prefect does not show it: %s", classed(error))


def show_campaign(cluster: str, lines: Sequence[str]) -> None:
    """Show how far a campaign is, among the artifacts."""
    try:
        text = "\n".join(f"- {escape(printable(line))}" for line in lines)
        create_markdown_artifact(
            text, key=f"campaign-{cluster}", description="hour, phase, nodes left out"
        )
    except Exception as error:
        log.debug("Prefect does not show the campaign: %s", error)


def state_of(
    result: RunResult, require_baseline: bool = False, message: str | None = None
) -> "State[RunResult]":
    """Return the final state for a result.

    Only a pass is Completed, since Prefect takes the data of other states for errors. The message
    is the result's line, unless another one is given, which begins with the verdict too.
    """
    results.append(result)
    status = exit_status(result.verdict, result.coverage, require_baseline)
    message = message or verdict_line(result.verdict, result.coverage, result.reason)
    return _ended(STATES[status](message=message, data=None if status else result))


def crashed_state(error: Exception) -> "State[Exception]":
    """Return the final state of a run without a verdict."""
    errors.append(error)
    problem = Secrets.of(os.environ).out_of_line(str(error))[:MOST_CHARACTERS]
    if not isinstance(error, SeatrialError):
        problem = f"seatrial itself failed: {type(error).__name__}: {problem}"
        log.error("%s", problem, exc_info=error)
    return _ended(Crashed(message=f"could not measure: {problem}", data=error))


def _ended(state: "State[Any]") -> "State[Any]":
    """Return the state; in a process that a runner or worker started, suppress the traceback of its
    end.
    """
    for name in ("prefect.engine", "prefect.flow_runs"):
        logging.getLogger(name).addFilter(_is_no_end)
    return state


def _is_no_end(record: logging.LogRecord) -> bool:
    """Drop the exception that Prefect logs for a state that is not Completed; its message has been
    logged before.
    """
    return "exited with unexpected exception" not in record.getMessage()


def has_verdict(state: "State[Any]") -> bool:
    """Return whether the state is one of `state_of`: the run was not cut off."""
    return (state.message or "").partition(":")[0].partition(" ")[0] in set(Verdict)


@contextmanager
def forward_logs(secrets: Secrets | None = None) -> Iterator[None]:
    """Send the log to Prefect whatever its settings are, without `secrets` (default: those of the
    environment).

    Also remove them from the log of Prefect's engine and from its tracebacks.
    """
    logger = logging.getLogger("seatrial")
    handler = APILogHandler()
    formatter = RedactingFormatter("%(message)s", secrets or Secrets.of(os.environ))
    handler.setFormatter(formatter)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    # Steps say themselves that they have ended
    logging.getLogger("prefect.task_runs").setLevel(logging.WARNING)

    def redact(record: logging.LogRecord) -> bool:
        record.msg = formatter.format(record)
        record.args = ()
        record.exc_info = record.exc_text = None
        return True

    # The loggers that Prefect's settings give handlers
    engine = ("prefect", "prefect.flow_runs", "prefect.task_runs")
    engine_handlers = {each for name in engine for each in logging.getLogger(name).handlers}
    for each in engine_handlers:
        each.addFilter(redact)
    try:
        yield
    finally:
        for each in engine_handlers:
            each.removeFilter(redact)
        logger.removeHandler(handler)


def show_files(run: Run, written: Mapping[str, Path], result: RunResult) -> None:
    """Link the report and show the picture, if a browser can reach the run's folder."""
    where = published(run.out)
    if where is None:
        return
    try:
        if "report.html" in written:
            report = f"{where}/report.html"
            # Prefect's UI makes a link of it, on the first tab of the run's page
            log.info("report: %s", report)
            create_link_artifact(
                report,
                link_text="report",
                key=f"report-{run.cluster.name}",
                description=f"[Report of run {run.run_id}]({report})",
            )
        if picture := curve_png(result):
            write_atomic(run.out / PICTURE, picture)
            create_image_artifact(
                f"{where}/{PICTURE}", key=f"busbw-{run.cluster.name}", description=run.run_id
            )
    except Exception as error:
        log.warning("Prefect shows no link to the report: %s", error)
