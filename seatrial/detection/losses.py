"""By how much each series of a run reads lower, for each start that a change may have. Pure, numpy
arrays.

The mean of the runs since the start is compared with the level before. What all peers have lost is
subtracted.
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
    locations,
    median_of,
)
from seatrial.detection.reading_noise import Squares, moderated
from seatrial.detection.readings import Floats, Ints
from seatrial.detection.references import Reference


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of each series by start (S, M), its standard error, and the part of that which no
    further reading reduces.
    """

    size: Floats
    error: Floats
    alone: Floats


class RunReadings:
    """This run's readings less what all peers moved by: `distance` (K, M).

    `unsure` (M) is the error of that. Of each series, `count` are its readings, `value` is their
    median, `location` their Hodges-Lehmann estimate, and `noise` the standard deviation of one.
    """

    def __init__(
        self, reference: Reference, readings: Floats, moved: Floats, unsure: Floats
    ) -> None:
        self.reference = reference
        self.unsure = unsure
        self.distance = readings - moved
        self.count = count_known(readings)
        self.value = median_of(self.distance)
        rounds, series = readings.shape
        starts = np.arange(series) * rounds
        by_series = self.distance.T.ravel()
        self.location = locations(by_series, starts, self.count, reference.noise)
        self.noise = _with_scatter(reference, self.distance, self.value, self.count)

    def losses(self) -> Losses:
        """Weigh this run and those since each start."""
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
    """Subtract the loss that all known peers have on average beyond chance: none of them is at
    fault.

    Fleets that have not drifted yet are not taken to drift (empirical Bayes), but for what is
    beyond two standard deviations of that.
    """
    for usual, at in zip(reference.drift, reference.groups, strict=True):
        known = at[reference.runs[at] > 0]
        if known.size >= LEAST_PEERS:
            _subtract_from_group(losses, at, known, usual**2)


def _subtract_from_group(losses: Losses, at: Ints, known: Ints, usual: float) -> None:
    """Subtract what the known peers of a group lost; `usual` is the variance of such losses in
    earlier runs.
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
