"""How long local nodes take to come up and to reach each other: `python benchmarks/connectivity.py 64 256`.

Wall-clock time, beside the load of the machine before it. Needs root, or user namespaces.
"""

import os
import secrets
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms.local.platform import PLATFORM


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one try, and what the check came to."""

    launch_s: float
    connectivity_s: float
    verdict: str


def once(nodes: int) -> Times:
    """Launch, check and take down that many nodes."""
    cluster = Cluster.model_validate({"name": "bench", "nodes": nodes, "platform": {"kind": "local"}})
    with tempfile.TemporaryDirectory() as folder:
        run = Run(f"bench-{secrets.token_hex(4)}", cluster, load_suite("quick"), Path(folder))
        started = time.perf_counter()
        try:
            testbed = PLATFORM.launch(run)
            up = time.perf_counter()
            check = connectivity(CheckContext(run, testbed)).check
            return Times(up - started, time.perf_counter() - up, f"{check.verdict}: {check.reason}")
        finally:
            PLATFORM.teardown(run.run_id)


def main() -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for nodes in [int(argument) for argument in sys.argv[1:]] or [64]:
        times = once(nodes)
        print(
            f"{nodes} nodes: launch {times.launch_s:.1f} s, connectivity {times.connectivity_s:.1f} s; {times.verdict}"
        )


if __name__ == "__main__":
    main()
