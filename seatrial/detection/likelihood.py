"""Log likelihood ratios of a loss against no loss, from the readings of a series. Pure, numpy.

The noise is Student's t with `_TAILS` degrees of freedom (Lange, Little and Taylor, "Robust
statistical modeling using the t distribution", 1989): a reading far below the loss is weak
evidence. Readings and losses are in standard deviations of one reading.
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
    """Return the log likelihood ratio of `loss` against none for readings, given as distances from
    their level.
    """
    from_loss = np.add(scaled, loss)
    gain = _rarity(scaled) - _rarity(from_loss)
    return np.asarray((_TAILS + 1) / 2 * gain)


def _rarity(scaled: Floats | float) -> Floats:
    """Return the negative log density of readings relative to their level, up to a constant."""
    squares = np.square(scaled) / (_TAILS - 2)
    rarity: Floats = np.log1p(squares)
    return rarity


def _if_stray(loss: Floats | float, share: Floats | float) -> Floats:
    """Return the log mean likelihood ratio of healthy readings if all strays, a `share`, lie at the
    loss.
    """
    of_stray = np.exp(_log_ratio(-loss, loss))
    log_mean: Floats = np.log1p(share * of_stray)
    return log_mean


def _bounded(ratios: Floats, below: Bools, share: Floats | float) -> Floats:
    """Return `ratios`, but at least log(`share`) for readings `below` the loss.

    Such a reading counts no more against the loss than a stray at the loss counts for it.
    """
    least = np.log(share)
    return np.where(below, np.maximum(ratios, least), ratios)


@dataclass(frozen=True, slots=True)
class _Healthy:
    """Distances of healthy readings from their level, and the share of readings that strays."""

    scaled: Floats
    strays: float

    def without(self, reading: float) -> Self:
        """Return the readings without `reading`; unchanged if it is not among them."""
        same = np.flatnonzero(self.scaled == reading)
        if not same.size:
            return self
        others = np.delete(self.scaled, same[:1])
        return type(self)(others, share_of_strays(others))

    def log_mean_ratio(self, loss: float) -> float:
        """Return the log mean likelihood ratio of a loss: computed or observed, whichever is
        larger.
        """
        computed = float(_if_stray(loss, self.strays))
        if not self.scaled.size:
            return max(computed, 0.0)
        ratios = np.exp(_log_ratio(self.scaled, loss))
        seen = float(np.mean(ratios))
        return max(computed, math.log(seen))


class SeriesReadings:
    """Readings of series `i`: `own` of this run, `location` of each earlier run, `healthy` of its
    group.

    `levels` (S) are its levels before each start, `moved` (T) the common moves of its peers.
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
        """Return the log likelihood ratio of a loss since start number `nth`, against none.

        It assumes noise with long tails, and subtracts the mean ratio of healthy readings of the
        group, so that noise of another shape is not taken for a loss.
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
        """Return the log likelihood ratio of the loss from the last `start` earlier runs."""
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
        """Return the share of locations that stray, by their `count` of readings; three make a
        median.
        """
        of_one = self.healthy.strays
        of_few = np.minimum(of_one * count, 0.5)
        return np.where(count < AGREEING, of_few, of_one)
