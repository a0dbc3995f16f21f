"""Readings of a fleet as tidy rows, in the columns of measurements.csv."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from seatrial.simulate.noise import Floats, Ints

if TYPE_CHECKING:
    from pandas import DataFrame

FIRST_NIGHT = datetime(2026, 1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a run measures on every node, or on every GPU of it, and its healthy level."""

    name: str
    unit: str
    level: float
    gpus: int = 0
    operation: str = ""


def node_name(node: int) -> str:
    return f"node-{node:03}"


def fleet_series(nodes: Sequence[int], metrics: Sequence[Metric]) -> "DataFrame":
    """The series of these nodes, one row each; beside the columns of the rows, `node` and `level`."""
    from pandas import DataFrame

    return DataFrame(
        [
            {
                "metric": metric.name,
                "operation": metric.operation or None,
                "subject_kind": "gpu" if metric.gpus else "node",
                "subject": f"{node_name(node)}/gpu-{gpu}" if metric.gpus else node_name(node),
                "unit": metric.unit,
                "better": "higher",
                "node": node,
                "level": metric.level,
            }
            for metric in metrics
            for node in nodes
            for gpu in range(max(1, metric.gpus))
        ]
    )


def night_rows(
    series: "DataFrame", relative: Floats, night: int, facts: Mapping[str, str] | None = None
) -> "DataFrame":
    """One run: the readings (M, R) of these series, relative to their levels; `facts` are further columns."""
    count, readings = relative.shape
    each: Ints = np.repeat(np.arange(count), readings)
    rows = series.drop(columns=["node", "level"]).take(each)
    started = (FIRST_NIGHT + timedelta(days=night)).isoformat()
    values = (relative * series["level"].to_numpy()[:, None]).ravel()
    return rows.assign(value=values, run_id=f"night-{night:03}", started=started, **(facts or {}))


def all_rows(nights: Sequence["DataFrame"]) -> "DataFrame":
    from pandas import concat

    return concat(nights, ignore_index=True)
