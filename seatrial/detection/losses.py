"""The loss of each series in a run, for each possible start of a change. Pure, numpy arrays.

The mean of the runs since the start is compared with the level before it. The common loss of all
peers is subtracted.
"""

from dataclasses import dataclass

import numpy as np

from seatrial.detection.noise import (
    AGREEING,
    LEAST_PEERS,
    MAD,
    MEDIAN_VARIANCE,
    STRAYING,
    chance_of,
    count_known,
    location_of,
    median_of,
)
from seatrial.detection.reading_noise import Squares, moderated
from seatrial.detection.readings import Floats, Ints
from seatrial.detection.references import Reference


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of each series for each start of a change: arrays (S, M).

    `size` is the loss, `error` its standard error, and `alone` the standard error that no further
    reading reduces.
    """

    size: Floats
    error: Floats
    alone: Floats


class RunReadings:
    """This run's readings less the common move of their peers: `distance` (K, M).

    `unsure` (M) is the standard error of that move. For each series, `count` is the number of
    readings, `value` their median, `at_most` the same with what its peers gained, `location` their
    Hodges-Lehmann estimate, and `noise` the standard deviation of one reading.
    """

    def __init__(
        self, reference: Reference, readings: Floats, moved: Floats, unsure: Floats
    ) -> None:
        self.reference = reference
        self.unsure = unsure
        self.distance = readings - moved
        self.count = count_known(readings)
        self.value = median_of(self.distance)
        # A series that its peers have left behind lost nothing
        gained = np.maximum(moved, 0)
        self.at_most = self.value + gained
        self.location = location_of(self.distance, reference.noise)
        self.noise = _with_scatter(reference, self.distance, self.value, self.count)

    def losses(self) -> Losses:
        """Return the losses, from this run and the earlier runs since each start."""
        forecast = self.reference.forecast
        unexplained = 1 - forecast.response
        certain = forecast.variance + self.unsure**2
        factor = self.reference.factor[self.reference.group]
        total = certain + chance_of(self.count, self.noise, factor)
        lower = forecast.reading - self.location
        lower = np.where(self.count > 0, lower, 0.0)
        score = unexplained * lower / total - forecast.score
        information = forecast.information + unexplained**2 / total
        information = np.where(information > 0, information, np.nan)
        most_information = forecast.information + unexplained**2 / certain
        losses = Losses(
            size=score / information,
            error=1 / np.sqrt(information),
            alone=1 / np.sqrt(most_information),
        )
        _subtract_common(self.reference, losses)
        return losses


def _with_scatter(reference: Reference, distance: Floats, value: Floats, count: Ints) -> Floats:
    """Return the noise, increased if this run's own readings of a series scatter more than noise
    and strays do.
    """
    noise = reference.noise
    are_several = count >= AGREEING
    apart = np.abs(distance - value)
    scaled = np.minimum(apart / noise, STRAYING)
    strays = reference.strays[reference.group] * count
    of_readings = np.nansum(scaled**2, axis=0)
    of_noise = np.maximum(of_readings - strays * STRAYING**2, 0.0)
    squares = Squares(
        total=np.where(are_several, of_noise, 0.0),
        degrees=np.where(are_several, count - 1, 0),
    )
    louder, _ = moderated(squares, reference.degrees)
    usual = median_of(apart)
    # What most readings do is no stray
    is_usual = are_several & (usual > STRAYING * noise)
    return np.where(is_usual, MAD * usual, noise * louder)


def _subtract_common(reference: Reference, losses: Losses) -> None:
    """Subtract the mean loss of all known peers beyond chance: none of them is at fault.

    The part that chance explains (empirical Bayes) stays, up to two standard deviations.
    """
    for usual, at in zip(reference.drift, reference.groups, strict=True):
        known = at[reference.runs[at] > 0]
        if known.size >= LEAST_PEERS:
            _subtract_from_group(losses, at, known, usual**2)


def _subtract_from_group(losses: Losses, at: Ints, known: Ints, usual: float) -> None:
    """Subtract the common loss of the known peers of a group; `usual` is its variance in earlier
    runs.
    """
    variances = losses.error[:, known].T ** 2
    doubt = MEDIAN_VARIANCE * median_of(variances) / known.size
    doubt = np.nan_to_num(doubt)
    total = usual + doubt
    share = usual / total
    most = 2 * np.sqrt(total)
    common = median_of(losses.size[:, known].T)
    common = np.nan_to_num(common)
    by_chance = np.clip((1 - share) * common, -most, most)
    beyond = common - by_chance
    losses.size[:, at] -= beyond[:, None]
    added = share * doubt
    for rows in (losses.error, losses.alone):
        variance = rows[:, at] ** 2 + added[:, None]
        rows[:, at] = np.sqrt(variance)
