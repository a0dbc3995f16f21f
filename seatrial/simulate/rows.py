"""Readings of a fleet as tidy rows, in the columns of measurements.csv."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import DataFrame


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PERSISTENCE = 0.9
LOUDNESS = 3.0
FIRST_NIGHT = datetime(2026, 1, 1, 1, tzinfo=UTC)
GPUS = 8  # of a node
# The subjects of a metric in a fleet of so many nodes: kind, name, node, and the GPU of it or the
# other end of a link.
Parts = Iterator[tuple[str, str, int, int]]
Subjects = Callable[[int], Parts]
FACTS = {"model": "H100-SXM", "driver": "570.86", "clock": "1980"}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast")
KINDS: Mapping[str, Mapping[str, float]] = {
    "slow node": {"5 %": 0.05, "10 %": 0.1, "20 %": 0.2},
    "slow GPU": {"5 %": 0.05, "10 %": 0.1, "20 %": 0.2},
    "slow NVLink": {"10 %": 0.1, "50 %": 0.5},
    "slow NIC": {"10 %": 0.1, "50 %": 0.5},
    "flaky node": {"15 %, every third night": 0.15},
    "slow decay": {"1 % per week": 0.01},
    "upgrade": {"6 %": 0.06, "15 %": 0.15},
}


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of healthy readings; shares are of readings, of series or of the variance `sd`
    squared.

    One reading has the relative standard deviation `sd`; "t4" is Student's t with 4 degrees of
    freedom. `spread` is the permanent difference between nodes. `lasting` is the share of the
    variance that all readings of a night have in common and that follows an AR(1) with
    `PERSISTENCE` from night to night; `common` is the standard deviation of a drift of that kind
    which all series of a metric have in common. A share `loud` of the series has three times the
    noise. A share `stray` of the readings loses `stray_loss`. `tick` is the unit to which readings
    are rounded.
    """

    shape: Literal["t4", "normal", "lognormal"] = "t4"
    sd: float = 0.03
    spread: float = 0.01
    lasting: float = 0.0
    common: float = 0.0
    loud: float = 0.0
    stray: float = 0.0
    stray_loss: float = 0.0
    tick: float = 0.0


@dataclass(slots=True)
class Draws:
    """Readings of M series, night after night; `metric` (M) numbers the metric of each series."""

    noise: Noise
    metric: Ints
    rng: np.random.Generator
    _level: Floats = field(init=False)
    _sd: Floats = field(init=False)
    _lasting: Floats = field(init=False)
    _common: Floats = field(init=False)

    def __post_init__(self) -> None:
        noise, series = self.noise, len(self.metric)
        self._level = noise.spread * self.rng.standard_normal(series)
        self._sd = noise.sd * np.where(self.rng.random(series) < noise.loud, LOUDNESS, 1.0)
        self._lasting = self.rng.standard_normal(series)
        self._common = self.rng.standard_normal(int(self.metric.max()) + 1)

    def night(self, readings: int) -> Floats:
        """Draw the next night's readings of all series (M, readings), 1 being the level of the
        metric.
        """
        noise = self.noise
        self._lasting, self._common = self._next(self._lasting), self._next(self._common)
        night = (
            self._level
            + self._sd * np.sqrt(noise.lasting) * self._lasting
            + noise.common * self._common[self.metric]
        )
        own = self._sd * np.sqrt(1 - noise.lasting)
        if noise.shape == "t4":
            # Its variance is 2
            standard = self.rng.standard_t(4, (len(own), readings)) / np.sqrt(2)
        else:
            standard = self.rng.standard_normal((len(own), readings))
        relative = night[:, None] + own[:, None] * standard
        values = 1 + relative if noise.shape == "normal" else np.exp(relative)
        if noise.stray:
            values = values * np.where(
                self.rng.random(values.shape) < noise.stray, 1 - noise.stray_loss, 1.0
            )
        return np.asarray(
            np.round(values / noise.tick) * noise.tick if noise.tick else values, dtype=np.float64
        )

    def _next(self, state: Floats) -> Floats:
        fresh = self.rng.standard_normal(len(state))
        return np.asarray(
            PERSISTENCE * state + np.sqrt(1 - PERSISTENCE**2) * fresh, dtype=np.float64
        )


def node_name(node: int) -> str:
    return f"node-{node:03}"


def of_nodes(nodes: int) -> Parts:
    return (("node", node_name(node), node, -1) for node in range(nodes))


def of_gpus(nodes: int, gpus: int = GPUS) -> Parts:
    return (
        ("gpu", f"{node_name(node)}/gpu-{gpu}", node, gpu)
        for node in range(nodes)
        for gpu in range(gpus)
    )


def of_cluster(nodes: int) -> Parts:
    return iter([("cluster", "simulated", -1, -1)])


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a run, its healthy level and its subjects; numbers of the whole cluster have the
    condition ranks.
    """

    name: str
    unit: str
    level: float
    subjects: Subjects = of_nodes
    conditions: Mapping[str, str] = field(default_factory=dict)


def fleet_series(nodes: int, metrics: Sequence[Metric]) -> "DataFrame":
    """Return the series of a fleet, one row each in order of `metrics`.

    Beside the columns of the tidy rows: `node` and `part` of the subject, `group` (the number of
    the metric), `level`.
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
    """Return the rows of one run: readings (M, R) of these series, relative to their levels; NaN:
    not read so often.
    """
    which = np.nonzero(np.isfinite(relative))
    rows = series.drop(columns=["node", "part", "group", "level"]).take(which[0])
    values = (relative * series["level"].to_numpy()[:, None])[which]
    return rows.assign(
        value=values,
        run_id=f"night-{night:03}",
        started=(FIRST_NIGHT + timedelta(days=night)).isoformat(),
    )


def all_rows(nights: Sequence["DataFrame"]) -> "DataFrame":
    from pandas import concat

    return concat(nights, ignore_index=True)


RUN = (
    Metric("matmul", "TFLOP/s", 700.0, of_gpus, FACTS),
    Metric("memory_copy", "GB/s", 3000.0, of_gpus, FACTS),
    Metric(
        "busbw_plateau",
        "GB/s",
        450.0,
        conditions={"operation": "all_reduce", "arm": "intra", **FACTS},
    ),
    Metric("tcp_egress", "MB/s", 5000.0, conditions=FACTS),
    Metric("tcp_ingress", "MB/s", 5000.0, conditions=FACTS),
    *(
        Metric("busbw_plateau", "GB/s", 380.0, of_cluster, {"operation": name})
        for name in OPERATIONS
    ),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """`left(night)` is the share of each series that is left (M), night 0 being the first of the
    fault.

    `culprit` is the node or GPU that may be named; "": the whole fleet is slower, without a
    culprit.
    """

    kind: str
    size: str
    left: Callable[[int], Floats]
    culprit: str
    facts: Mapping[str, str] = field(default_factory=dict)

    def names(self, suspect: str) -> bool:
        """Return whether the name is the culprit, its node, or a GPU of it."""
        return (
            suspect in (self.culprit, self.culprit.partition("/")[0])
            or suspect.partition("/")[0] == self.culprit
        )


def make(kind: str, size: str, series: "DataFrame", rng: np.random.Generator) -> Fault:
    """Make a fault of that kind and size (see KINDS) at a random place."""
    node, gpu = int(rng.integers(series["node"].max() + 1)), int(rng.integers(GPUS))
    own, wide = series["node"] == node, series["subject_kind"] == "cluster"
    on_nvlink, on_network = (
        series["metric"] == "busbw_plateau",
        series["metric"].isin(["tcp_egress", "tcp_ingress"]),
    )
    hit = {
        "slow GPU": own & (series["part"] == gpu),
        "slow NVLink": own & on_nvlink,
        "slow NIC": own & on_network | wide,  # every rank of a sweep waits for the slowest
        "upgrade": on_nvlink,
    }.get(kind, own)
    loss, hits = KINDS[kind][size], hit.to_numpy()
    culprit = {"slow GPU": f"{node_name(node)}/gpu-{gpu}", "upgrade": ""}.get(kind, node_name(node))
    facts = {"driver": "580.65"} if kind == "upgrade" else {}
    return Fault(
        kind,
        size,
        lambda night: np.where(hits, 1 - loss * _course(kind, night), 1.0),
        culprit,
        facts,
    )


def _course(kind: str, night: int) -> float:
    """Return the part of the full loss that a fault of this kind has on a night, 1 for all of
    it.
    """
    if kind == "slow decay":
        return (night + 1) / 7
    return float(night % 3 == 2) if kind == "flaky node" else 1.0
