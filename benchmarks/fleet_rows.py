"""The kinds of noise of docs/error-rates.md: simulated ones, and bootstraps of what real nodes
measured.

Nothing here knows how the judge works.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seatrial.simulate.rows import (
    RUN,
    Draws,
    Floats,
    Metric,
    Noise,
    all_rows,
    fleet_series,
    night_rows,
    node_name,
    of_gpus,
)

if TYPE_CHECKING:
    from pandas import DataFrame


ROOT = Path(__file__).parents[1]
LOCAL_NIGHTS = ROOT / "benchmarks" / "data" / "eight_local_nodes.csv"
LOCAL_NODES = 8
PUBLIC = {  # runs of a machine or of a cloud in their order: docs/error-rates.md has their sources
    "enso": ROOT / "benchmarks" / "data" / "enso_nightly.csv",
    "kokkos": ROOT / "benchmarks" / "data" / "kokkos_runs.csv",
    "edr": ROOT / "benchmarks" / "data" / "edr_runs.csv",
}
GPU_RESULTS = ROOT / "docs" / "gpu-results"

# Readings per series -> (M, readings), relative to the level of the metric
Night = Callable[[int], Floats]
Fleet = Callable[[int, np.random.Generator], Night]


def of_links(nodes: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield the links of a ring."""
    ends = [(node, (node + 1) % nodes) for node in range(nodes)]
    return (("link", "--".join(sorted((node_name(a), node_name(b)))), a, b) for a, b in ends)


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
LOCAL = (  # in the order of their names
    Metric("matmul", "TFLOP/s", 0.035),
    Metric("memory_copy", "GB/s", 11.0),
    Metric("tcp_egress", "MB/s", 800.0),
    Metric("tcp_ingress", "MB/s", 800.0),
)


@dataclass(frozen=True, slots=True)
class NoiseRow:
    """A kind of noise: `fleet` makes the nights of so many nodes, series in order of `metrics`,
    then of nodes.

    Recorded nights are those of `only_nodes` nodes; `noise` is that of simulated ones. With
    `one_reading` each series is read once a night.
    """

    fleet: Fleet
    metrics: Sequence[Metric] = FOUR
    only_nodes: int | None = None
    noise: Noise | None = None
    one_reading: bool = False

    def after_loss(self, readings: Floats) -> Floats:
        """Readings that lost something, rounded as those of healthy series are."""
        if self.noise is None or not self.noise.tick:
            return readings
        return np.asarray(np.round(readings / self.noise.tick) * self.noise.tick)


def simulated(noise: Noise) -> NoiseRow:
    def fleet(nodes: int, rng: np.random.Generator) -> Night:
        return Draws(noise, np.repeat(np.arange(len(FOUR)), nodes), rng).night

    return NoiseRow(fleet, noise=noise)


def gpu_samples(gpu: str, median_of: int) -> NoiseRow:
    """Readings that are medians of so many samples, drawn from those of one real GPU; nodes differ
    by 1 %.
    """

    def fleet(nodes: int, rng: np.random.Generator) -> Night:
        pools = [_gpu_pools(gpu)[metric.name] for metric in OF_ONE_GPU]
        level = 1 + 0.01 * rng.standard_normal((len(pools) * nodes, 1))

        def night(readings: int) -> Floats:
            drawn = [
                np.median(rng.choice(pool, (nodes, readings, median_of)), axis=2) for pool in pools
            ]
            return np.asarray(level * np.concatenate(drawn), dtype=np.float64)

        return night

    return NoiseRow(fleet, OF_ONE_GPU)


@cache
def _gpu_pools(gpu: str) -> Mapping[str, Floats]:
    """The first recorded samples of each metric, over their median."""
    csv.field_size_limit(1_000_000)
    with (GPU_RESULTS / f"{gpu}-nightly.csv").open(newline="") as file:
        sampled = {
            row["metric"]: json.loads(row["samples"])
            for row in reversed(list(csv.DictReader(file)))
            if row["samples"]
        }
    return {metric: np.array(samples) / np.median(samples) for metric, samples in sampled.items()}


def public_series(source: str) -> NoiseRow:
    """Runs of a public benchmark in their order, one reading each; every node has those from
    another run on.
    """

    def fleet(nodes: int, rng: np.random.Generator) -> Night:
        recorded = _public_runs(source)
        starts, order = rng.integers(len(recorded), size=nodes), count()

        def night(readings: int) -> Floats:
            relative = np.full((recorded.shape[1] * nodes, readings), np.nan)
            relative[:, 0] = recorded[(starts + next(order)) % len(recorded)].T.ravel()
            return relative

        return night

    return NoiseRow(fleet, FOUR, one_reading=True)


@cache
def _public_runs(source: str) -> Floats:
    """(T, 4) the recorded rates over the median of the 31 runs around each, which takes changes of
    software away.
    """
    with PUBLIC[source].open(newline="") as file:
        return np.array(
            [[float(value) for value in line[1:]] for line in list(csv.reader(file))[1:]]
        )


def _recorded_fleet(nodes: int, rng: np.random.Generator) -> Night:
    """The recorded nights in their order, from any one on, with the readings that were taken."""
    recorded, start = _local_nights(), int(rng.integers(len(_local_nights())))
    order = count(start)
    return lambda readings: (
        recorded[next(order) % len(recorded), ..., :readings].reshape(nodes * len(LOCAL), -1).copy()
    )


def _drawn_fleet(nodes: int, rng: np.random.Generator) -> Night:
    """Each reading is any recorded one of its metric, over the median of the node that it was taken
    on.
    """
    of_node = _local_nights() / np.nanmedian(_local_nights(), axis=(0, 3))[None, ..., None]
    pools = [pool[np.isfinite(pool)] for pool in of_node.swapaxes(0, 1).reshape(len(LOCAL), -1)]
    return lambda readings: np.concatenate([rng.choice(pool, (nodes, readings)) for pool in pools])


@cache
def _local_nights() -> Floats:
    """The recorded readings (night, metric, node, reading) over the median of their metric; NaN:
    not taken.
    """
    from pandas import read_csv

    rows = (
        read_csv(LOCAL_NIGHTS).set_index(["night", "metric", "node", "nth"])["value"].unstack("nth")
    )
    values = rows.to_numpy(dtype=np.float64).reshape(-1, len(LOCAL), LOCAL_NODES, rows.shape[1])
    return np.asarray(
        values / np.nanmedian(values, axis=(0, 2, 3))[:, None, None], dtype=np.float64
    )


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
    **{f"{gpu}-median-of-{of}": gpu_samples(gpu, of) for gpu in ("h100", "h200") for of in (1, 5)},
    "local-nights": NoiseRow(_recorded_fleet, LOCAL, only_nodes=LOCAL_NODES),
    "local-drawn": NoiseRow(_drawn_fleet, LOCAL),
    **{f"public-{source}": public_series(source) for source in PUBLIC},
}


WITH_LINKS = (*RUN, Metric("tcp_stream", "MB/s", 5000.0, of_links))
READINGS = 8

Left = Callable[["DataFrame"], Floats]  # of the series of a fleet: the share of each that is left


@dataclass(frozen=True, slots=True)
class Case:
    """After so many healthy nights of `before` nodes, `nights` of `after` nodes in which `left` of
    each series is left.

    `guilty` are the nodes that may be suspected; without any, the nights are healthy and must pass.
    """

    before: int
    after: int
    left: Left
    guilty: range = range(0)
    healthy_nights: int = 8
    nights: int = 9
    metrics: Sequence[Metric] = RUN
    is_fault: bool = True


def _nothing(series: "DataFrame") -> Floats:
    return np.ones(len(series))


def _of_nodes(nodes: range, left: float) -> Left:
    return lambda series: np.where(series["node"].isin(nodes), left, 1.0)


def _sweeps_at_half(series: "DataFrame") -> Floats:
    return np.where(series["subject_kind"] == "cluster", 0.5, 1.0)


def _clock_cap(series: "DataFrame") -> Floats:
    of_node = (series["node"] == 5) & series["metric"].isin(["matmul", "busbw_plateau"])
    return np.where(of_node, 0.8, 1.0)


def _first_gpus(series: "DataFrame") -> Floats:
    return np.where((series["metric"] == "matmul") & (series["part"] == 0), 0.8, 1.0)


def _slow_batch(series: "DataFrame") -> Floats:
    on_network = series["metric"].isin(["tcp_egress", "tcp_ingress", "tcp_stream"])
    ends = series["node"].isin(range(4, 8)) | (
        (series["subject_kind"] == "link") & series["part"].isin(range(4, 8))
    )
    return np.where(on_network & ends, 0.6, 1.0)


def _slow_rack(series: "DataFrame") -> Floats:
    tcp = series["metric"].isin(["tcp_egress", "tcp_ingress"]) & series["node"].isin(range(8))
    return np.where(tcp, 0.6, np.where(series["subject_kind"] == "cluster", 0.7, 1.0))


CASES: Mapping[str, Case] = {
    "8 nodes become 16, all healthy": Case(8, 16, _nothing, is_fault=False),
    "16 nodes become 32, all healthy": Case(16, 32, _nothing, is_fault=False),
    "2 nodes become 5, all healthy": Case(2, 5, _nothing, is_fault=False),
    "20 new nodes at half speed beside 16": Case(
        16, 36, _of_nodes(range(16, 36), 0.5), range(16, 36)
    ),
    "3 new nodes at half speed beside 2": Case(2, 5, _of_nodes(range(2, 5), 0.5), range(2, 5)),
    "16 new nodes 10 % slower beside 16": Case(
        16, 32, _of_nodes(range(16, 32), 0.9), range(16, 32)
    ),
    "16 nodes become 32, every sweep at half": Case(16, 32, _sweeps_at_half),
    "3 of 16 nodes 30 % slow since the first night": Case(
        16, 16, _of_nodes(range(3), 0.7), range(3), 0
    ),
    "a clock cap of -20 % on one node": Case(16, 16, _clock_cap, range(5, 6)),
    "gpu-0 of every node 20 % slow": Case(16, 16, _first_gpus, range(16)),
    "slow links of four neighbours, -40 %": Case(
        16, 16, _slow_batch, range(4, 8), metrics=WITH_LINKS
    ),
    "a rack's TCP at -40 %, sweeps at -30 %": Case(32, 32, _slow_rack, range(8)),
}


def case_rows(case: Case, rng: np.random.Generator) -> "DataFrame":
    before, after = (fleet_series(nodes, case.metrics) for nodes in (case.before, case.after))
    there = (after["node"] < case.before).to_numpy()
    draws, left = Draws(Noise(), after["group"].to_numpy(), rng), case.left(after)[:, None]
    earlier = [
        night_rows(before, draws.night(READINGS)[there], night)
        for night in range(case.healthy_nights)
    ]
    nights = range(case.healthy_nights, case.healthy_nights + case.nights)
    return all_rows(
        [*earlier, *(night_rows(after, draws.night(READINGS) * left, night) for night in nights)]
    )
