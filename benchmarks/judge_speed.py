"""How long judging takes, and how much memory: 10,000 nodes x 100 metrics, and a store with 10 million measurements.

    python benchmarks/judge_speed.py [--nodes 10000] [--metrics 100] [--stored 10000000]

The bounds: a run under 1 s against its peers alone, under 2 s with 30 nights; the last 30 runs of 10,000 measurements
load in under 0.7 s, and a night judged by them takes at most twice as long as in a store that holds nothing else.
"""

import argparse
import resource
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seatrial.history import open_store
from seatrial.history.store import Store
from seatrial.judge.baselines.grouping import medians
from seatrial.judge.baselines.learned import learn
from seatrial.judge.baselines.nights import nights_before
from seatrial.judge.fleet.levels import SeriesHistory
from seatrial.judge.fleet.modes import find_modes
from seatrial.judge.fleet.odds import Floats
from seatrial.judge.fleet.peer_groups import judge_fleet
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict

REPEATS = 3
PER_RUN = 10_000
START = datetime(2026, 1, 1, tzinfo=UTC)


Taken = NDArray[np.float64]  # s: by the clock, and of a processor, which does not mind what else the machine does


def clocks() -> Taken:
    return np.array([time.perf_counter(), time.process_time()])


def judge_run(good: Floats, recent: Floats, tonight: Floats) -> int:
    """Look for groups and judge, metric after metric, so that memory stays that of one; how many series are blamed."""
    nodes = tonight.shape[-1]
    peers, blamed = np.zeros(nodes, dtype=np.int64), 0
    for metric, values in enumerate(tonight):
        find_modes(medians(good[:, metric].T) if len(good) else values)
        past = SeriesHistory(peers, good[:, metric].astype(np.float64), recent[:, metric].astype(np.float64))
        blamed += int(judge_fleet(past, values).each.guilty.sum())
    return blamed


def arrays(nodes: int, metrics: int) -> Iterator[tuple[str, Taken]]:
    rng = np.random.default_rng(20261121)
    history = 0.03 * rng.standard_normal((30, metrics, nodes), dtype=np.float32)
    tonight = 0.03 * rng.standard_normal((metrics, nodes))
    tonight[:, :: nodes // 50] -= 0.5
    for name, reference, recent in (("peers alone", 0, 0), ("30 nights", 20, 10)):
        taken = []
        for _ in range(REPEATS):
            started = clocks()
            judge_run(history[:reference], history[20 : 20 + recent], tonight)
            taken.append(clocks() - started)
        yield f"judge {nodes} nodes x {metrics} metrics, {name}", np.median(taken, axis=0)


def a_run(number: int) -> RunResult:
    """50 nodes with 200 metrics each."""
    rng = np.random.default_rng(number)
    measured = tuple(
        Measurement("busbw", value, "GB/s", Subject("node", f"node-{n % 50}"), {"message_bytes": n // 50})
        for n, value in enumerate(400 * np.exp(0.03 * rng.standard_normal(PER_RUN)))
    )
    started = START + timedelta(hours=2 * number)
    check = Check("collectives", Verdict.PASS, "", 1.0, measured)
    return RunResult(f"run-{number:06}", "lab", "nightly", started, started, Verdict.PASS, "", checks=[check])


def filled(store: Store, url: str, runs: int) -> None:
    """One run saved the proper way, and as many more like it as asked for, copied inside the database."""
    store.save(a_run(0), Path())
    row = "cluster, suite, '{}', '{}', verdict, reason, fingerprint, out FROM runs WHERE run_id = 'run-000000'"
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        for number in range(1, runs):
            run_id, at = f"run-{number:06}", START + timedelta(hours=2 * number)
            columns = "run_id, cluster, suite, started, finished, verdict, reason, fingerprint, out"
            connection.execute(f"INSERT INTO runs ({columns}) SELECT '{run_id}', {row.format(at, at)}")
            connection.execute(
                f"INSERT INTO readings SELECT '{run_id}', series_id, nth, value * (1 + (random() % 1000) / 3e4),"
                " verdict FROM readings WHERE run_id = 'run-000000'"
            )


def stored(count: int) -> Iterator[tuple[str, Taken]]:
    """How long the last 30 runs take to load, and a run to judge by them: in a small store and in a full one."""
    tonight = a_run(1_000_000)
    measured = tonight.checks[0].measurements
    names = sorted(m.series() for m in measured)
    for runs in (30, max(30, count // PER_RUN)):
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/history.sqlite"
            with open_store(url) as store:
                filled(store, url, runs)
                now = START + timedelta(hours=2 * runs)
                load, judge = [], []
                for _ in range(REPEATS):
                    started = clocks()
                    nights = nights_before(store, "lab", "nightly", {}, names, now)
                    load.append(clocks() - started)
                    learn(measured, nights)
                    judge.append(clocks() - started)
        many = f"{runs * PER_RUN / 1e6:g} M stored"
        yield f"load 30 runs of {PER_RUN} measurements, {many}", np.median(load, axis=0)
        yield f"load and judge a run of {PER_RUN}, {many}", np.median(judge, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--metrics", type=int, default=100)
    parser.add_argument("--stored", type=int, default=1_000_000, help="Measurements in the store.")
    options = parser.parse_args()
    for name, seconds in chain(arrays(options.nodes, options.metrics), stored(options.stored)):
        print(f"{name:60} {seconds[0]:6.2f} s, {seconds[1]:.2f} s of a processor", flush=True)
    print(f"{'most memory used':60} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:6.0f} MiB")


if __name__ == "__main__":
    main()
