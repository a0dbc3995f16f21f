"""Tags, labels and the state `Waiting` of a flow run, for lists in Prefect's UI and for other runs.

A server that is away costs these alone, never a measurement.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.runtime import flow_run as current
from prefect.states import Running

from seatrial.config.run import Run
from seatrial.model.result import RunResult
from seatrial.runs.cluster_lock import ProcessIdentity
from seatrial.text.printable import printable

log = logging.getLogger("seatrial.shown")

RUN, PROCESS, SLOT = "seatrial.run", "seatrial.process", "seatrial.slot"
WAITING = "Waiting"


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
            client.set_flow_run_state(flow_run_id, Running(name=WAITING, message=reason), force=True)

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
