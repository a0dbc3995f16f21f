"""Readings of simulated fleets as rows of a file, by numpy alone; what the judge assumes is unknown
here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from seatrial.runs.replay import ReplayedRun, replay
from tests.suspects import kinds_and_names

Factor = Callable[[str], float]


@dataclass
class Series:
    """Numbers of one kind: `subjects` that read `usual` with normal `noise` on logs.

    A share of `strays` reads lower by `depth`.
    """

    metric: str
    kind: str
    subjects: list[str]
    usual: float = 700.0
    unit: str = "TFLOP/s"
    noise: float = 0.03
    conditions: Mapping[str, str] = field(default_factory=dict)
    strays: float = 0.0
    depth: float = 0.0


def of_nodes(count: int, metric: str = "matmul", first: int = 0, noise: float = 0.03) -> Series:
    return Series(metric, "node", [f"node-{n}" for n in range(first, first + count)], noise=noise)


def of_gpus(nodes: int, metric: str = "gemm", noise: float = 0.01) -> Series:
    return Series(
        metric, "gpu", [f"node-{n}/gpu-{g}" for n in range(nodes) for g in range(8)], noise=noise
    )


class Fleet:
    """Draws the readings of one run after the other, so many of each series in case they are asked
    for.
    """

    def __init__(self, seed: int, readings: int = 12) -> None:
        self.rng, self.readings = np.random.default_rng(seed), readings
        self.rows: list[dict[str, object]] = []
        self.runs = 0

    def run(
        self,
        *kinds: Series,
        factor: Factor = lambda subject: 1.0,
        readings: int | None = None,
        times: int = 1,
    ) -> None:
        """Draw one run, or that many like it."""
        count = self.readings if readings is None else readings
        for _ in range(times):
            for kind in kinds:
                for subject in kind.subjects:
                    values = (
                        kind.usual
                        * factor(subject)
                        * np.exp(kind.noise * self.rng.standard_normal(count))
                    )
                    if kind.strays:
                        values *= 1 - kind.depth * (self.rng.random(count) < kind.strays)
                    self._add(kind, subject, values)
            self.runs += 1

    def read(self, kind: Series, subject: str, *values: float) -> None:
        """Add given readings to the run that was drawn last."""
        self.runs -= 1
        self._add(kind, subject, values)
        self.runs += 1

    def _add(self, kind: Series, subject: str, values: Iterable[float]) -> None:
        head = {
            "run_id": f"run-{self.runs:02}",
            "metric": kind.metric,
            "subject_kind": kind.kind,
            "subject": subject,
        }
        self.rows += [
            {**head, "value": float(value), "unit": kind.unit, **kind.conditions}
            for value in values
        ]

    def judged(self) -> list[ReplayedRun]:
        return replay(pd.DataFrame(self.rows))

    def tonight(self) -> ReplayedRun:
        return self.judged()[-1]


def slow(*subjects: str, by: float) -> Factor:
    """Those subjects, and the GPUs of those nodes, are slower by a share."""
    return lambda name: 1 - by if name in subjects or name.partition("/")[0] in subjects else 1.0


def names(run: ReplayedRun) -> set[tuple[str, str]]:
    return set(kinds_and_names(run))
