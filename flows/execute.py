"""A flow run in a container of its own, as the Jobs of deployments/server/kubernetes start it.

python -m flows.execute      PREFECT__FLOW_RUN_ID says which

It runs the installed code of seatrial's own flows, and asks no deployment where its code is. A pod that is evicted,
deleted or past its deadline gets SIGTERM. Prefect's own command would end by that before the run has taken its nodes
down, or have it begin anew in another Job, past every deadline.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.runner._flow_run_executor import FlowRunExecutorContext

from flows.serving.pinned import entrypoint_of, pinned_executor
from seatrial.model.errors import InputError
from seatrial.system.process import children


async def execute(flow_run_id: UUID) -> int:
    """The exit status of the run's process; the run's own state says what it came to.

    Raises InputError for a run of a flow that is not seatrial's.
    """
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _pass_on)
    async with get_client() as client:
        flow_run = await client.read_flow_run(flow_run_id)
        entrypoint = await entrypoint_of(client, flow_run)
    async with FlowRunExecutorContext() as context:
        execution = await pinned_executor(context, flow_run, entrypoint).submit()
    return execution.status_code or 0 if execution else 1


def _pass_on() -> None:
    """To the run, which is waited for. Where there is none yet, nothing has to be taken down."""
    for pid in children(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    if not children(os.getpid()):
        sys.exit(128 + signal.SIGTERM)


def main() -> int:
    try:
        return asyncio.run(execute(UUID(os.environ["PREFECT__FLOW_RUN_ID"])))
    except InputError as error:
        print(f"seatrial: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
