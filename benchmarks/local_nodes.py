"""How long local nodes take to come up, to reach each other and to go: `python
benchmarks/local_nodes.py 4 64`.

Medians of five in seconds of wall-clock time, beside the load of the machine. Needs root, or user
namespaces.
"""

import os
import secrets
import statistics
import sys
import tempfile
import time
from pathlib import Path

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.verdict import Verdict
from seatrial.platforms.local.platform import PLATFORM

REPEATS = 5


def once(nodes: int) -> tuple[float, float, float]:
    """Seconds of launch, of the check `connectivity` and of teardown."""
    cluster = Cluster.model_validate(
        {"name": "bench", "nodes": nodes, "platform": {"kind": "local"}}
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run(f"bench-{secrets.token_hex(4)}", cluster, load_suite("quick"), Path(folder))
        started = time.perf_counter()
        try:
            testbed = PLATFORM.launch(run)
            up = time.perf_counter()
            check = connectivity(CheckContext(run, testbed)).check
            checked = time.perf_counter()
        finally:
            PLATFORM.teardown(run.run_id)
    if check.verdict is not Verdict.PASS:
        print(f"{nodes} nodes: {check.verdict}: {check.reason}")
    return up - started, checked - up, time.perf_counter() - checked


def main() -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("nodes  launch  connectivity  teardown")
    for nodes in [int(argument) for argument in sys.argv[1:]] or [4, 64]:
        launch, check, teardown = map(
            statistics.median, zip(*(once(nodes) for _ in range(REPEATS)), strict=True)
        )
        print(f"{nodes:5}  {launch:6.2f}  {check:12.2f}  {teardown:8.2f}", flush=True)


if __name__ == "__main__":
    main()
