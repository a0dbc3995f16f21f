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
    MEDIAN_VARIANCE,
    STRAYING,
    Bools,
    Floats,
    Ints,
    chance_of,
    locations,
    median_of,
    moderated,
    share_of_strays,
)
from seatrial.detection.references import Reference

# Of healthy runs, so that noise of any shape stays below the 0.5 % of docs/error-rates.md
FALSE_ALARMS = 0.001
CHANCE = 3.0  # standard errors: so far the median of more readings may lie from that of these
SURE = 0.9  # the confidence at the limit
NEAR = 0.3  # of its limit: what lies above it is not read again
# The same of this run alone: one reading in six is so low, and 3 % of losses of 10 % lie above 0.3
NEAR_NOW = 0.2
WATCHED = 0.5  # the least confidence that is told of
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
        self.quantile = NormalDist().inv_cdf(
            1 - FALSE_ALARMS / (_CHANCES * max(self.count.size, 1))
        )

    def scan(self) -> Scan:
        """Try each start."""
        reference = self.reference
        series = np.arange(self.count.size)
        levels = reference.forecast.before
        loss, error, alone = self._without_common(*self._losses())
        limit = self.quantile * error
        limit = np.minimum(np.maximum(limit, reference.step), reference.cap)
        # What runs before this one make of a series counts if this run agrees.
        agrees = levels - self.value > loss / 2
        excess = np.where(np.isfinite(loss) & agrees, loss / limit, -np.inf)
        best = np.argmax(excess, axis=0)
        ratio = np.zeros(series.size)
        # Its least squared z
        watched = self.quantile**2 - 2 * np.log(SURE / (1 - SURE) / (WATCHED / (1 - WATCHED)))
        suspicious = excess * self.quantile > np.sqrt(max(watched, 0.0))
        for i in np.flatnonzero(suspicious.any(axis=0)).tolist():
            starts = np.flatnonzero(suspicious[:, i]).tolist()
            by_distance = (excess[starts, i] * self.quantile) ** 2 / 2
            ratios = np.minimum(
                by_distance, [self._ratio(i, nth, float(loss[nth, i])) for nth in starts]
            )
            best[i], ratio[i] = starts[int(np.argmax(ratios))], ratios.max()
        chosen = (best, series)
        enough = self.quantile**2 / 2
        enough = max(enough - _discount(ratio - enough), 1.0)
        narrower = np.sqrt(2 * enough) / self.quantile
        bad: Bools = (excess[chosen] > narrower) & (ratio > enough) & self._agree(best)
        odds = np.clip(ratio - enough, -50, 50) + np.log(SURE / (1 - SURE))
        confidence = np.minimum(1 / (1 + np.exp(-odds)), _MOST_SURE)
        # Often enough read, and as healthy readings of the group are: it is one.
        unproven: Bools = (
            (excess[0] > 1) & ~bad & ((self.count < AGREEING) | (confidence >= WATCHED))
        )
        deepest = loss + CHANCE * np.sqrt(np.maximum(error**2 - alone**2, 0))
        reads_low = loss.copy()
        reads_low[0] = np.minimum(loss[0], levels[0] - self.value)  # a stray moves the median less
        near = (reads_low > np.where(STARTS == 0, NEAR_NOW, NEAR)[:, None] * limit) & (
            deepest > np.minimum(self.quantile * alone, reference.cap)
        )
        shown = (np.where(bad | ((confidence >= WATCHED) & ~unproven), best, 0), series)
        return Scan(
            STARTS[shown[0]], levels[shown], loss[shown], limit[shown],
            confidence, bad, unproven, np.asarray(near.any(axis=0)),
        )  # fmt: skip

    def _losses(self) -> tuple[Floats, Floats, Floats]:
        """Return (S, M) by start: the loss, its standard error, and the part of it that no further
        reading reduces.
        """
        forecast = self.reference.forecast
        unexplained, certain = 1 - forecast.response, forecast.variance + self.unsure**2
        total = certain + chance_of(
            self.count, self.noise, self.reference.factor[self.reference.group]
        )
        lower = np.where(self.count > 0, forecast.reading - self.location, 0.0)
        information = forecast.information + unexplained**2 / total
        information = np.where(information > 0, information, np.nan)
        loss = (unexplained * lower / total - forecast.score) / information
        return (
            loss,
            1 / np.sqrt(information),
            1 / np.sqrt(forecast.information + unexplained**2 / certain),
        )

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
            doubt = np.nan_to_num(MEDIAN_VARIANCE * median_of(error[:, known].T ** 2) / known.size)
            usual = reference.drift[number] ** 2
            share = usual / (usual + doubt)
            most = 2 * np.sqrt(usual + doubt)
            loss[:, at] -= (common - np.clip((1 - share) * common, -most, most))[:, None]
            for rows in (error, alone):
                rows[:, at] = np.sqrt(rows[:, at] ** 2 + (share * doubt)[:, None])
        return loss, error, alone

    def _agree(self, best: Ints) -> Bools:
        """Return whether there are three readings at least since the start."""
        since = np.cumsum(np.vstack([self.count, self.reference.past.count[::-1]]), axis=0)
        return np.asarray(since[STARTS[best], np.arange(best.size)] >= AGREEING)

    def _ratio(self, i: int, nth: int, loss: float) -> float:
        """Return the log likelihood ratio of a loss against none, of the readings of series `i`
        since that start.

        It is that of noise with long tails, less what healthy readings of the group yield on
        average, so that noise of another shape is not taken for a loss.
        """
        reference, noise = self.reference, float(self.noise[i])
        level, group = reference.forecast.before[nth, i], reference.group[i]
        strays, healthy = float(reference.strays[group]), reference.healthy[group]
        mine = np.flatnonzero(healthy == reference.reads[i])[:1]
        # A loss that is new is no evidence that healthy readings stray
        if mine.size and not reference.runs[i]:
            healthy = np.delete(healthy, mine)
            strays = share_of_strays(healthy)
        own = self.distance[:, i]
        own = own[np.isfinite(own)] - level
        ratio = float(_log_ratio(own / noise, loss / noise).sum())
        ratio -= float(own.size * _healthy_yield(healthy, loss / noise, strays))
        runs = np.arange(len(reference.past.count) - STARTS[nth], len(reference.past.count))
        then = reference.past.location[runs, i] - level - reference.moved[runs, group]
        then, count = then[np.isfinite(then)], reference.past.count[runs, i][np.isfinite(then)]
        sd = noise / np.sqrt(count)
        share = np.where(count < AGREEING, np.minimum(strays * count, 0.5), strays)
        ratio += float((_log_ratio(then / sd, loss / sd) - _if_stray(loss / sd, share)).sum())
        return ratio


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
    without, with_loss = np.square(scaled), np.square(np.add(scaled, loss))
    return np.asarray(
        (_TAILS + 1) / 2 * (np.log1p(without / (_TAILS - 2)) - np.log1p(with_loss / (_TAILS - 2)))
    )


def _if_stray(loss: Floats | float, share: Floats | float) -> Floats:
    """Return the log of the mean likelihood ratio of healthy readings if all strays were as low as
    the loss.
    """
    return np.asarray(np.log1p(share * np.exp(_log_ratio(-loss, loss))))


def _healthy_yield(healthy: Floats, loss: float, strays: float) -> float:
    """Return the mean log likelihood ratio of healthy readings: as computed or as `healthy` shows,
    the larger one.
    """
    seen = float(np.mean(np.exp(_log_ratio(healthy, loss)))) if healthy.size else 1.0
    return max(float(_if_stray(loss, strays)), math.log(seen))


def _with_scatter(reference: Reference, distance: Floats, value: Floats, count: Ints) -> Floats:
    """Return the noise, increased if this run's own readings of a series scatter more than noise
    and strays do.
    """
    scaled = np.clip((distance - value) / reference.noise, -STRAYING, STRAYING)
    of_strays = reference.strays[reference.group] * count * STRAYING**2
    squares = np.maximum(np.nansum(scaled**2, axis=0) - of_strays, 0.0)
    many = count >= AGREEING
    louder, _ = moderated(
        np.where(many, squares, 0.0), np.where(many, count - 1, 0), reference.degrees
    )
    return reference.noise * louder
