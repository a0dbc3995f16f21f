"""What lists in Prefect's UI show of a run: tags to filter by, the state `Waiting`; and labels that other runs read.

Nothing of it is worth a measurement: a server that is away costs the decoration alone.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
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

RUN, PROCESS, LEASE = "seatrial.run", "seatrial.process", "seatrial.lease"
WAITING = "Waiting"


def cluster_tag(cluster: str) -> str:
    return f"cluster:{cluster}"


def introduce(run: Run) -> None:
    """Tag the flow run with what it checks, and say which process it is."""
    with _decorated() as client:
        tags = {*current.tags, cluster_tag(run.cluster.name), f"suite:{printable(run.suite.name)}"}
        client.update_flow_run(UUID(current.id), tags=sorted(tags))
        label(client, UUID(current.id), {RUN: run.run_id, PROCESS: str(ProcessIdentity.here())})


def show_verdict(result: RunResult) -> None:
    """Tag the flow run with what it came to: Failed alone does not tell slow from wrong."""
    with _decorated() as client:
        tags = {*client.read_flow_run(UUID(current.id)).tags, f"verdict:{result.verdict.value}"}
        client.update_flow_run(UUID(current.id), tags=sorted(tags))


def label(client: SyncPrefectClient, flow_run_id: UUID, labels: Mapping[str, str]) -> None:
    client.update_flow_run_labels(flow_run_id, dict(labels))


@contextmanager
def show_waiting() -> Iterator[Callable[[str], None]]:
    """Call what this gives with a reason, and the flow run is shown as Waiting until the block ends."""
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
