"""The jobs of a simulated cluster at work (qualify.py): those of a trace, or drawn as published
summaries have them.

Of a trace, nodes, durations and times between arrivals are those of its GPU jobs, over and over: a
CSV file with the columns `gpu_num`, `node_num`, `interval` and `run_time`, such as the 15,000 jobs
of Helios in github.com/DIR-LAB/Gen-Parallel-Workloads. Else durations are log-normal with Helios'
median of 206.0 s and mean of 6651.7 s (github.com/InternLM/AcmeTrace, data/cluster_summary.csv;
traces of Hu et al., SC '21), and arrivals Poisson's.
"""

import csv
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_S = 86400.0  # of a job: a time limit of a day, as partitions have it
_MEDIAN_S, _MEAN_S = 206.0, 6651.7
# Whole nodes of a job, and their share
_SIZES = ((1, 0.70), (2, 0.12), (4, 0.09), (8, 0.06), (16, 0.03))
_LARGEST = 0.1  # of the nodes: a job of more is for another cluster


@dataclass(frozen=True)
class Job:
    """A job, and the seconds since the one before it came."""

    after_s: float
    nodes: int
    duration_s: float


def recorded(file: Path, nodes: int) -> Iterator[Job]:
    """The GPU jobs of a trace without those that are too large, over and over."""
    jobs, after_s = [], 0.0
    with file.open(newline="") as rows:
        for row in csv.DictReader(rows):
            after_s += float(row["interval"])
            size = int(row["node_num"])
            if int(row["gpu_num"]) > 0 and 0 < size <= _LARGEST * nodes:
                jobs.append(Job(after_s, size, min(float(row["run_time"]), MOST_S)))
                after_s = 0.0
    return itertools.cycle(jobs)


def drawn(rng: random.Random) -> Iterator[Job]:
    """Jobs as published summaries have them."""
    sigma = math.sqrt(2 * math.log(_MEAN_S / _MEDIAN_S))
    sizes, shares = [size for size, _ in _SIZES], [share for _, share in _SIZES]
    while True:
        duration_s = min(rng.lognormvariate(math.log(_MEDIAN_S), sigma), MOST_S)
        yield Job(rng.expovariate(1.0), rng.choices(sizes, shares)[0], duration_s)


def at_load(jobs: Iterator[Job], load: float, nodes: int) -> Iterator[Job]:
    """The jobs at such a rate that they would take `load` times the nodes."""
    some = list(itertools.islice(jobs, 10_000))
    node_s = sum(job.nodes * job.duration_s for job in some)
    scale = node_s / (load * nodes * sum(job.after_s for job in some))
    for job in itertools.chain(some, jobs):
        yield Job(job.after_s * scale, job.nodes, job.duration_s)
