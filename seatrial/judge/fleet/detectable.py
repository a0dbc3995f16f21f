"""What size of loss tonight's measurements would have found: the minimum detectable effect. Pure."""

import numpy as np

from seatrial.judge.fleet.grouped import Grouped, Ints
from seatrial.judge.fleet.levels import inflation
from seatrial.judge.fleet.night import Night, allowed
from seatrial.judge.fleet.odds import Floats, Odds, Slowdowns, quantile
from seatrial.judge.fleet.rules import RULES, Rules
from seatrial.judge.fleet.suspicion import worth_taking

POWER = 0.8  # of the losses of that size are found
DEVIATIONS = 0.84  # of a normal value: a share of 1 - POWER lies farther below
_WITH_A_FAULT = 6.0  # what one faulty node adds to the variance between peers, times that over their number
_VARIANCE = 1.3  # times its scale squared, of t noise whose tails count no more than they tell
_CHANCES = quantile((np.arange(16) + 0.5) / 16)  # noise that stands for all
_STEPS = 20  # of halving: to a millionth of the largest loss
_LARGEST = np.log(100.0)


def detectable(night: Night, group: Ints, rules: Rules = RULES) -> Floats:
    """Per series the least loss, on logs, that would be blamed in POWER of such nights; NaN where none would be.

    It is that of a usual member of its group, against which nothing was held before.
    """
    at = Grouped.of(group)
    scale, shared = at.median(night.levels.scale), at.median(night.levels.shared)
    variance = _variance_of_levels(night, at, scale, rules) / scale**2
    sizes = Slowdowns.of(np.array([at.median(row) for row in night.suspicion.sizes.delta]))
    allowance, repeats = allowed(variance, sizes, night.needed), _repeats(night, at, shared, rules)
    needed = night.needed + np.log(len(sizes.delta))
    stray = DEVIATIONS * np.sqrt(variance + _VARIANCE * shared)

    def finds(loss: Floats) -> Floats:
        return np.asarray(_evidence(stray - loss / scale, sizes, allowance, repeats, shared) >= needed)

    low, high = np.zeros(at.groups), np.full(at.groups, _LARGEST)
    is_findable = finds(high)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_detected = finds(middle)
        low, high = np.where(is_detected, low, middle), np.where(is_detected, middle, high)
    by_tonight = at.largest(night.levels.nights) < rules.nights_to_tell  # also how loud they are
    unsure = inflation(at.largest(night.levels.peers), 1.0)
    return np.where(is_findable, np.where(by_tonight, unsure, 1.0) * high, np.nan)[group]


def _variance_of_levels(night: Night, at: Grouped, scale: Floats, rules: Rules) -> Floats:
    """Of what a usual series should read. On the first nights its peers tell it, a faulty one among them as well."""
    levels = night.levels
    variance = at.median(np.where(np.isfinite(levels.unsure), levels.unsure, np.nan)) ** 2
    by_peers = at.largest(levels.nights) < rules.nights_to_learn
    added = _WITH_A_FAULT * (variance + _VARIANCE * scale**2 / 2) / np.maximum(at.largest(levels.peers), 1)
    return np.nan_to_num(variance) + np.where(by_peers, added, 0.0)


def _repeats(night: Night, at: Grouped, shared: Floats, rules: Rules) -> Floats:
    """How many measurements of a slow series there would have been: as many as help, where repeats were to be had."""
    taken = at.median(night.repeats.astype(np.float64))
    worth = np.array([worth_taking(share, rules) for share in np.nan_to_num(shared)], dtype=np.float64)
    return np.where(at.any(night.doubtful & (night.repeats < 2)), np.maximum(taken, 1), worth)


def _evidence(z: Floats, sizes: Slowdowns, allowance: Odds, repeats: Floats, shared: Floats) -> Floats:
    """The log odds that so many measurements around `z` come to; in 1 - POWER of the nights it is less."""
    odds = np.array([sizes.log_odds(z + allowance + chance) for chance in _CHANCES])
    usual = odds.mean(axis=0) - DEVIATIONS * odds.std(axis=0) / np.sqrt(repeats)
    return np.asarray((repeats / (1 + (repeats - 1) * shared) * usual).max(axis=0))
