"""Hold what the judge says of a simulated fleet against the truth."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seatrial.judge.fleet.peer_groups import Verdicts
from seatrial.simulate.faults import KINDS, Fault, FleetLayout, make
from seatrial.simulate.nights import Memory, one_night
from seatrial.simulate.noise import Draws, Noise

NIGHTS_BEFORE = 30


@dataclass(frozen=True, slots=True)
class HealthyNights:
    """Healthy nights: how many, in how many anything was blamed, and how often a series was measured."""

    nights: int
    alarms: int
    measurements: float

    def to_dict(self) -> dict[str, Any]:
        return {"nights": self.nights, "alarms": self.alarms, "measurements_per_series": round(self.measurements, 2)}


@dataclass(frozen=True, slots=True)
class Score:
    """One kind and size of fault, tried `trials` times over some nights.

    `first_night` and `named` count the trials in which a culprit was named the first night, and at all; `wrong` those
    in which somebody innocent was; `nights` are the nights it took, in those that were named.
    """

    kind: str
    size: str
    trials: int
    first_night: int
    named: int
    wrong: int
    nights: tuple[int, ...]

    @property
    def median_nights(self) -> float | None:
        return float(np.median(self.nights)) if self.nights else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "fault": self.kind,
            "size": self.size,
            "trials": self.trials,
            "found_first_night": self.first_night,
            "found": self.named,
            "missed": self.trials - self.named,
            "wrong_blame": self.wrong,
            "median_nights_to_find": self.median_nights,
        }


def make_fleet(nodes: int, noise: Noise, rng: np.random.Generator) -> tuple[FleetLayout, Draws, Memory]:
    """A fleet with a month of healthy nights behind it, everything measured twice."""
    layout = FleetLayout(nodes)
    draws, memory = Draws(layout.group.size, noise, rng, layout.group), Memory(layout.group)
    everything = np.arange(layout.group.size)
    for _ in range(NIGHTS_BEFORE):
        night = draws.night()
        memory.keep(draws.measure(night), (everything, draws.measure(night)), passed=True)
    return layout, draws, memory


def quiet(nodes: int, nights: int, noise: Noise, rng: np.random.Generator) -> HealthyNights:
    """Nights on which nothing is wrong."""
    _, draws, memory = make_fleet(nodes, noise, rng)
    verdicts = [one_night(memory, draws)[0] for _ in range(nights)]
    taken = float(np.mean([night.each.repeats.mean() for night in verdicts])) if verdicts else 0.0
    return HealthyNights(nights, sum(night.alarm for night in verdicts), taken)


def scores(nodes: int, nights: int, trials: int, noise: Noise, rng: np.random.Generator) -> Iterator[Score]:
    """Every kind and size of fault, each time in a fleet of its own; a decay is given as many nights as it needs."""
    for kind, sizes in KINDS.items():
        for size in sizes:
            long = max(nights, 35) if kind == "slow decay" else nights
            yield _score(kind, size, [_trial(kind, size, nodes, long, noise, rng) for _ in range(trials)])


def _score(kind: str, size: str, trials: list[tuple[int | None, bool]]) -> Score:
    nights = tuple(night for night, _ in trials if night is not None)
    first, wrong = sum(night == 1 for night in nights), sum(blamed for _, blamed in trials)
    return Score(kind, size, len(trials), first, len(nights), wrong, nights)


def _trial(
    kind: str, size: str, nodes: int, nights: int, noise: Noise, rng: np.random.Generator
) -> tuple[int | None, bool]:
    """The night (from 1) on which it was found, None when it was not; and whether anybody innocent was blamed."""
    layout, draws, memory = make_fleet(nodes, noise, rng)
    fault, wrong = make(kind, size, layout, rng), False
    for night in range(nights):
        verdicts, _ = one_night(memory, draws, fault.loss(night), fault.software)
        wrong |= bool((verdicts.each.guilty & ~fault.culprits).any())
        if _names(verdicts, fault):
            return night + 1, wrong
    return None, wrong


def _names(verdicts: Verdicts, fault: Fault) -> bool:
    """Whether a culprit is blamed; where the whole fleet is it, whether the fleet is."""
    if fault.culprits.any():
        return bool((verdicts.each.guilty & fault.culprits).any())
    return bool(verdicts.fleet.guilty.any())
