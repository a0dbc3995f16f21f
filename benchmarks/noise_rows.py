"""The kinds of noise of docs/error-rates.md: simulated ones, and bootstraps of what real nodes measured.

Nothing here knows how the judge works.
"""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from seatrial.simulate.noise import Draws, Floats, Noise
from seatrial.simulate.rows import Metric, of_gpus

ROOT = Path(__file__).parents[1]
LOCAL_NIGHTS = ROOT / "benchmarks" / "data" / "eight_local_nodes.csv"
LOCAL_NODES = 8
GPU_RESULTS = ROOT / "docs" / "gpu-results"

Night = Callable[[int], Floats]  # readings per series -> (M, readings), relative to the level of the metric
Fleet = Callable[[int, np.random.Generator], Night]

FOUR = (
    Metric("matmul", "TFLOP/s", 700.0),
    Metric("memory_copy", "GB/s", 3000.0),
    Metric("host_to_device", "GB/s", 55.0),
    Metric("busbw_plateau", "GB/s", 450.0, conditions={"operation": "all_reduce"}),
)
ONE_GPU = partial(of_gpus, gpus=1)
OF_ONE_GPU = (
    Metric("matmul", "TFLOP/s", 700.0, ONE_GPU),
    Metric("memory_copy", "GB/s", 3000.0, ONE_GPU),
    Metric("host_to_device", "GB/s", 55.0, ONE_GPU),
    Metric("device_to_host", "GB/s", 55.0, ONE_GPU),
)
LOCAL = (
    Metric("matmul", "TFLOP/s", 0.035),
    Metric("memory_copy", "GB/s", 11.0),
    Metric("tcp_egress", "MB/s", 800.0),
    Metric("tcp_ingress", "MB/s", 800.0),
)


@dataclass(frozen=True, slots=True)
class NoiseRow:
    """A kind of noise: `fleet` makes the nights of so many nodes, series in order of `metrics`, then of nodes."""

    fleet: Fleet
    metrics: Sequence[Metric] = FOUR


def simulated(noise: Noise) -> NoiseRow:
    def fleet(nodes: int, rng: np.random.Generator) -> Night:
        return Draws(noise, np.repeat(np.arange(len(FOUR)), nodes), rng).night

    return NoiseRow(fleet)


def gpu_samples(gpu: str, median_of: int) -> NoiseRow:
    """Readings that are medians of so many samples, drawn from those of one real GPU; nodes differ by 1 %."""

    def fleet(nodes: int, rng: np.random.Generator) -> Night:
        pools = [_gpu_pools(gpu)[metric.name] for metric in OF_ONE_GPU]
        level = 1 + 0.01 * rng.standard_normal((len(pools) * nodes, 1))

        def night(readings: int) -> Floats:
            drawn = [np.median(rng.choice(pool, (nodes, readings, median_of)), axis=2) for pool in pools]
            return np.asarray(level * np.concatenate(drawn), dtype=np.float64)

        return night

    return NoiseRow(fleet, OF_ONE_GPU)


@cache
def _gpu_pools(gpu: str) -> Mapping[str, Floats]:
    """The first recorded samples of each metric, over their median."""
    csv.field_size_limit(1_000_000)
    with (GPU_RESULTS / f"{gpu}-nightly.csv").open(newline="") as file:
        sampled = {
            row["metric"]: json.loads(row["samples"]) for row in reversed(list(csv.DictReader(file))) if row["samples"]
        }
    return {metric: np.array(samples) / np.median(samples) for metric, samples in sampled.items()}


def _local_fleet(nodes: int, rng: np.random.Generator) -> Night:
    """Recorded nights in their order, from any one on; eight more nodes are the same eight on other nights.

    A second reading is the first times the ratio of two recorded readings of one night.
    """
    recorded, ratios = _local_nights()
    start = rng.integers(len(recorded), size=-(-nodes // LOCAL_NODES))
    count = 0

    def night(readings: int) -> Floats:
        nonlocal count
        at = (start + count) % len(recorded)
        count += 1
        first = np.concatenate([recorded[one] for one in at], axis=1)[:, :nodes]
        again = np.stack([rng.choice(some, (nodes, readings - 1)) for some in ratios])
        return np.concatenate([first[..., None], first[..., None] * again], axis=2).reshape(-1, readings)

    return night


@cache
def _local_nights() -> tuple[Floats, Sequence[Floats]]:
    """First readings (night, metric, node) over the metric's median; by metric the ratios of later readings."""
    from pandas import read_csv

    rows = read_csv(LOCAL_NIGHTS)
    names = [metric.name for metric in LOCAL]
    first = rows.groupby(["night", "metric", "node"])["value"].first().unstack("node")
    values = np.stack([first.xs(name, level="metric").to_numpy() for name in names], axis=1)
    over_first = rows["value"] / rows.groupby(["night", "metric", "node"])["value"].transform("first")
    again = rows.groupby(["night", "metric", "node"]).cumcount() > 0
    ratios = [over_first[again & (rows["metric"] == name)].to_numpy() for name in names]
    # Of TCP nothing was measured twice, so its readings of a night are all the same.
    return values / np.median(values, axis=(0, 2))[:, None], [some if len(some) else np.ones(1) for some in ratios]


ROWS: Mapping[str, NoiseRow] = {
    "t4": simulated(Noise()),
    "normal": simulated(Noise("normal")),
    "lognormal": simulated(Noise("lognormal")),
    "ar1-5": simulated(Noise(lasting=0.05)),
    "ar1-25": simulated(Noise(lasting=0.25)),
    "drift-1": simulated(Noise(common=0.01)),
    "rounded-5": simulated(Noise(tick=0.05)),
    "loud-2": simulated(Noise(loud=0.02)),
    **{
        f"strays-{share}-at-{loss}-core-{core}": simulated(
            Noise("normal", sd=core / 100, stray=share / 100, stray_loss=loss / 100)
        )
        for share in (1, 2)
        for loss in (20, 75)
        for core in (0.7, 1.5, 3)
    },
    "strays-13-at-75": simulated(Noise(stray=0.13, stray_loss=0.75)),
    **{f"{gpu}-median-of-{count}": gpu_samples(gpu, count) for gpu in ("h100", "h200") for count in (1, 5)},
    "local-nights": NoiseRow(_local_fleet, LOCAL),
}
