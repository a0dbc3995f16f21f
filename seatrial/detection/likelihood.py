"""The log likelihood ratio of the readings of a series: of a loss against none. Pure, numpy arrays.

Of Student's t with `_TAILS` degrees of freedom (Lange, Little and Taylor, "Robust statistical
modeling using the t distribution", 1989): what lies far below the loss says little about it.
Readings and losses are in standard deviations of one reading.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from seatrial.detection.forecast import STARTS
from seatrial.detection.losses import RunReadings
from seatrial.detection.noise import AGREEING, finite, share_of_strays
from seatrial.detection.readings import Bools, Floats, Ints

_TAILS = 4  # degrees of freedom: the fewest usual ones (Lange, Little and Taylor)


def _log_ratio(scaled: Floats | float, loss: Floats | float) -> Floats:
    """Return the log likelihood ratio of readings, given as distances from their level."""
    from_loss = np.add(scaled, loss)
    gain = _rarity(scaled) - _rarity(from_loss)
    return np.asarray((_TAILS + 1) / 2 * gain)


def _rarity(scaled: Floats | float) -> Floats:
    """Return the log of how much rarer readings are than those at the level, but for a factor."""
    squares = np.square(scaled) / (_TAILS - 2)
    rarity: Floats = np.log1p(squares)
    return rarity


def _if_stray(loss: Floats | float, share: Floats | float) -> Floats:
    """Return the log of the mean likelihood ratio of healthy readings if all strays were as low as
    the loss.
    """
    of_stray = np.exp(_log_ratio(-loss, loss))
    log_mean: Floats = np.log1p(share * of_stray)
    return log_mean


def _bounded(ratios: Floats, below: Bools, share: Floats | float) -> Floats:
    """Return log likelihood ratios of readings of which a share strays: one that lies `below` the
    loss counts no more against it than a stray at the loss counts for it.
    """
    least = np.log(share)
    return np.where(below, np.maximum(ratios, least), ratios)


@dataclass(frozen=True, slots=True)
class _Healthy:
    """Distances of healthy readings from their level, and the share of readings that strays."""

    scaled: Floats
    strays: float

    def without(self, reading: float) -> Self:
        """Return the others, if this is one of the readings."""
        same = np.flatnonzero(self.scaled == reading)
        if not same.size:
            return self
        others = np.delete(self.scaled, same[:1])
        return type(self)(others, share_of_strays(others))

    def log_mean_ratio(self, loss: float) -> float:
        """Return the log of their mean likelihood ratio: as computed or as seen, the larger one."""
        computed = float(_if_stray(loss, self.strays))
        if not self.scaled.size:
            return max(computed, 0.0)
        ratios = np.exp(_log_ratio(self.scaled, loss))
        seen = float(np.mean(ratios))
        return max(computed, math.log(seen))


class SeriesReadings:
    """The readings of series `i`: its `own` ones of this run, the `location` of each run before,
    and `healthy` ones of its group.

    `levels` (S) are what it has read before each start, `moved` (T) is what its peers moved by.
    """

    def __init__(self, run: RunReadings, i: int) -> None:
        reference = run.reference
        past = reference.past
        group = reference.group[i]
        self.noise = run.noise[i]
        self.levels = reference.forecast.before[:, i]
        self.own = finite(run.distance[:, i])
        self.location = past.location[:, i]
        self.count = past.count[:, i]
        self.moved = reference.moved[:, group]
        healthy = _Healthy(reference.healthy[group], reference.strays[group])
        # A loss that is new is no evidence that healthy readings stray
        if not reference.runs[i]:
            healthy = healthy.without(reference.reads[i])
        self.healthy = healthy

    def ratio(self, nth: int, loss: float) -> float:
        """Return the log likelihood ratio of a loss against none, of the readings since that start.

        It is that of noise with long tails, less what healthy readings of the group yield on
        average, so that noise of another shape is not taken for a loss.
        """
        level = self.levels[nth]
        of_this_run = self._of_this_run(level, loss)
        return of_this_run + self._of_runs(STARTS[nth], level, loss)

    def _of_this_run(self, level: float, loss: float) -> float:
        scaled_loss = loss / self.noise
        scaled = (self.own - level) / self.noise
        of_healthy = self.healthy.log_mean_ratio(scaled_loss)
        ratios = _log_ratio(scaled, scaled_loss) - of_healthy
        below = scaled < -scaled_loss
        return float(_bounded(ratios, below, self.healthy.strays).sum())

    def _of_runs(self, start: int, level: float, loss: float) -> float:
        """Return the ratio of so many runs before this one."""
        since = slice(self.count.size - start, None)
        distance = self.location[since] - level - self.moved[since]
        count = self.count[since]
        count = count[np.isfinite(distance)]
        sd = self.noise / np.sqrt(count)
        scaled_loss = loss / sd
        scaled = finite(distance) / sd
        ratios = _log_ratio(scaled, scaled_loss)
        straying = self._straying(count)
        ratios -= _if_stray(scaled_loss, straying)
        below = scaled < -scaled_loss
        return float(_bounded(ratios, below, straying).sum())

    def _straying(self, count: Ints) -> Floats:
        """Return how many locations of so many readings are a stray's; of three the median is
        taken.
        """
        of_one = self.healthy.strays
        of_few = np.minimum(of_one * count, 0.5)
        return np.where(count < AGREEING, of_few, of_one)
