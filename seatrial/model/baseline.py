"""A baseline: what one measurement should be, according to one source."""

from dataclasses import dataclass
from typing import Literal

Source = Literal["catalog", "model", "pinned", "history", "peers", "physics", "sanity"]


@dataclass(frozen=True, slots=True)
class Baseline:
    """All figures are in the measurement's unit.

    `low` and `high` bound what is expected; None leaves that side open. `floor` lies beyond them on the bad side, below
    `low` where higher is better and above `high` where lower is: past it a measurement fails. `samples` is how many
    values `centre` rests on. `detail` completes the sentence "0.02 GB/s is 96 % below ...".
    """

    source: Source
    centre: float
    low: float | None
    high: float | None
    floor: float | None
    samples: int
    detail: str
