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
from seatrial.detection.likelihood import SeriesReadings
from seatrial.detection.losses import Losses, RunReadings
from seatrial.detection.noise import AGREEING, ENOUGH
from seatrial.detection.readings import Bools, Floats, Ints
from seatrial.detection.references import MUST_FIND, Reference

# Of healthy runs, so that noise of any shape stays below the 0.5 % of docs/error-rates.md
FALSE_ALARMS = 0.001
CHANCE = 3.0  # standard errors by which more readings may move the median
SURE = 0.9  # the confidence at the limit
NEAR = 0.3  # share of the limit: a smaller loss is not read again
# The same of this run alone: one reading in six is so low, and 3 % of losses of 10 % lie above 0.3
NEAR_NOW = 0.2
LEAST_LOSS = -math.log(0.98)  # on logs: nobody cares about less, and a loss of 3 % may read 2 %
LEAST_APART = MUST_FIND / 2  # of eight peers; half of it of sixteen
WATCHED = 0.5  # the least confidence that is reported
LEAST_WATCHED = -math.log(0.97)  # on logs: nobody acts on what may be a loss of less than 3 %
# Independent tests of a series in a run: neighbouring starts share runs and count as three,
# further readings as two
_CHANCES = 6
_MOST_SURE = 0.99  # a fault of the measurement itself remains


@dataclass(frozen=True, slots=True)
class Scan:
    """The start of a change that is most likely for each of M series; natural logs.

    `start` counts the runs before this one that belong to the change, `loss` is by how much the
    runs since are lower than `level`, `limit` the loss from which on a series is too low for normal
    noise. `confidence` follows from the log likelihood ratio, of normal noise or with strays,
    whichever is less.
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
    """The search for changes in the readings of a run and of those before it.

    `quantile` is the loss in standard errors that a healthy series exceeds too seldom to count,
    `least_loss` (S, M) the smallest loss that matters.
    """

    def __init__(self, run: RunReadings) -> None:
        self.run = run
        self.reference = run.reference
        chances = _CHANCES * max(run.count.size, 1)
        false_alarms = FALSE_ALARMS / chances
        self.quantile = NormalDist().inv_cdf(1 - false_alarms)
        least = np.maximum(self.reference.step, _least_loss(self.reference))
        self.least_loss: Floats = np.minimum(least, self.reference.cap)

    def scan(self) -> Scan:
        """Return the most likely change of each series, over all starts."""
        losses = self.run.losses()
        loss = losses.size
        limit = self._limit(losses)
        levels = self.reference.forecast.before
        # A loss in earlier runs counts only if this run shows it too. What peers gained is no loss
        agrees = levels - self.run.at_most > loss / 2
        counts = np.isfinite(loss) & agrees
        excess = np.where(counts, loss / limit, -np.inf)
        best, ratio = self._most_likely(loss, excess)
        series = np.arange(best.size)
        of_best = best, series
        enough = self._enough(ratio)
        narrower = np.sqrt(2 * enough) / self.quantile
        narrowed = np.maximum(limit[of_best] * narrower, self.least_loss[of_best])
        is_low = agrees[of_best] & (loss[of_best] > narrowed)
        is_likely = (ratio > enough) & self._is_read(best)
        bad = is_low & is_likely
        confidence = _confidence(ratio - enough)
        suspected = confidence >= WATCHED
        # A series that was read three times and is not suspected is healthy.
        undecided = (self.run.count < AGREEING) | suspected
        unproven = (excess[0] > 1) & ~bad & undecided
        told = bad | (suspected & ~unproven)
        shown = np.where(told, best, 0)
        of_shown = shown, series
        return Scan(
            start=STARTS[shown],
            level=levels[of_shown],
            loss=loss[of_shown],
            limit=np.where(bad, narrowed, limit[of_shown]),
            confidence=confidence,
            bad=bad,
            unproven=unproven,
            near=self._near(losses, limit),
        )

    def _limit(self, losses: Losses) -> Floats:
        """Return (S, M) the loss from which on a series is too low for normal noise."""
        by_chance = self.quantile * losses.error
        return by_chance.clip(self.least_loss, self.reference.cap)

    def _enough(self, ratio: Floats) -> float:
        """Return the log likelihood ratio from which on a series is bad."""
        of_one = self.quantile**2 / 2  # what normal noise yields at the limit
        discount = _discount(ratio - of_one)
        return max(of_one - discount, 1.0)

    def _most_likely(self, loss: Floats, excess: Floats) -> tuple[Ints, Floats]:
        """Return (M) the index of the most likely start, and its log likelihood ratio.

        `loss` (S, M) is the loss for each start, `excess` (S, M) the loss over its limit. The ratio
        is 0 for a change that is too unlikely to report.
        """
        best = np.argmax(excess, axis=0)
        ratio = np.zeros(best.size)
        z = excess * self.quantile
        suspicious = z > self._least_suspicious()
        in_doubt = np.flatnonzero(suspicious.any(axis=0))
        for i in in_doubt.tolist():
            starts = np.flatnonzero(suspicious[:, i])
            of_starts = starts, i
            by_normal_noise = z[of_starts] ** 2 / 2
            readings = SeriesReadings(self.run, i)
            losses = zip(starts.tolist(), loss[of_starts].tolist(), strict=True)
            by_reading = [readings.ratio(nth, size) for nth, size in losses]
            ratios = np.minimum(by_normal_noise, by_reading)
            likeliest = np.argmax(ratios)
            best[i] = starts[likeliest]
            ratio[i] = ratios[likeliest]
        return best, ratio

    def _least_suspicious(self) -> float:
        """Return the loss in standard errors from which on a change is reported under normal
        noise.
        """
        missing = _log_odds(SURE) - _log_odds(WATCHED)
        least = self.quantile**2 - 2 * missing
        return math.sqrt(max(least, 0.0))

    def _near(self, losses: Losses, limit: Floats) -> Bools:
        """Return (M) whether a series is so low, since any start, that further readings may show a
        loss.
        """
        by_median = self.reference.expected - self.run.value  # a stray moves the median less
        below = losses.size.copy()
        below[0] = np.minimum(below[0], by_median)
        shares = np.where(STARTS == 0, NEAR_NOW, NEAR)
        is_low = below > shares[:, None] * limit
        is_low &= self._may_show(losses)
        return np.asarray(is_low.any(axis=0))

    def _may_show(self, losses: Losses) -> Bools:
        """Return (S, M) whether any number of further readings may show a loss."""
        reducible = losses.error**2 - losses.alone**2
        by_chance = np.sqrt(np.maximum(reducible, 0))
        deepest = losses.size + CHANCE * by_chance
        by_normal_noise = self.quantile * losses.alone
        least_limit = np.minimum(by_normal_noise, self.reference.cap)
        return deepest > least_limit

    def _is_read(self, best: Ints) -> Bools:
        """Return (M) whether a series has at least three readings since its start in `best`."""
        before = self.reference.past.count
        latest_first = np.vstack([self.run.count, before[::-1]])
        since = latest_first.cumsum(axis=0)
        series = np.arange(best.size)
        return since[STARTS[best], series] >= AGREEING


def _least_loss(reference: Reference) -> Floats:
    """Return (S, M) the smallest loss that matters, without that of rounding.

    It is larger where only peers tell the level before a start: they differ by some per cent for
    ever, and few of them may lie close together by chance.
    """
    sizes = np.bincount(reference.group)[reference.group]
    past = reference.past
    known = past.good & (past.count > 0)
    of_peers = np.maximum(LEAST_LOSS, LEAST_APART * ENOUGH / sizes)
    least = np.empty((STARTS.size, sizes.size))
    for nth, start in enumerate(STARTS.tolist()):
        runs = max(len(known) - start, 0)
        before = known[:runs]
        least[nth] = np.where(before.any(axis=0), LEAST_LOSS, of_peers)
    return least


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))


def _confidence(beyond: Floats) -> Floats:
    """Return the confidence in changes whose log likelihood ratio exceeds the required one by
    `beyond`.
    """
    odds = np.clip(beyond, -50, 50) + _log_odds(SURE)
    probability = 1 / (1 + np.exp(-odds))
    at_most: Floats = np.minimum(probability, _MOST_SURE)
    return at_most


def _discount(margins: Floats) -> float:
    """Return how much less evidence is enough because several series show a loss: the log of their
    number.

    Of k series that are blamed, k times as many may be false ones (Benjamini and Hochberg,
    "Controlling the false discovery rate", 1995). `margins` are the log likelihood ratios less what
    one series needs.
    """
    falling = np.sort(margins)[::-1]
    ranks = np.arange(1, falling.size + 1)
    discounts = np.log(ranks)
    blamed = np.flatnonzero(falling >= -discounts)
    if not blamed.size:
        return 0.0
    return float(discounts[blamed[-1]])
