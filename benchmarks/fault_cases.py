"""Fleets that grow, and one cause that shows in many numbers: which verdict every night, and how many suspects.

Nothing here knows how the judge works.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seatrial.simulate.rows import RUN, Draws, Floats, Metric, Noise, all_rows, fleet_series, night_rows, of_links

if TYPE_CHECKING:
    from pandas import DataFrame

WITH_LINKS = (*RUN, Metric("tcp_stream", "MB/s", 5000.0, of_links))
READINGS = 8

Left = Callable[["DataFrame"], Floats]  # of the series of a fleet: the share of each that is left


@dataclass(frozen=True, slots=True)
class Case:
    """After so many healthy nights of `before` nodes, `nights` of `after` nodes in which `left` of each series is left.

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
    ends = series["node"].isin(range(4, 8)) | ((series["subject_kind"] == "link") & series["part"].isin(range(4, 8)))
    return np.where(on_network & ends, 0.6, 1.0)


def _slow_rack(series: "DataFrame") -> Floats:
    tcp = series["metric"].isin(["tcp_egress", "tcp_ingress"]) & series["node"].isin(range(8))
    return np.where(tcp, 0.6, np.where(series["subject_kind"] == "cluster", 0.7, 1.0))


CASES: Mapping[str, Case] = {
    "8 nodes become 16, all healthy": Case(8, 16, _nothing, is_fault=False),
    "16 nodes become 32, all healthy": Case(16, 32, _nothing, is_fault=False),
    "2 nodes become 5, all healthy": Case(2, 5, _nothing, is_fault=False),
    "20 new nodes at half speed beside 16": Case(16, 36, _of_nodes(range(16, 36), 0.5), range(16, 36)),
    "3 new nodes at half speed beside 2": Case(2, 5, _of_nodes(range(2, 5), 0.5), range(2, 5)),
    "16 new nodes 10 % slower beside 16": Case(16, 32, _of_nodes(range(16, 32), 0.9), range(16, 32)),
    "16 nodes become 32, every sweep at half": Case(16, 32, _sweeps_at_half),
    "3 of 16 nodes 30 % slow since the first night": Case(16, 16, _of_nodes(range(3), 0.7), range(3), 0),
    "a clock cap of -20 % on one node": Case(16, 16, _clock_cap, range(5, 6)),
    "gpu-0 of every node 20 % slow": Case(16, 16, _first_gpus, range(16)),
    "slow links of four neighbours, -40 %": Case(16, 16, _slow_batch, range(4, 8), metrics=WITH_LINKS),
    "a rack's TCP at -40 %, sweeps at -30 %": Case(32, 32, _slow_rack, range(8)),
}


def case_rows(case: Case, rng: np.random.Generator) -> "DataFrame":
    before, after = (fleet_series(nodes, case.metrics) for nodes in (case.before, case.after))
    there = (after["node"] < case.before).to_numpy()
    draws, left = Draws(Noise(), after["group"].to_numpy(), rng), case.left(after)[:, None]
    earlier = [night_rows(before, draws.night(READINGS)[there], night) for night in range(case.healthy_nights)]
    nights = range(case.healthy_nights, case.healthy_nights + case.nights)
    return all_rows([*earlier, *(night_rows(after, draws.night(READINGS) * left, night) for night in nights)])
