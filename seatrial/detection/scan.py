"""Whether a series has become lower, and since which run. Pure: numpy arrays in, numpy arrays out.

A generalized likelihood ratio over the start of a change whose size and whose level before are
unknown (Siegmund and Venkatraman, "Using the generalized likelihood ratio statistic for sequential
detection of a change-point", 1995). For each start, the mean of the runs since is compared with the
level before, in standard errors. What that finds is weighed once more reading by reading with long
tails, against what healthy readings yield. docs/verdicts.md has an example by hand.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from seatrial.detection.forecast import STARTS
from seatrial.detection.noise import (
    AGREEING,
    LEAST_PEERS,
    MAD,
    MEDIAN_VARIANCE,
    STRAYING,
    chance_of,
    finite,
    locations,
    median_of,
    moderated,
    share_of_strays,
)
from seatrial.detection.readings import Bools, Floats, Ints
from seatrial.detection.references import Reference

# Of healthy runs, so that noise of any shape stays below the 0.5 % of docs/error-rates.md
FALSE_ALARMS = 0.001
CHANCE = 3.0  # standard errors: so far the median of more readings may lie from that of these
SURE = 0.9  # the confidence at the limit
NEAR = 0.3  # of its limit: what lies above it is not read again
# The same of this run alone: one reading in six is so low, and 3 % of losses of 10 % lie above 0.3
NEAR_NOW = 0.2
LEAST_LOSS = -math.log(0.98)  # on logs: nobody cares about less, and a loss of 3 % may read 2 %
WATCHED = 0.5  # the least confidence that is told of
LEAST_WATCHED = -math.log(0.97)  # on logs: nobody acts on what may be a loss of less than 3 %
# Of a series in a run: neighbouring starts share runs and count as three, further readings as two
_CHANCES = 6
_MOST_SURE = 0.99  # a fault of the measurement itself remains
_TAILS = 4  # degrees of freedom of Student's t: the fewest usual ones (Lange, Little and Taylor)


@dataclass(frozen=True, slots=True)
class Scan:
    """The start of a change that is most likely for each of M series; natural logs.

    `start` counts the runs before this one that belong to the change, `loss` is by how much the
    runs since are lower than `level`, `limit` the loss from which on it is too low by normal noise.
    `confidence` follows from the log likelihood ratio, of normal noise or with strays, whichever is
    less.
    """

    start: Ints
    level: Floats
    loss: Floats
    limit: Floats
    confidence: Floats
    bad: Bools
    unproven: Bools  # below the limit of this run, and strays would explain it
    near: Bools  # so near to a decision that another reading may bring it


class RunScan:
    """This run's readings (K, M) less what all peers moved by, and the runs before it."""

    def __init__(
        self, reference: Reference, readings: Floats, moved: Floats, unsure: Floats
    ) -> None:
        self.reference = reference
        self.distance = readings - moved
        self.unsure = unsure
        self.count = np.isfinite(readings).sum(axis=0)
        self.value = median_of(self.distance)
        starts = np.arange(self.count.size) * len(self.distance)
        self.location = locations(self.distance.T.ravel(), starts, self.count)
        self.noise = _with_scatter(reference, self.distance, self.value, self.count)
        chances = _CHANCES * max(self.count.size, 1)
        self.quantile = NormalDist().inv_cdf(1 - FALSE_ALARMS / chances)

    def scan(self) -> Scan:
        """Try each start."""
        reference = self.reference
        series = np.arange(self.count.size)
        levels = reference.forecast.before
        loss, error, alone = self._without_common(*self._losses())
        least = np.minimum(np.maximum(reference.step, LEAST_LOSS), reference.cap)
        limit = (self.quantile * error).clip(least, reference.cap)
        # What runs before this one make of a series counts if this run agrees.
        agrees = levels - self.value > loss / 2
        excess = np.where(np.isfinite(loss) & agrees, loss / limit, -np.inf)
        best, ratio = self._most_likely(loss, excess)
        enough = self.quantile**2 / 2
        enough = max(enough - _discount(ratio - enough), 1.0)
        narrower = np.sqrt(2 * enough) / self.quantile
        narrowed = np.maximum(limit[best, series] * narrower, least)
        is_low = agrees[best, series] & (loss[best, series] > narrowed)
        bad: Bools = is_low & (ratio > enough) & self._agree(best)
        odds = np.clip(ratio - enough, -50, 50) + _log_odds(SURE)
        confidence = np.minimum(1 / (1 + np.exp(-odds)), _MOST_SURE)
        # Often enough read, and as healthy readings of the group are: it is one.
        undecided = (self.count < AGREEING) | (confidence >= WATCHED)
        unproven: Bools = (excess[0] > 1) & ~bad & undecided
        told = bad | ((confidence >= WATCHED) & ~unproven)
        shown = np.where(told, best, 0)
        return Scan(
            start=STARTS[shown],
            level=levels[shown, series],
            loss=loss[shown, series],
            limit=np.where(bad, narrowed, limit[shown, series]),
            confidence=confidence,
            bad=bad,
            unproven=unproven,
            near=self._near(loss, limit, error, alone),
        )

    def _most_likely(self, loss: Floats, excess: Floats) -> tuple[Ints, Floats]:
        """Return (M) the place of the start that is most likely, and its log likelihood ratio.

        `loss` and `excess`, that over its limit, are (S, M). The ratio is 0 where a change is too
        unlikely to be told of.
        """
        best = np.argmax(excess, axis=0)
        ratio = np.zeros(best.size)
        least = self.quantile**2 - 2 * (_log_odds(SURE) - _log_odds(WATCHED))
        z = excess * self.quantile
        suspicious = z > np.sqrt(max(least, 0.0))
        for i in np.flatnonzero(suspicious.any(axis=0)).tolist():
            starts = np.flatnonzero(suspicious[:, i]).tolist()
            by_reading = [self._ratio(i, nth, float(loss[nth, i])) for nth in starts]
            ratios = np.minimum(z[starts, i] ** 2 / 2, by_reading)
            best[i] = starts[int(np.argmax(ratios))]
            ratio[i] = ratios.max()
        return best, ratio

    def _near(self, loss: Floats, limit: Floats, error: Floats, alone: Floats) -> Bools:
        """Return (M) whether a series is so low, since any start, that further readings may show a
        loss; for the errors see `_losses`.
        """
        by_chance = np.sqrt(np.maximum(error**2 - alone**2, 0))
        deepest = loss + CHANCE * by_chance
        shows = deepest > np.minimum(self.quantile * alone, self.reference.cap)
        below = loss.copy()
        by_median = self.reference.expected - self.value  # a stray moves the median less
        below[0] = np.minimum(loss[0], by_median)
        shares = np.where(STARTS == 0, NEAR_NOW, NEAR)
        near = (below > shares[:, None] * limit) & shows
        return np.asarray(near.any(axis=0))

    def _losses(self) -> tuple[Floats, Floats, Floats]:
        """Return (S, M) by start: the loss, its standard error, and the part of it that no further
        reading reduces.
        """
        forecast = self.reference.forecast
        unexplained, certain = 1 - forecast.response, forecast.variance + self.unsure**2
        factor = self.reference.factor[self.reference.group]
        total = certain + chance_of(self.count, self.noise, factor)
        lower = np.where(self.count > 0, forecast.reading - self.location, 0.0)
        information = forecast.information + unexplained**2 / total
        information = np.where(information > 0, information, np.nan)
        loss = (unexplained * lower / total - forecast.score) / information
        most_information = forecast.information + unexplained**2 / certain
        return loss, 1 / np.sqrt(information), 1 / np.sqrt(most_information)

    def _without_common(
        self, loss: Floats, error: Floats, alone: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Subtract the loss that all known peers have on average beyond chance: none of them is at
        fault.

        Fleets that have not drifted yet are not taken to drift (empirical Bayes), but for what is
        beyond two standard deviations of that.
        """
        reference = self.reference
        for number, at in enumerate(reference.groups):
            known = at[reference.runs[at] > 0]
            if known.size < LEAST_PEERS:
                continue
            common = np.nan_to_num(median_of(loss[:, known].T))
            of_one = median_of(error[:, known].T ** 2)
            doubt = np.nan_to_num(MEDIAN_VARIANCE * of_one / known.size)
            usual = reference.drift[number] ** 2
            share = usual / (usual + doubt)
            most = 2 * np.sqrt(usual + doubt)
            by_chance = np.clip((1 - share) * common, -most, most)
            loss[:, at] -= (common - by_chance)[:, None]
            added = (share * doubt)[:, None]
            for rows in (error, alone):
                rows[:, at] = np.sqrt(rows[:, at] ** 2 + added)
        return loss, error, alone

    def _agree(self, best: Ints) -> Bools:
        """Return whether there are three readings at least since the start."""
        latest_first = np.vstack([self.count, self.reference.past.count[::-1]])
        since = np.cumsum(latest_first, axis=0)
        return np.asarray(since[STARTS[best], np.arange(best.size)] >= AGREEING)

    def _ratio(self, i: int, nth: int, loss: float) -> float:
        """Return the log likelihood ratio of a loss against none, of the readings of series `i`
        since that start.

        It is that of noise with long tails, less what healthy readings of the group yield on
        average, so that noise of another shape is not taken for a loss.
        """
        reference, noise = self.reference, float(self.noise[i])
        past, group = reference.past, reference.group[i]
        level = reference.forecast.before[nth, i]
        strays, healthy = float(reference.strays[group]), reference.healthy[group]
        mine = np.flatnonzero(healthy == reference.reads[i])[:1]
        # A loss that is new is no evidence that healthy readings stray
        if mine.size and not reference.runs[i]:
            healthy = np.delete(healthy, mine)
            strays = share_of_strays(healthy)
        own = finite(self.distance[:, i]) - level
        ratio = float(_log_ratio(own / noise, loss / noise).sum())
        ratio -= float(own.size * _healthy_yield(healthy, loss / noise, strays))
        since = slice(len(past.count) - STARTS[nth], None)
        then = past.location[since, i] - level - reference.moved[since, group]
        count = past.count[since, i][np.isfinite(then)]
        sd = noise / np.sqrt(count)
        of_runs = _log_ratio(finite(then) / sd, loss / sd)
        share = np.where(count < AGREEING, np.minimum(strays * count, 0.5), strays)
        ratio += float((of_runs - _if_stray(loss / sd, share)).sum())
        return ratio


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))


def _discount(margins: Floats) -> float:
    """Return by how much less evidence is enough because several series have it: the log of their
    number.

    Of k series that are blamed, k times as many may be false ones (Benjamini and Hochberg,
    "Controlling the false discovery rate", 1995). `margins` are the log likelihood ratios less what
    one series needs.
    """
    falling = np.sort(margins)[::-1]
    places = np.log(np.arange(1, falling.size + 1))
    blamed = np.flatnonzero(falling >= -places)
    return float(places[blamed[-1]]) if blamed.size else 0.0


def _log_ratio(scaled: Floats | float, loss: Floats | float) -> Floats:
    """Return the log likelihood ratio of readings, in standard deviations from their level, of a
    loss against none.

    Of Student's t with `_TAILS` degrees of freedom (Lange, Little and Taylor, "Robust statistical
    modeling using the t distribution", 1989): what lies far below the loss says little about it.
    """
    without = np.log1p(np.square(scaled) / (_TAILS - 2))
    with_loss = np.log1p(np.square(np.add(scaled, loss)) / (_TAILS - 2))
    return np.asarray((_TAILS + 1) / 2 * (without - with_loss))


def _if_stray(loss: Floats | float, share: Floats | float) -> Floats:
    """Return the log of the mean likelihood ratio of healthy readings if all strays were as low as
    the loss.
    """
    return np.asarray(np.log1p(share * np.exp(_log_ratio(-loss, loss))))


def _healthy_yield(healthy: Floats, loss: float, strays: float) -> float:
    """Return the mean log likelihood ratio of healthy readings: as computed or as `healthy` shows,
    the larger one.
    """
    computed = float(_if_stray(loss, strays))
    if not healthy.size:
        return max(computed, 0.0)
    seen = float(np.mean(np.exp(_log_ratio(healthy, loss))))
    return max(computed, math.log(seen))


def _with_scatter(reference: Reference, distance: Floats, value: Floats, count: Ints) -> Floats:
    """Return the noise, increased if this run's own readings of a series scatter more than noise
    and strays do.
    """
    apart = np.abs(distance - value)
    scaled = np.minimum(apart / reference.noise, STRAYING)
    of_strays = reference.strays[reference.group] * count * STRAYING**2
    squares = np.maximum(np.nansum(scaled**2, axis=0) - of_strays, 0.0)
    squares = np.where(count >= AGREEING, squares, 0.0)
    degrees = np.where(count >= AGREEING, count - 1, 0)
    louder, _ = moderated(squares, degrees, reference.degrees)
    usual = median_of(apart)
    # What most readings do is no stray
    scatters = (count >= AGREEING) & (usual > STRAYING * reference.noise)
    return np.where(scatters, MAD * usual, reference.noise * louder)
