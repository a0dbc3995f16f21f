"""Healthy numbers: what a fleet measures, on natural logs."""

from dataclasses import dataclass, field

import numpy as np

from seatrial.judge.fleet.levels import Ints
from seatrial.judge.fleet.odds import Floats


@dataclass(frozen=True, slots=True)
class Noise:
    """`sd` of one measurement: Student's t with `freedom` degrees of freedom, scaled; `spread` (sd, normal) between
    nodes for good; `stray`: the share of measurements that read a further `stray_loss` too low; `shared`: the share of
    the variance that all measurements of one series in one night have in common, which repeating does not average out.
    """

    sd: float = 0.03
    spread: float = 0.01
    freedom: float = 4.0
    stray: float = 0.0
    stray_loss: float = 0.2
    shared: float = 0.0


@dataclass(slots=True)
class Draws:
    """Draws the logs of M series; the healthy level of each is drawn once."""

    series: int
    noise: Noise
    rng: np.random.Generator
    level: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.level = self.noise.spread * self.rng.standard_normal(self.series)

    def night(self) -> Floats:
        """What all measurements of a series in one night have in common; normal."""
        sd = self.noise.sd * np.sqrt(self.noise.shared)
        return np.asarray(sd * self.rng.standard_normal(self.series), dtype=np.float64)

    def measure(self, night: Floats, which: Ints | None = None, loss: Floats | float = 0.0) -> Floats:
        """One measurement of each series of `which` (all when None), each slower by its `loss`."""
        at = slice(None) if which is None else which
        count = self.series if which is None else len(which)
        values = self.level[at] + night[at] + self._t(count, self.noise.sd * np.sqrt(1 - self.noise.shared)) - loss
        if self.noise.stray:
            values -= self.noise.stray_loss * (self.rng.random(count) < self.noise.stray)
        return np.asarray(values, dtype=np.float64)

    def _t(self, count: int, sd: float) -> Floats:
        if not sd:
            return np.zeros(count)
        scale = sd * np.sqrt((self.noise.freedom - 2) / self.noise.freedom)
        return np.asarray(scale * self.rng.standard_t(self.noise.freedom, count), dtype=np.float64)
