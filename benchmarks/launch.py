"""How long local testbeds take to come up and to go: `python benchmarks/launch.py 4 64`. Medians of five, in s."""

import secrets
import statistics
import sys
import time
from pathlib import Path

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms.local.platform import PLATFORM

REPEATS = 5


def once(nodes: int) -> tuple[float, float]:
    """Seconds until every node's sshd answers, and seconds until nothing of them is left."""
    cluster = Cluster.model_validate({"name": "bench", "nodes": nodes, "platform": {"kind": "local"}})
    run = Run(f"bench-{secrets.token_hex(4)}", cluster, load_suite("quick"), Path("/nowhere"))
    started = time.perf_counter()
    try:
        PLATFORM.launch(run)
        up = time.perf_counter()
    finally:
        PLATFORM.teardown(run.run_id)
    return up - started, time.perf_counter() - up


def main() -> None:
    print("nodes  launch  teardown  (median of 5, s)")
    for nodes in [int(argument) for argument in sys.argv[1:]] or [4, 64]:
        launches, teardowns = zip(*(once(nodes) for _ in range(REPEATS)), strict=True)
        print(f"{nodes:5}  {statistics.median(launches):6.2f}  {statistics.median(teardowns):8.2f}")


if __name__ == "__main__":
    main()
