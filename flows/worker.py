"""A worker that is told to stop ends its runs first. Prefect's own kills them, and their nodes stay up.

python -m flows.worker POOL      works for a pool of the type `process`, until Ctrl-C or SIGTERM
"""

import asyncio
import contextlib
import signal
import sys
from functools import partial

from prefect.client.schemas.objects import FlowRun
from prefect.workers.process import ProcessWorker

from flows.serving.graceful_stop import end_runs


async def work(pool: str) -> None:
    """Start the pool's runs until told to stop; then wait for those at work to take their nodes down."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    worker = ProcessWorker(work_pool_name=pool)
    submit = worker.get_and_submit_flow_runs

    async def unless_told() -> list[FlowRun]:
        return [] if told.is_set() else await submit()  # what is due while it ends is for the next one

    worker.get_and_submit_flow_runs = unless_told  # type: ignore[method-assign]
    working = asyncio.create_task(worker.start(printer=partial(print, flush=True)))
    stopping = asyncio.create_task(told.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if told.is_set():
        await asyncio.to_thread(end_runs)
        working.cancel()
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
