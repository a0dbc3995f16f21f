"""Readings of a fleet as tidy rows, in the columns of measurements.csv."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from seatrial.simulate.noise import Floats

if TYPE_CHECKING:
    from pandas import DataFrame

FIRST_NIGHT = datetime(2026, 1, 1, 1, tzinfo=UTC)
GPUS = 8  # of a node

# The subjects of a metric in a fleet of so many nodes: kind, name, node, and the GPU of it or the other end of a link.
Subjects = Callable[[int], Iterator[tuple[str, str, int, int]]]


def node_name(node: int) -> str:
    return f"node-{node:03}"


def of_nodes(nodes: int) -> Iterator[tuple[str, str, int, int]]:
    return (("node", node_name(node), node, -1) for node in range(nodes))


def of_gpus(nodes: int, gpus: int = GPUS) -> Iterator[tuple[str, str, int, int]]:
    return (("gpu", f"{node_name(node)}/gpu-{gpu}", node, gpu) for node in range(nodes) for gpu in range(gpus))


def of_links(nodes: int) -> Iterator[tuple[str, str, int, int]]:
    """The links of a ring."""
    ends = [(node, (node + 1) % nodes) for node in range(nodes)]
    return (("link", "--".join(sorted((node_name(a), node_name(b)))), a, b) for a, b in ends)


def of_cluster(nodes: int) -> Iterator[tuple[str, str, int, int]]:
    return iter([("cluster", "simulated", -1, -1)])


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a run, its healthy level and its subjects; numbers of the whole cluster have the condition ranks."""

    name: str
    unit: str
    level: float
    subjects: Subjects = of_nodes
    conditions: Mapping[str, str] = field(default_factory=dict)


def fleet_series(nodes: int, metrics: Sequence[Metric]) -> "DataFrame":
    """The series of a fleet, one row each in order of `metrics`.

    Beside the columns of the tidy rows: `node` and `part` of the subject, `group` (the number of the metric), `level`.
    """
    from pandas import DataFrame

    return DataFrame(
        [
            {
                "metric": metric.name,
                "subject_kind": kind,
                "subject": name,
                "unit": metric.unit,
                "better": "higher",
                **metric.conditions,
                **({"ranks": f"{nodes * GPUS}"} if kind == "cluster" else {}),
                "node": node,
                "part": part,
                "group": group,
                "level": metric.level,
            }
            for group, metric in enumerate(metrics)
            for kind, name, node, part in metric.subjects(nodes)
        ]
    )


def night_rows(series: "DataFrame", relative: Floats, night: int) -> "DataFrame":
    """The rows of one run: readings (M, R) of these series, relative to their levels; NaN: not read so often."""
    which = np.nonzero(np.isfinite(relative))
    rows = series.drop(columns=["node", "part", "group", "level"]).take(which[0])
    values = (relative * series["level"].to_numpy()[:, None])[which]
    started = (FIRST_NIGHT + timedelta(days=night)).isoformat()
    return rows.assign(value=values, run_id=f"night-{night:03}", started=started)


def all_rows(nights: Sequence["DataFrame"]) -> "DataFrame":
    from pandas import concat

    return concat(nights, ignore_index=True)
