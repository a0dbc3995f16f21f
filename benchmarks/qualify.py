"""Sixty days of a cluster at work: how much `seatrial qualify` covers, what it finds, and what it
costs.

    python benchmarks/qualify.py [--trace FILE] [--unjudged] [--order blind] [--days 60]
        [--nodes 200] [--seed 1]

A clock of its own drives what a cluster runs: the pass of `seatrial/qualify`, the store, the judge
and its repeats. Simulated are the scheduler, its jobs (qualify_jobs.py) and the numbers. Jobs take
whole nodes and arrive at the rate of the load. Those that would fill more than 98 % of the nodes in
service wait, and go elsewhere where 500 wait. They get nodes under test last, or with `--order
blind` as if there were no tests. A job that ends a test waits for 1 to 8 s.

Some nodes lose 10 % in one GPU on some day. Repaired nodes come to the gate, and every second
repair has failed.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.qualify_fleet import GPUS, WARM_UP_S, Fleet
from benchmarks.qualify_jobs import at_load, drawn, recorded
from seatrial.config.qualify import Qualify
from seatrial.history import open_store
from seatrial.qualify.choose import Selection
from seatrial.qualify.coverage import Coverage, coverage
from seatrial.qualify.cycle import Cluster, run_pass
from seatrial.qualify.evidence import Evidence


def simulate(fleet: Fleet, days: int) -> None:
    """Make a pass every hour for so many days."""
    fleet.advance(WARM_UP_S)
    settings = Qualify(dry_run=False)
    cluster = Cluster(
        fleet, settings, fleet.test, lambda: fleet.tests, lambda: fleet.now, fleet.wait
    )
    first, began = fleet.at, time.monotonic()
    for hour in range(days * 24):
        fleet.advance(max(fleet.at, first + hour * 3600.0))
        fleet.break_and_repair(1.0)
        run_pass(cluster, Selection(watch=True))
        fleet.tally.load.append(fleet.busy / fleet.in_service)
        if hour % 24 == 23:
            share = covered(fleet).share
            fleet.tally.covered.append(share)
            line = (
                f"day {hour // 24 + 1}: {100 * fleet.tally.load[-1]:.0f} % busy, "
                f"{fleet.tally.tests} tests, covered"
            )
            print(
                f"{line} {100 * share:.1f} %, {time.monotonic() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def covered(fleet: Fleet) -> Coverage:
    """What is covered of the nodes in service."""
    in_service = [node for node in fleet.nodes() if node.state not in ("out", "gated")]
    return coverage(in_service, Evidence.of(fleet.tests, fleet.now), Qualify(), 0, {})


def report(fleet: Fleet) -> list[tuple[str, str, str]]:
    """Rows of what is required, the goal, and what came out."""
    tally, last = fleet.tally, covered(fleet)
    late = sum(delay > 10 for delay in tally.delays_s)
    in_time = sum(tests <= 2 for tests in tally.tests_until_found)
    missed = sum(tests >= 2 for tests in fleet.tests_since.values())
    loads = sorted(tally.load)
    return [
        ("busy nodes, 5th to 95th percentile of hours", "90 to 98 %", _span(loads)),
        (
            "nodes in service that passed within 7 days, after day 7",
            ">= 99 %",
            _percent(min(tally.covered[7:] or [0])),
        ),
        ("jobs delayed by more than 10 s", "0", f"{late}; {len(tally.delays_s)} tests gave way"),
        (
            "losses of 10 % found within two tests",
            "all",
            f"{in_time} of {len(tally.tests_until_found) + missed}",
        ),
        (
            "healthy nodes kept out",
            "<= 1 in 1,000 tests",
            f"{tally.false_keeps} in {tally.healthy_tests} tests",
        ),
        (
            "faulty nodes let in",
            "<= 1 in 100",
            f"{tally.let_in_faulty} in {tally.gate_tests_of_faulty} tests",
        ),
        ("healthy nodes let in", "", str(tally.let_in_healthy)),
        (
            "pairs of leaf switches untested for 30 days",
            "0",
            f"{len(last.overdue_pairs)} of {len(last.pairs)}",
        ),
        (
            "GPU hours of tests in the last week",
            "",
            f"{last.gpu_hours_week:.0f} of {len(last.nodes) * GPUS * 168}",
        ),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _span(values: Sequence[float]) -> str:
    low, high = values[len(values) // 20], values[-len(values) // 20 - 1]
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path)
    parser.add_argument(
        "--unjudged", action="store_true", help="no faults, and each test that ends passes"
    )
    parser.add_argument(
        "--order",
        choices=("random", "lowest", "blind"),
        default="random",
        help="of idle nodes that jobs get",
    )
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument(
        "--load", type=float, default=1.0, help="of the nodes, that the jobs ask for"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    jobs = (
        recorded(options.trace, options.nodes)
        if options.trace
        else drawn(random.Random(options.seed))
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(f"sqlite:///{folder}/history.sqlite") as store,
    ):
        jobs = at_load(jobs, options.load, options.nodes)
        known = None if options.unjudged else store
        fleet = Fleet(options.nodes, jobs, options.order, options.seed, known)
        simulate(fleet, options.days)
        for required, goal, came in report(fleet):
            print(f"| {required} | {goal} | {came} |")


if __name__ == "__main__":
    main()
