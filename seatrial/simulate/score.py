"""Compare the judge's verdicts on a simulated fleet with the truth, and print the scores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from seatrial.model.verdict import Verdict
from seatrial.runs.replay import ReplayedRun, replay
from seatrial.simulate.rows import (
    KINDS,
    RUN,
    Draws,
    Fault,
    Noise,
    all_rows,
    fleet_series,
    make,
    night_rows,
)

if TYPE_CHECKING:
    from pandas import DataFrame


NIGHTS_BEFORE = 10
READINGS = 8  # of each series in a night, of which the judge takes those that it asks for
_MOST_HEALTHY = 30  # nights of one fleet
_HEADINGS = ("fault", "size", "night 1", "found", "missed", "others", "nights")


@dataclass(frozen=True, slots=True)
class HealthyNights:
    """Healthy runs: their number, those without a pass, and the readings of a series."""

    nights: int
    alarms: int
    readings: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "nights": self.nights,
            "alarms": self.alarms,
            "readings_per_series": round(self.readings, 2),
        }


@dataclass(frozen=True, slots=True)
class Score:
    """One kind and size of fault, tried `trials` times over some nights.

    `nights` are the nights (from 1) on which a culprit was named first, in the trials in which one
    was; `wrong` counts the trials with a false suspect.
    """

    kind: str
    size: str
    trials: int
    wrong: int
    nights: Sequence[int]

    @property
    def first_night(self) -> int:
        return sum(night == 1 for night in self.nights)

    @property
    def median_nights(self) -> float | None:
        return float(np.median(self.nights)) if self.nights else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "fault": self.kind,
            "size": self.size,
            "trials": self.trials,
            "found_first_night": self.first_night,
            "found": len(self.nights),
            "missed": self.trials - len(self.nights),
            "wrong_blame": self.wrong,
            "median_nights_to_find": self.median_nights,
        }


def simulated_rows(
    nodes: int, nights: int, fault: Fault | None, rng: np.random.Generator
) -> "DataFrame":
    """Make healthy nights of a fleet, then `nights` more with the fault."""
    series = fleet_series(nodes, RUN)
    draws = Draws(Noise(), series["group"].to_numpy(), rng)
    rows = [night_rows(series, draws.night(READINGS), night) for night in range(NIGHTS_BEFORE)]
    for night in range(nights):
        left = fault.left(night)[:, None] if fault else 1.0
        now = series.assign(**fault.facts) if fault else series
        rows.append(night_rows(now, draws.night(READINGS) * left, NIGHTS_BEFORE + night))
    return all_rows(rows)


def judge_healthy(nodes: int, nights: int, rng: np.random.Generator) -> HealthyNights:
    """Judge healthy runs."""
    lengths = [min(_MOST_HEALTHY, nights - start) for start in range(0, nights, _MOST_HEALTHY)]
    runs = [
        run
        for count in lengths
        for run in replay(simulated_rows(nodes, count, None, rng))[NIGHTS_BEFORE:]
    ]
    readings = (
        float(np.mean([run.readings for run in runs])) / len(fleet_series(nodes, RUN))
        if runs
        else 0.0
    )
    return HealthyNights(nights, sum(run.verdict is not Verdict.PASS for run in runs), readings)


def scores(nodes: int, nights: int, trials: int, rng: np.random.Generator) -> Iterator[Score]:
    """Yield the score of every kind and size of fault, each in a fleet of its own, a decay over the
    nights it needs.
    """
    series = fleet_series(nodes, RUN)
    for kind, sizes in KINDS.items():
        for size in sizes:
            long = max(nights, 35) if kind == "slow decay" else nights  # 5 % at 1 % per week
            tried = [_trial(nodes, long, make(kind, size, series, rng), rng) for _ in range(trials)]
            detected = tuple(night for night, _ in tried if night)
            yield Score(kind, size, trials, sum(wrong for _, wrong in tried), detected)


def _trial(nodes: int, nights: int, fault: Fault, rng: np.random.Generator) -> tuple[int, bool]:
    """Return the night (from 1) on which the fault was found, 0 if never, and whether there was a
    false suspect.
    """
    runs = replay(simulated_rows(nodes, nights, fault, rng))[NIGHTS_BEFORE:]
    wrong = any(not fault.names(suspect.name) for run in runs for suspect in run.suspects)
    return next((night for night, run in enumerate(runs, 1) if _finds(run, fault)), 0), wrong


def _finds(run: ReplayedRun, fault: Fault) -> bool:
    """Return whether the culprit is named; without a culprit, whether the run does not pass."""
    if fault.culprit:
        return any(fault.names(suspect.name) for suspect in run.suspects)
    return run.verdict is not Verdict.PASS


def simulated_table(healthy: HealthyNights, scores: Sequence[Score]) -> Table:
    """Format one line per kind and size of fault."""
    alarms = f"{healthy.alarms} of {healthy.nights} healthy nights raised an alarm"
    table = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left")
    table.caption = f"{alarms}; each series was measured {healthy.readings:.1f} times a night"
    for heading in _HEADINGS:
        table.add_column(
            heading, justify="left" if heading in _HEADINGS[:2] else "right", no_wrap=True
        )
    for score in scores:
        nights = "–" if score.median_nights is None else f"{score.median_nights:g}"
        counts = (
            score.first_night,
            len(score.nights),
            score.trials - len(score.nights),
            score.wrong,
        )
        table.add_row(
            score.kind, score.size, *(f"{count}/{score.trials}" for count in counts), nights
        )
    return table


def simulated_json(
    nodes: int, seed: int, healthy: HealthyNights, scores: Sequence[Score]
) -> dict[str, Any]:
    """Return the scores as one JSON document."""
    return {
        "nodes": nodes,
        "seed": seed,
        "healthy": healthy.to_dict(),
        "faults": [score.to_dict() for score in scores],
    }
