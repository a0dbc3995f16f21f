"""The flow `promote`: a run becomes a baseline once a person approves it in Prefect's UI."""

from typing import TYPE_CHECKING

from prefect import flow
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from prefect.runtime import deployment
from prefect.states import Completed, Failed

from seatrial.flows.serving.signals import end_with_parent
from seatrial.history import open_store
from seatrial.model.errors import InputError
from seatrial.model.result import now
from seatrial.runs.approve import Approval, differences_to, promote

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State


class ApprovalForm(RunInput):
    """The form of the approval."""

    approved: bool = False
    by: str = ""
    note: str = ""
    force: str = ""


@flow(name="seatrial-promote", flow_run_name="{run_id}", validate_parameters=True)
def promote_run(run_id: str, poll_s: int = 10) -> "State[int]":
    """Pin a run's measurements once a person approves, within a week.

    Args:
        run_id: The run, an id of `seatrial history`.
        poll_s: Seconds between looks for the answer.
    """
    if deployment.id:  # or it would wait, and pin, after the runner that started it has gone
        end_with_parent()
    with open_store() as store:
        question = differences_to(store, run_id)
    form = ApprovalForm.with_initial_data(description=question, by="", note="", force="")
    answer = pause_flow_run(wait_for_input=form, timeout=7 * 86400, poll_interval=poll_s)
    if answer is None or not answer.approved:
        return Failed(message=f"{run_id}: was not approved, so nothing is pinned")
    if not answer.by:
        return Failed(message=f"{run_id}: the approval has no name (by), so nothing is pinned")
    try:
        with open_store() as store:
            pins = promote(store, run_id, Approval(answer.by, now(), answer.note, answer.force))
    except InputError as error:
        return Failed(message=str(error))
    return Completed(message=f"{run_id}: {len(pins)} numbers pinned by {answer.by}", data=len(pins))
