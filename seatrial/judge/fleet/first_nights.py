"""The first nights, when no history tells noise from nodes: tonight's repeats do. Pure.

One-way random effects: what repeats of one series differ by is noise, what peers differ by beyond that is the nodes.
Tonight's part of the noise, which all repeats of a series share, counts as the node's: nothing tells them apart.
"""

import numpy as np

from seatrial.judge.fleet.grouped import Bools, Grouped
from seatrial.judge.fleet.levels import Levels, inflation
from seatrial.judge.fleet.night_noise import coarse, noise_by_nights
from seatrial.judge.fleet.odds import Floats
from seatrial.judge.fleet.rules import Rules

_SPREAD_LIMIT = 3.7  # median distances: what is farther off counts no more than that
_MANY = 48  # peers that tell without the one that is judged
_UNSURE = 1.0  # standard deviations of its error by which a spread may be larger than it looks


def has_few_nights(at: Grouped, known: Levels, rules: Rules) -> Bools:
    """Series whose group has peers enough to tell noise tonight, and too few nights to have learned it."""
    few = (at.largest(known.nights) < rules.nights_to_learn) & (at.largest(known.peers) >= rules.peers_to_learn)
    is_early: Bools = few[at.group]
    return is_early


def levels_of_tonight(at: Grouped, known: Levels, first: Floats, second: Floats, rules: Rules) -> Levels:
    """What each series should read by tonight's peers alone, from two measurements of it; NaN where one is missing."""
    both = np.isfinite(first) & np.isfinite(second)
    noise, pairs = noise_by_nights(np.vstack([first, second]), at)
    mean = np.where(both, (first + second) / 2, first)
    middle = at.median(mean)
    noise = np.maximum(noise, coarse(at, first - middle[at.group], first - second))
    # Of those that looked slow alone nobody learns how much healthy ones differ.
    enough = pairs >= np.maximum(rules.peers_to_learn, at.largest(known.peers) / 2)
    scale = np.where(enough, np.maximum(noise * inflation(pairs), rules.least_scale), np.nan)
    limit = _SPREAD_LIMIT * at.median(np.abs(mean - middle[at.group]))
    group = at.group
    alone = (at.largest(known.peers) >= _MANY)[group] & (known.nights < rules.nights_to_tell)
    total = _variance(at, mean - middle[group], limit, alone) * inflation(pairs, _UNSURE)[group] ** 2
    chance = _variance(at, (first - second) / 2, limit, alone)  # means of two differ by as much as their halves do
    nodes = np.maximum(np.sqrt(np.maximum(total - chance, 0.0)), rules.least_unlike * scale[group])
    none = np.zeros_like(known.nights)
    return Levels(middle[group], nodes, scale[group], np.zeros(group.size), none, known.peers)


def _variance(at: Grouped, distance: Floats, limit: Floats, without_itself: Bools) -> Floats:
    """Per series the variance, about 0, in its group; or of its peers alone, so that a fault makes no room for itself.

    Of few peers, or where its past speaks too, its own value counts as well: that costs power and saves alarms.
    """
    known = np.isfinite(distance)
    square = np.where(known, np.minimum(np.abs(distance), limit[at.group]) ** 2, 0.0)
    own = known & without_itself
    total, count = at.total(square)[at.group], at.total(known)[at.group]
    return np.asarray((total - np.where(own, square, 0.0)) / np.maximum(count - own, 1))
