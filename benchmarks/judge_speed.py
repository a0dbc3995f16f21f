"""How long judging takes, and how much memory: 10,000 nodes x 100 metrics, and a store with 10 million measurements.

    python benchmarks/judge_speed.py [--nodes 10000] [--metrics 100] [--stored 10000000]

The bounds: a run under 1 s against its peers alone, under 3 s with 30 nights; the last 30 runs of 10,000 measurements
load in under 0.7 s, and a night judged by them takes at most twice as long as in a store that holds nothing else.
"""

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np

from seatrial.fleet.levels import Past
from seatrial.fleet.odds import Floats
from seatrial.fleet.together import judge_fleet

REPEATS = 3


def judge_run(good: Floats, recent: Floats, tonight: Floats) -> int:
    """Judge metric after metric, so that memory stays that of one; how many series are blamed."""
    nodes = tonight.shape[-1]
    peers, blamed = np.zeros(nodes, dtype=np.int64), 0
    for metric, values in enumerate(tonight):
        past = Past(peers, good[:, metric].astype(np.float64), recent[:, metric].astype(np.float64))
        blamed += int(judge_fleet(past, values).each.guilty.sum())
    return blamed


def arrays(nodes: int, metrics: int) -> Iterator[tuple[str, float]]:
    rng = np.random.default_rng(20261121)
    history = 0.03 * rng.standard_normal((30, metrics, nodes), dtype=np.float32)
    tonight = 0.03 * rng.standard_normal((metrics, nodes))
    tonight[:, :: nodes // 50] -= 0.5
    for name, reference, recent in (("peers alone", 0, 0), ("30 nights", 20, 10)):
        taken = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            judge_run(history[:reference], history[20 : 20 + recent], tonight)
            taken.append(time.perf_counter() - started)
        yield f"judge {nodes} nodes x {metrics} metrics, {name}", float(np.median(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--metrics", type=int, default=100)
    options = parser.parse_args()
    for name, seconds in arrays(options.nodes, options.metrics):
        print(f"{name:60} {seconds:6.2f} s")
    print(f"{'most memory used':60} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:6.0f} MiB")


if __name__ == "__main__":
    main()
