"""A run at work: its record, from which the next command closes it if it is killed, and its log."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

from prefect.runtime import flow_run as current

from seatrial.config.run import Run, secrets_of
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.runs.at_work import recorded
from seatrial.runs.progress import log_file
from seatrial.runs.run_state import RunState


@contextmanager
def at_work(run: Run) -> Iterator[None]:
    """Keep the record and write the log while the context lasts; no log is without a record."""
    run_state = RunState(run)
    reason = Reason.of("run-killed")
    run_state.add(Check("run", Verdict.INCONCLUSIVE, reason))
    if_killed = json.dumps(replace(run_state.result(), reason=reason).to_dict(), allow_nan=False)
    with (
        recorded(run.run_id, if_killed, run.out, UUID(current.id)),
        log_file(run.logs / "run.log", secrets_of(run.cluster)),
    ):
        yield
