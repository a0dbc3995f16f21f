"""Night after night of one fleet: measure, judge with the real judge, remember."""

from dataclasses import dataclass, field

import numpy as np

from seatrial.judge.fleet.grouped import Ints
from seatrial.judge.fleet.levels import SeriesHistory
from seatrial.judge.fleet.odds import Floats
from seatrial.judge.fleet.past import choose
from seatrial.judge.fleet.peer_groups import Verdicts, judge_fleet
from seatrial.simulate.noise import Draws

LONGEST_MEMORY = 90  # nights


@dataclass(slots=True)
class Memory:
    """What the fleet remembers: one row per night, oldest first."""

    group: Ints
    first: list[Floats] = field(default_factory=list)
    again: list[tuple[Ints, Floats]] = field(default_factory=list)
    passed: list[bool] = field(default_factory=list)
    software: list[int] = field(default_factory=list)

    def keep(self, first: Floats, again: tuple[Ints, Floats], passed: bool, software: int = 0) -> None:
        self.first.append(first)
        self.again.append(again)
        self.passed.append(passed)
        self.software.append(software)

    def past(self, software: int = 0) -> SeriesHistory:
        window = slice(-LONGEST_MEMORY, None)
        first, again = self.first[window], self.again[window]
        chosen = choose(np.array(self.passed[window], dtype=bool), np.array(self.software[window]) == software)
        none = np.empty((0, len(self.group)))
        good = np.array([first[i] for i in chosen.reference]) if len(chosen.reference) else none
        recent = np.array([first[i] for i in chosen.recent]) if len(chosen.recent) else none
        return SeriesHistory(
            self.group, good, recent, _more([again[i] for i in (*chosen.reference, *chosen.recent)]), chosen.renewed
        )


def _more(again: list[tuple[Ints, Floats]]) -> tuple[Ints, Ints, Floats] | None:
    if not any(len(series) for series, _ in again):
        return None
    nights = np.concatenate([np.full(len(series), night) for night, (series, _) in enumerate(again)])
    return nights, np.concatenate([s for s, _ in again]), np.concatenate([v for _, v in again])


def one_night(memory: Memory, draws: Draws, loss: Floats | float = 0.0, software: int = 0) -> tuple[Verdicts, Floats]:
    """Measure, repeat what the judge asks for, remember; the judgement and the first measurements."""
    losses = np.broadcast_to(np.asarray(loss, dtype=np.float64), (draws.series,))
    common = draws.night()
    first = draws.measure(common, loss=losses)
    again: list[tuple[Ints, Floats]] = []

    def repeat(which: Ints) -> Floats:
        again.append((which, draws.measure(common, which, losses[which])))
        return again[-1][1]

    verdicts = judge_fleet(memory.past(software), first, repeat)
    which = np.concatenate([np.empty(0, dtype=np.int64), *(w for w, _ in again)])
    values = np.concatenate([np.empty(0), *(v for _, v in again)])
    memory.keep(first, (which, values), not verdicts.alarm, software)
    return verdicts, first
