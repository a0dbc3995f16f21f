"""Close runs that were killed: run.json, history and Prefect then say `inconclusive: the run was
killed`.
"""

import logging
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from seatrial.flows.serving.server import provide_prefect_server
from seatrial.history import open_store
from seatrial.model.errors import SeatrialError
from seatrial.model.result import RunResult, verdict_line
from seatrial.runs.at_work import RunAtWork, killed_runs

log = logging.getLogger("seatrial")


def close_killed_runs() -> list[RunResult]:
    """Close each run whose process has gone, and return its result; what cannot be closed is left
    to the next command.

    Nothing heavy is loaded where no run was killed.
    """
    closed = []
    for run in killed_runs():
        try:
            closed += _closed(run)
        except (SeatrialError, OSError) as error:
            log.warning("run %s was killed, and cannot be closed: %s", run.run_id, error)
    return closed


def _closed(run: RunAtWork) -> list[RunResult]:
    """Return the result of a run that was killed; none if it had written its own before.

    Raises SeatrialError.
    """
    if (run.out / "run.json").exists():  # it was killed after its verdict
        run.remove()
        return []
    provide_prefect_server()  # before Prefect is imported, which reads its address once
    from seatrial.tasks.record import write_run_json

    result = replace(run.result_if_killed(), finished=_last_sign(run.out / "logs" / "run.log"))
    with open_store() as store:
        store.save(result, run.out)
    if run.out.is_dir():
        write_run_json(result, run.out)
    _close_flow_run(run.flow_run, result)
    run.remove()
    log.warning(
        "run %s of %s was killed; it is recorded as inconclusive", result.run_id, result.cluster
    )
    return [result]


def _last_sign(log_file: Path) -> datetime:
    """Return when the run last wrote to its log."""
    with suppress(OSError):
        return datetime.fromtimestamp(log_file.stat().st_mtime, UTC)
    return datetime.now(UTC)


def _close_flow_run(flow_run_id: UUID, result: RunResult) -> None:
    """Set the final state of the flow run, unless the server has one, or does not know the run."""
    try:
        from prefect.client.orchestration import get_client

        from seatrial.tasks.check import STATES

        message = verdict_line(result.verdict, result.coverage, result.reason)
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run_id).state
            if state is None or not state.is_final():
                ended = STATES[result.verdict.exit_status]
                client.set_flow_run_state(flow_run_id, ended(message=message), force=True)
    except Exception as error:
        # Of HTTP, Prefect, or its database: the verdict stands in run.json and the history
        log.warning("Prefect does not show that run %s was killed: %s", result.run_id, error)
