"""How long a run of a fleet takes to save and to judge by 30 earlier ones, and how much memory that
needs.

    python benchmarks/judge_speed.py [NODES ...]

Each run has eight numbers of every node, and the store is a file of SQLite. The bounds, in seconds
of a processor: 512 nodes are compared in 2 s, 4,096 in 10 s and 500 MB, and saved in 10 s.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from seatrial.history import open_store
from seatrial.history.machines import Machines
from seatrial.history.past import RunContext, past_runs
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Judgement, RunResult
from seatrial.model.setup import Setup, hardware_by_node
from seatrial.model.verdict import Verdict
from seatrial.tasks.check import compare

NODES = (512, 4096)
METRICS = {
    "matmul": "TFLOP/s",
    "memory": "GB/s",
    "host_to_device": "GB/s",
    "device_to_host": "GB/s",
}
METRICS |= {
    "busbw_plateau": "GB/s",
    "tcp_egress": "MB/s",
    "tcp_ingress": "MB/s",
    "step": "samples/s",
}
NIGHTS = 30
NOISE = 0.01
SLOW = 0.7  # of one node in the run that is judged
START = datetime(2026, 1, 1, tzinfo=UTC)


def a_run(number: int, nodes: int, slow: int | None = None) -> RunResult:
    """A night on which every number passed."""
    values = 400 * np.exp(
        NOISE * np.random.default_rng(number).standard_normal((len(METRICS), nodes))
    )
    if slow is not None:
        values[:, slow] *= SLOW
    measured = tuple(
        Measurement(
            metric, value, unit, Subject("node", f"node-{n:04}"), {"dtype": "bf16"}, (value,) * 3
        )
        for (metric, unit), row in zip(METRICS.items(), values.tolist(), strict=True)
        for n, value in enumerate(row)
    )
    judged = tuple(Judgement(m, Verdict.PASS, Reason(), "history") for m in measured)
    check = Check("devices", Verdict.PASS, Reason(), 1.0, measured, judged)
    hardware = [
        {
            "name": f"node-{n:04}",
            "gpu_model": "H100",
            "hardware_ids": [f"{n:012x}{part:04x}" for part in range(9)],
        }
        for n in range(nodes)
    ]
    at = START + timedelta(days=number)
    return RunResult(
        f"run-{number:02}",
        "lab",
        "nightly",
        at,
        at,
        Verdict.PASS,
        Reason(),
        hardware,
        checks=[check],
    )


def seconds(action: Callable[[], object]) -> float:
    """Of a processor, which does not count what else the machine does."""
    started = time.process_time()
    action()
    return time.process_time() - started


def measure(nodes: int) -> str:
    tonight = a_run(NIGHTS, nodes, slow=7)
    checks = [check.unjudged() for check in tonight.checks]
    context = RunContext("lab", "nightly", {}, tonight.started, tonight.nodes)
    names = {m.series(): m for m in checks[0].measurements}
    machines = Machines(hardware_by_node(tonight.nodes), names)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(f"sqlite:///{folder}/history.sqlite") as store,
    ):
        saves = [
            seconds(partial(store.save, a_run(number, nodes), Path())) for number in range(NIGHTS)
        ]
        load = seconds(
            lambda: past_runs(store, "lab", "nightly", {}, list(names), tonight.started, machines)
        )
        whole = seconds(lambda: compare(checks, Setup("H100-SXM", nodes, 8, 8), store, context))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{nodes:5} nodes x {len(METRICS)}, {NIGHTS} nights: save {saves[0]:.2f} s, then "
        f"{np.median(saves):.2f} s; "
        f"compare {whole:.2f} s, of that read {load:.2f} s; most memory {memory:.0f} MiB"
    )


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or NODES
    # Memory is that of one size
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for line in pool.map(measure, sizes):
            print(line, flush=True)


if __name__ == "__main__":
    main()
