"""Noise that lasts for nights: how far a healthy series wanders from what its reference nights say of it. Pure.

Steps from one night to the next do not show it, and repeats do not average it out. The means of blocks of reference
nights do: they differ by more than the noise of single nights explains. Where a series has peers, so do the distances
between reference and recent nights, over all peers; a few faulty ones among them hardly count. Groups that
are too small for that, such as a whole fleet as one series, have only the blocks, and those lie close to each other.
"""

from dataclasses import dataclass

import numpy as np

from seatrial.judge.fleet.grouped import Bools, Grouped
from seatrial.judge.fleet.odds import VARIANCE_OF_MIDMEAN, Floats
from seatrial.judge.fleet.rules import Rules

_NIGHTS_IN_BLOCK = 6
_LEAST_RECENT = 3
_AHEAD = 1.5  # tonight is farther from the reference than its blocks are from each other
_AHEAD_OF_FEW = 4.0  # several series, of which the one that wandered farthest must not look guilty
_AHEAD_ALONE = 3.0  # of an AR(1) with 0.9 the blocks show 0.43 of the variance; tonight's distance is 1.28 of it
_BELIEF = 6.0  # degrees of freedom that the prior counts for
_STRAY = 4.0  # times the typical one: more than that is a fault
_MEAN_OVER_MEDIAN = {1: 2.2, 2: 1.44, 3: 1.27}  # of chi squared
_LEAST_PEERS = 8


@dataclass(frozen=True, slots=True)
class _Seen:
    """The variance of means, how much of it single nights explain, and its degrees of freedom; of each group."""

    variance: Floats
    explained: Floats
    freedom: Floats

    @property
    def rest(self) -> Floats:
        return np.maximum(self.variance - self.explained, 0.0)

    @property
    def error(self) -> Floats:
        return np.asarray(self.variance * np.sqrt(2 / np.maximum(self.freedom, 1)))

    def pooled(self, scale: Floats) -> "_Seen":
        """Of all groups together, for each: as a share of the noise's variance."""
        known = np.isfinite(scale) & (scale > 0)
        square = np.where(known, scale, 1.0) ** 2
        weight = np.where(known, self.freedom, 0.0)
        total = max(float(weight.sum()), 1.0)
        variance, explained = ((weight * part / square).sum() / total for part in (self.variance, self.explained))
        return _Seen(variance * square, explained * square, np.full(len(scale), weight.sum()))


def slow_variance(good: Floats, recent: Floats, own: Floats, scale: Floats, at: Grouped, rules: Rules) -> Floats:
    """The variance (per group) of tonight's healthy level around the expected one; natural logs squared.

    `good` (R, M) and `recent` (T, M) are the means of the nights, `own` (M) the levels by `good`, `scale` (groups) that
    of the noise. Never less than what `rules` assume. Groups of few series are drawn towards what all together show.
    """
    scale = np.nan_to_num(scale)
    assumed = rules.least_wander**2 + (rules.wander * scale) ** 2
    if len(good) < rules.nights_to_learn:
        return np.asarray(_AHEAD * assumed)
    good, recent = _without_common(good - own, at), _without_common(recent - own, at)
    single = _by_steps(good, scale, at)
    known = [
        _drawn(seen, seen.pooled(scale), assumed, rules.sure_wander)
        for seen in (_between_blocks(good, single, at), _between_periods(recent, len(good), single, at))
    ]
    few, alone = at.sizes < _LEAST_PEERS, at.sizes < rules.least_peers
    ahead = np.where(alone, _AHEAD_ALONE, np.where(few, _AHEAD_OF_FEW, _AHEAD))
    return np.asarray(ahead * np.maximum(*known))


def _drawn(seen: _Seen, everywhere: _Seen, assumed: Floats, sure: float) -> Floats:
    """The upper end of what a group's slow variance may be: its own and that of all groups, by their weights.

    `sure` is by how many standard errors it may be larger than it looks.
    """
    own = seen.freedom / (_BELIEF + seen.freedom)
    error = np.hypot(own * seen.error, (1 - own) * everywhere.error)
    rest = own * seen.rest + (1 - own) * np.maximum(everywhere.rest, assumed)
    return np.asarray(np.where(everywhere.freedom > 0, np.maximum(assumed, rest + sure * error), assumed))


def _without_common(nights: Floats, at: Grouped) -> Floats:
    """What peers do together is not the wandering of one of them."""
    several = at.sizes > 3
    if not several.any() or not len(nights):
        return nights
    common = np.where(several, np.nan_to_num([at.median(night) for night in nights]), 0.0)
    return np.asarray(nights - common[:, at.group])


def _by_steps(good: Floats, scale: Floats, at: Grouped) -> Floats:
    """Per group the variance of a night's mean, from one night to the next."""
    steps = np.diff(good, axis=0)
    limit = 4 * np.nan_to_num(scale)[at.group]
    squares = np.minimum(steps * steps, limit * limit)
    known = np.isfinite(squares)
    total = at.total(np.where(known, squares, 0.0).sum(axis=0))
    return np.asarray(total / np.maximum(2 * at.total(known.sum(axis=0)), 1))


def _between_blocks(good: Floats, single: Floats, at: Grouped) -> _Seen:
    blocks = max(2, len(good) // _NIGHTS_IN_BLOCK)
    parts = np.array_split(np.arange(len(good)), blocks)
    known = np.array([np.isfinite(good[part]).sum(axis=0) for part in parts])
    sums = np.array([np.nansum(good[part], axis=0) for part in parts])
    lengths = np.array([[len(part)] for part in parts])
    whole: Bools = np.asarray((2 * known >= lengths).all(axis=0))
    means = sums / np.maximum(known, 1)
    variance = np.where(whole, means.var(axis=0, ddof=1), np.nan)
    share = np.where(whole, (1 / np.maximum(known, 1)).mean(axis=0), 0.0)
    count = at.total(whole)
    typical = _MEAN_OVER_MEDIAN.get(blocks - 1, 1.2) * at.median(variance)
    clipped = np.where(whole, np.minimum(variance, _STRAY * typical[at.group]), 0.0)
    mean = at.total(np.nan_to_num(clipped)) / np.maximum(count, 1)
    return _Seen(mean, single * at.total(share) / np.maximum(count, 1), count * (blocks - 1.0))


def _between_periods(recent: Floats, references: int, single: Floats, at: Grouped) -> _Seen:
    """How far the recent nights lie from the reference, over peers."""
    known = np.isfinite(recent).sum(axis=0)
    enough = known >= _LEAST_RECENT
    count = at.total(enough)
    means = np.where(enough, np.nansum(recent, axis=0) / np.maximum(known, 1), np.nan)
    spread = 1.4826 * at.median(np.abs(means - at.median(means)[at.group])) if len(recent) else np.zeros(at.groups)
    nights = at.total(np.where(enough, known, 0)) / np.maximum(count, 1)
    explained = single * (1 / np.maximum(nights, 1) + VARIANCE_OF_MIDMEAN / references)
    usable = count >= _LEAST_PEERS
    return _Seen(np.where(usable, spread**2, 0.0), np.where(usable, explained, 0.0), np.where(usable, count / 2.5, 0.0))
