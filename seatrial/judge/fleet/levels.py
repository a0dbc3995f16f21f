"""What each series should read tonight, and how far chance takes it: from its past, its peers, or both."""

from dataclasses import dataclass

import numpy as np

from seatrial.judge.fleet.grouped import Grouped, Ints
from seatrial.judge.fleet.night_noise import coarse, louder_than_peers, noise_by_nights
from seatrial.judge.fleet.odds import SCALE_PER_MAD, SCALE_PER_STEP, VARIANCE_OF_MIDMEAN, VARIANCE_OF_PAIRS, Floats
from seatrial.judge.fleet.rules import Rules
from seatrial.judge.fleet.slow_noise import slow_variance

_ENOUGH_SERIES = 2000  # of a group: half as many still tell its noise


@dataclass(frozen=True, slots=True)
class SeriesHistory:
    """What is known of M series before tonight; values are natural logs with more = better, NaN where there is none.

    `group` (M) numbers them from 0: those of one group are peers. `good` (R, M) are the reference nights, which all
    passed; `recent` (T, M) the last nights, whatever they came to; oldest first. `more` are the repeated measurements
    of those nights in the order they were taken: night (row of `nights`), series, value. `renewed`: the software is
    not that of `good`.
    """

    group: Ints
    good: Floats
    recent: Floats
    more: tuple[Ints, Ints, Floats] | None = None
    renewed: bool = False

    @property
    def nights(self) -> Floats:
        """(R + T, M): the reference nights and then the recent ones."""
        return np.vstack([self.good, self.recent])


@dataclass(frozen=True, slots=True)
class Levels:
    """Per series: what it should read, how well that is known (one standard deviation), and the noise's scale.

    The scale is NaN where too little is known to judge by it. `shared` is the part of the noise's variance that repeats
    in the same night have in common. `nights` is how many reference nights it has, `peers` how many its group has
    tonight.
    """

    centre: Floats
    unsure: Floats
    scale: Floats
    shared: Floats
    nights: Ints
    peers: Ints


def levels(past: SeriesHistory, tonight: Floats, rules: Rules) -> Levels:
    """Each series' own median, drawn towards its peers' as far as it is not known well itself."""
    again = None if past.more is None else measured_again(past)
    good, paired = _means_of_nights(past, again)
    own, nights = _midmeans(good)
    at = Grouped.of(past.group)
    peers = np.bincount(past.group[np.isfinite(tonight)], minlength=at.groups)
    known = np.where(nights > 0, own, np.nan)
    middle = at.median(np.where(at.any(nights > 0)[past.group], known, tonight))
    start = np.where(nights > 0, own, middle[past.group])
    some = at.sample(_ENOUGH_SERIES)
    several = Grouped(past.group[some], at.groups)
    noise, steps = noise_by_nights(np.vstack([past.good[:, some], past.recent[:, some]]), several)
    enough = at.largest(nights) >= rules.nights_to_learn
    shown = np.fmax(noise, _by_repeats(past, again, at))
    by_peers = np.maximum(_by_peers(at, tonight - start, peers, rules), np.nan_to_num(shown))
    chance = np.where(enough, noise * inflation(steps), by_peers)
    unknown = (nights == 0) & (peers < rules.least_peers)[past.group]  # nothing says what such a series should read
    scale = np.where(unknown, np.nan, np.maximum(chance, rules.least_scale)[past.group])
    scale = scale * louder_than_peers(past.good, None if again is None else again[: len(past.good)], noise, at)
    shared = _shared(past, again, at, noise, rules)[past.group]
    error = _error(scale, nights, paired, shared)
    spread = _spread(at, own, error, nights, peers, scale, rules)
    weight = np.where(nights > 0, 1 / (1 + (error / spread) ** 2), 0.0)  # alone (infinite spread) it is 1
    centre = middle[past.group] + weight * (start - middle[past.group])
    recent = _recent_means(past, again)[:, some]
    slow = slow_variance(good[:, some], recent, own[some], noise, several, rules)[past.group]
    unsure = np.where(nights > 0, np.sqrt(weight * error**2 + slow), spread)
    return Levels(centre, unsure, scale, shared, nights, peers[past.group])


def _error(scale: Floats, nights: Ints, paired: Floats, shared: Floats) -> Floats:
    """The standard deviation of a series' own centre; nights with two measurements say more, as far as those differ."""
    gained = paired * (1 - shared) * (1 - VARIANCE_OF_PAIRS)
    return np.asarray(scale * np.sqrt(VARIANCE_OF_MIDMEAN / np.maximum(nights, 1) * (1 - gained)))


def _means_of_nights(past: SeriesHistory, again: Floats | None) -> tuple[Floats, Floats]:
    """The reference nights, each the mean of its first two measurements; and in what share of them there were two."""
    if again is None:
        return past.good, np.zeros(past.group.size)
    second = again[: len(past.good)]
    two = np.isfinite(second) & np.isfinite(past.good)
    return np.where(two, (past.good + second) / 2, past.good), two.sum(axis=0) / max(len(past.good), 1)


def _recent_means(past: SeriesHistory, again: Floats | None) -> Floats:
    """The recent nights, each the mean of its first two measurements."""
    if again is None:
        return past.recent
    second = again[len(past.good) :]
    return np.where(np.isfinite(second), (past.recent + second) / 2, past.recent)


def _by_peers(at: Grouped, rest: Floats, peers: Ints, rules: Rules) -> Floats:
    """Per group the noise that tonight's peers show; NaN where they are too few."""
    centred = np.abs(rest - at.median(rest)[at.group])
    scale = np.maximum(SCALE_PER_MAD * at.median(centred), coarse(at, centred, centred)) * inflation(peers)
    return np.where(peers >= rules.peers_to_learn, scale, np.nan)


def _by_repeats(past: SeriesHistory, again: Floats | None, at: Grouped) -> Floats:
    """Per group the noise that two measurements of one night show; NaN where nothing was measured twice."""
    if again is None:
        return np.full(at.groups, np.nan)
    typical, _ = at.median_of_rows(np.abs(past.nights - again))
    return np.asarray(SCALE_PER_STEP * typical)


def _shared(past: SeriesHistory, again: Floats | None, at: Grouped, noise: Floats, rules: Rules) -> Floats:
    """Per group the share of the variance that is the night's: how alike two measurements of one night change.

    Steps from one night to the next, in which levels cancel, of the first and of the second measurement; their
    correlation, where it is beyond chance. Groups with few such pairs take the figure of all together.
    """
    if again is None:
        return np.full(at.groups, rules.shared_at_first)
    limit = 3 * noise[at.group]  # so that no stray measurement decides
    first, second = (np.clip(np.diff(rows, axis=0), -limit, limit) for rows in (past.nights, again))
    both = np.isfinite(first) & np.isfinite(second)
    first, second = np.where(both, first, 0.0), np.where(both, second, 0.0)
    sums = [at.total(rows.sum(axis=0)) for rows in (first * second, first * first, second * second, both)]
    few = sums[3] < rules.pairs_to_learn
    product, one, other, count = (np.where(few, part.sum(), part) for part in sums)
    likeness = product / np.sqrt(np.maximum(one * other, 1e-30))
    share = np.where(likeness > 2 / np.sqrt(np.maximum(count, 1)), np.minimum(likeness, 0.95), 0.0)
    return np.where(count < rules.nights_to_learn * rules.nights_to_learn, rules.shared_at_first, share)


def measured_again(past: SeriesHistory) -> Floats:
    """What each series read when it was measured again, first of all; later repeats were asked for by suspicion."""
    repeated = np.full(past.nights.shape, np.nan)
    assert past.more is not None
    night, series, value = past.more
    repeated[night[::-1], series[::-1]] = value[::-1]  # the earliest wins
    return repeated


def inflation(count: Floats | Ints, deviations: float = 2.0) -> Floats:
    """A spread learned from few values may be far too small: by how much, at so many standard deviations of its error.

    Of a median; a spread that uses its values better has a smaller error.
    """
    return np.asarray(1 + deviations / np.sqrt(np.maximum(count, 1)))


def _spread(at: Grouped, own: Floats, error: Floats, nights: Ints, peers: Ints, scale: Floats, rules: Rules) -> Floats:
    """The standard deviation of the levels of peers: what was seen, but at least half the noise's scale."""
    known = np.where(nights > 0, own, np.nan)
    middle = at.median(known)[at.group]
    observed = 1.4826 * (at.median(np.abs(known - middle)) * inflation(peers))[at.group]
    chance = at.median(np.where(nights > 0, error, np.nan))[at.group]
    alike = np.sqrt(np.maximum(np.nan_to_num(observed**2 - chance**2), (scale / 2) ** 2))
    return np.where(peers[at.group] >= rules.least_peers, alike, np.inf)


def _midmeans(nights: Floats) -> tuple[Floats, Ints]:
    """The mean of the middle half of each column (of three, the middle one) without its NaN, and how many it has."""
    known = np.isfinite(nights)
    count = np.full(nights.shape[1], len(nights)) if known.all() else known.sum(axis=0)
    ordered = np.sort(nights, axis=0)  # NaN last
    cut = np.where(count > 2, np.maximum(count // 4, 1), 0)
    first, last = int(cut.min(initial=len(nights))), int((count - cut).max(initial=0))
    middle = ordered[first:last]
    if known.all():
        return middle.sum(axis=0) / max(len(middle), 1), count
    rank = np.arange(first, last)[:, None]
    inside = (rank >= cut) & (rank < count - cut)
    return np.where(inside, middle, 0.0).sum(axis=0) / np.maximum(inside.sum(axis=0), 1), count
