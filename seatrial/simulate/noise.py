"""Healthy readings: what a fleet measures night after night, relative to the level of its metric."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of healthy readings; shares are of readings, of series or of the variance `sd` squared.

    One reading has the relative standard deviation `sd`; "t4" is Student's t with 4 degrees of freedom. `spread` is
    the permanent difference between nodes. `lasting` is the share of the variance that all readings of a night have in
    common and that follows an AR(1) with `PERSISTENCE` from night to night; `common` is the standard deviation of a
    drift of that kind which all series of a metric have in common. A share `loud` of the series has three times the
    noise. A share `stray` of the readings loses `stray_loss`. `tick` is the unit to which readings are rounded.
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


PERSISTENCE = 0.9
LOUDNESS = 3.0


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
        """The next night's readings of all series (M, readings), 1 being the level of the metric."""
        noise = self.noise
        self._lasting, self._common = self._next(self._lasting), self._next(self._common)
        night = (
            self._level + self._sd * np.sqrt(noise.lasting) * self._lasting + noise.common * self._common[self.metric]
        )
        own = self._sd * np.sqrt(1 - noise.lasting)
        relative = night[:, None] + own[:, None] * self._standard((len(own), readings))
        values = 1 + relative if noise.shape == "normal" else np.exp(relative)
        if noise.stray:
            values = values * np.where(self.rng.random(values.shape) < noise.stray, 1 - noise.stray_loss, 1.0)
        return np.asarray(np.round(values / noise.tick) * noise.tick if noise.tick else values, dtype=np.float64)

    def _next(self, state: Floats) -> Floats:
        fresh = self.rng.standard_normal(len(state))
        return np.asarray(PERSISTENCE * state + np.sqrt(1 - PERSISTENCE**2) * fresh, dtype=np.float64)

    def _standard(self, shape: tuple[int, int]) -> Floats:
        if self.noise.shape == "t4":
            return np.asarray(self.rng.standard_t(4, shape) / np.sqrt(2), dtype=np.float64)  # its variance is 2
        return self.rng.standard_normal(shape)
