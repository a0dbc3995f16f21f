"""A worker of seatrial's own flows. It is not Prefect's own, for two reasons.

Told to stop, it ends its runs first; Prefect's kills them, and their nodes stay up. And it runs what ships with
seatrial, whatever has been made of the deployments and of the pool since (flows/serving/pinned.py).

python -m flows.worker POOL [process|kubernetes]      works for a pool of that type, until Ctrl-C or SIGTERM
"""

import asyncio
import contextlib
import os
import signal
import sys
from abc import ABC
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from prefect.client.schemas.objects import FlowRun, WorkPool
from prefect.runner._flow_run_executor import FlowRunExecutorContext
from prefect.workers.base import BaseWorker
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from flows.serving.graceful_stop import end_runs
from flows.serving.pinned import entrypoint_of, job_template, pinned_executor

if TYPE_CHECKING:
    from prefect.runner._process_manager import ProcessHandle

Worker = BaseWorker[Any, Any, Any]


class PinnedProcessWorker(ProcessWorker, ABC):  # as an ABC it does not register as Prefect's worker of that type
    """Runs seatrial's own flows as children of this process."""

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,  # of which nothing is used: who may edit a deployment wrote it
        task_status: "anyio.abc.TaskStatus[int] | None" = None,
    ) -> ProcessWorkerResult:
        """Raises InputError for a flow that is not seatrial's."""
        status: anyio.abc.TaskStatus[int] = task_status or anyio.TASK_STATUS_IGNORED
        entrypoint = await entrypoint_of(self.client, flow_run)
        async with FlowRunExecutorContext() as context, anyio.create_task_group() as group:
            executor = pinned_executor(context, flow_run, entrypoint)
            results = []

            async def submit(*, task_status: "anyio.abc.TaskStatus[ProcessHandle]" = anyio.TASK_STATUS_IGNORED) -> None:
                results.append(await executor.submit(task_status=task_status))

            handle = await group.start(submit)
            status.started(handle.pid)
        code = results[0].status_code if results and results[0] else None
        if code is None:
            raise RuntimeError("the process of the flow run did not start")
        return ProcessWorkerResult(status_code=code, identifier=str(handle.pid))


def kubernetes_worker(pool: str, image: str) -> Worker:
    """A worker whose Jobs are those of the template that ships, with `image`."""
    from prefect_kubernetes.worker import KubernetesWorker

    template = job_template(image)

    class PinnedKubernetesWorker(KubernetesWorker, ABC):  # type: ignore[misc]  # prefect_kubernetes has no types
        @property
        def work_pool(self) -> WorkPool:
            pool: WorkPool = super().work_pool
            return pool.model_copy(update={"base_job_template": template})

    worker: Worker = PinnedKubernetesWorker(work_pool_name=pool)
    return worker


async def work(worker: Worker) -> None:
    """Start the pool's runs until told to stop; then wait for those at work to take their nodes down."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    submit = worker.get_and_submit_flow_runs

    async def unless_stopped() -> list[FlowRun]:
        return [] if stop.is_set() else await submit()  # what is due while it ends is for the next one

    worker.get_and_submit_flow_runs = unless_stopped  # type: ignore[method-assign]
    working = asyncio.create_task(worker.start(printer=partial(print, flush=True)))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await asyncio.to_thread(end_runs)
        working.cancel()
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


def main(pool: str, kind: str = "process") -> None:
    match kind:
        case "process":
            worker: Worker = PinnedProcessWorker(work_pool_name=pool)
        case "kubernetes":
            worker = kubernetes_worker(pool, os.environ["SEATRIAL_IMAGE"])
        case _:
            sys.exit(f"seatrial: {kind}: unknown type of work pool; legal: process, kubernetes")
    asyncio.run(work(worker))


if __name__ == "__main__":
    main(*sys.argv[1:])
