"""Healthy numbers: what a fleet measures, on natural logs."""

from dataclasses import dataclass, field

import numpy as np

from seatrial.judge.fleet.grouped import Ints
from seatrial.judge.fleet.odds import Floats


@dataclass(frozen=True, slots=True)
class Noise:
    """How healthy measurements differ; a share is one of the variance `sd` squared, a size is on natural logs.

    One measurement has `sd`: Student's t with `freedom` degrees of freedom, scaled. `spread` (sd, normal) is between
    nodes for good. `shared` is the share that all measurements of one series in one night have in common and no other
    night has; `slow` the share that also lasts: an AR(1) with `persistence` from one night to the next. Repeats average
    out neither.

    `walk` is how far each series drifts a night and never returns; `common` the sd of what all series of a metric have
    in common, an AR(1) with `persistence` (0: each night anew). A share `loud` of the series has `loudness`
    times the noise. A share `stray` of the measurements reads a further `stray_loss` too low. `skew` of the variance is
    one-sided: readings that are too low by an exponential. `tick` is the unit to which readings are rounded, 1 being
    the healthy value.
    """

    sd: float = 0.03
    spread: float = 0.01
    freedom: float = 4.0
    stray: float = 0.0
    stray_loss: float = 0.2
    shared: float = 0.0
    slow: float = 0.0
    persistence: float = 0.9
    walk: float = 0.0
    common: float = 0.0
    loud: float = 0.0
    loudness: float = 3.0
    skew: float = 0.0
    tick: float = 0.0


@dataclass(slots=True)
class Draws:
    """Draws the logs of M series, night after night; `group` (M) says which have their common drift in common."""

    series: int
    noise: Noise
    rng: np.random.Generator
    group: Ints | None = None
    level: Floats = field(init=False)
    loudness: Floats = field(init=False)
    _slow: Floats = field(init=False)
    _walked: Floats = field(init=False)
    _common: Floats = field(init=False)

    def __post_init__(self) -> None:
        noise = self.noise
        self.level = noise.spread * self.rng.standard_normal(self.series)
        self.loudness = np.ones(self.series)
        if noise.loud:
            self.loudness[self.rng.random(self.series) < noise.loud] = noise.loudness
        self._walked = np.zeros(self.series)
        self._slow = self._normal(noise.slow)
        self._common = noise.common * self.rng.standard_normal(self._groups) if noise.common else np.zeros(self._groups)

    @property
    def _groups(self) -> int:
        return 1 if self.group is None else int(self.group.max()) + 1

    def night(self) -> Floats:
        """Go on to the next night: what all measurements of a series in it have in common; normal."""
        noise = self.noise
        if noise.slow:
            fresh = np.sqrt(1 - noise.persistence**2)
            self._slow = noise.persistence * self._slow + fresh * self._normal(noise.slow)
        if noise.walk:
            self._walked = self._walked + noise.walk * self.rng.standard_normal(self.series)
        if noise.common:
            fresh = noise.common * np.sqrt(1 - noise.persistence**2)
            self._common = noise.persistence * self._common + fresh * self.rng.standard_normal(self._groups)
        common = self._common[0 if self.group is None else self.group]
        return np.asarray(self._normal(noise.shared) + self._slow + self._walked + common, dtype=np.float64)

    def measure(self, night: Floats, which: Ints | None = None, loss: Floats | float = 0.0) -> Floats:
        """One measurement of each series of `which` (all when None), each slower by its `loss`."""
        noise, at = self.noise, slice(None) if which is None else which
        count = self.series if which is None else len(which)
        sd = noise.sd * np.sqrt(1 - noise.shared - noise.slow - noise.skew) * self.loudness[at]
        values = self.level[at] + night[at] + self._t(count, sd) - loss
        if noise.skew:
            one_sided = noise.sd * np.sqrt(noise.skew) * self.loudness[at]
            values += one_sided * (1 - self.rng.standard_exponential(count))
        if noise.stray:
            values -= noise.stray_loss * (self.rng.random(count) < noise.stray)
        if noise.tick:
            values = np.log(np.maximum(np.round(np.exp(values) / noise.tick), 1) * noise.tick)
        return np.asarray(values, dtype=np.float64)

    def _normal(self, share: float) -> Floats:
        """A part of each series' variance."""
        if not share:
            return np.zeros(self.series)
        sd = self.noise.sd * np.sqrt(share) * self.loudness
        return np.asarray(sd * self.rng.standard_normal(self.series), dtype=np.float64)

    def _t(self, count: int, sd: Floats) -> Floats:
        if not self.noise.sd:
            return np.zeros(count)
        scale = sd * np.sqrt((self.noise.freedom - 2) / self.noise.freedom)
        return np.asarray(scale * self.rng.standard_t(self.noise.freedom, count), dtype=np.float64)
