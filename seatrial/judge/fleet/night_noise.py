"""Noise of single measurements, from one night to the next: of a group of peers, and of one that is louder. Pure."""

import numpy as np

from seatrial.judge.fleet.grouped import Grouped, Ints
from seatrial.judge.fleet.odds import SCALE_PER_STEP, Floats

_MANY_TIES = 0.1  # of all steps: fewer are chance
_COARSEST = 0.1  # no unit is larger: one slow node among equals is no rounding
_TICKS = 0.5  # the least scale: readings that hop between two ticks say nothing
_STRAY = 8.0  # scales: what is farther off counts no more than that
_BELIEF = 10.0  # steps: so much counts the assumption that a series is as loud as its peers
_STEPS_PER_FREEDOM = 2.0  # each night is in two of the differences
_CHANCE = 1.1


def noise_by_nights(nights: Floats, at: Grouped) -> tuple[Floats, Ints]:
    """Per group the scale of the noise from one night to the next, and from how many pairs of nights.

    Where readings are rounded, equal ones hide the noise: those that differ tell the unit, and the scale is at least
    half of it.
    """
    steps = np.abs(np.diff(nights, axis=0))
    typical, count = at.median_of_rows(steps)
    tick = _tick(steps, at)
    spread = np.sqrt((SCALE_PER_STEP * typical) ** 2 + tick**2 / 12)
    return np.maximum(spread, _TICKS * tick), count


def _tick(steps: Floats, at: Grouped) -> Floats:
    """Per group the unit to which readings are rounded; 0 where they are not."""
    same = steps == 0
    ties = at.total(same.sum(axis=0)) > _MANY_TIES * at.total(np.isfinite(steps).sum(axis=0))
    if not ties.any():
        return np.zeros(at.groups)
    apart = np.where(same, np.nan, steps)
    return np.where(ties, np.nan_to_num(at.lower_quartile_of_rows(apart)), 0.0)


def coarse(at: Grouped, distance: Floats, change: Floats) -> Floats:
    """Per group the least scale that rounding leaves: more than 0 where half of the changes are none.

    `distance` (M) is how far each reading is from those of its peers; the unit is told by those that are not equal.
    """
    ties = at.total(change == 0) > at.total(np.isfinite(change)) / 2
    unit = at.lower_quartile_of_rows(np.where(distance == 0, np.nan, np.abs(distance))[None])
    return np.where(ties & (unit <= _COARSEST), _TICKS * unit, 0.0)


def louder_than_peers(good: Floats, again: Floats | None, noise: Floats, at: Grouped) -> Floats:
    """By series how much larger its own noise is than that of its group, 1 at least.

    Of the reference nights alone: what is faulty lately makes no noise. What few nights show is drawn towards 1, and
    what chance shows of the loudest of many is taken off.
    """
    distance, count = _distances(np.diff(good, axis=0), noise, at)
    if again is not None:
        pairs, many = _distances(good - again, noise, at)
        distance, count = distance + pairs, count + many
    mean = np.where(count > 0, distance / np.maximum(count, 1), np.nan)
    usual = at.median(mean)[at.group]
    ratio = np.where((usual > 0) & (count > 0), mean / np.where(usual > 0, usual, 1.0), 1.0)
    freedom = count / _STEPS_PER_FREEDOM
    return np.asarray(np.maximum(1.0, np.sqrt((_BELIEF + freedom * ratio**2) / (_BELIEF + freedom)) / _CHANCE))


def _distances(differences: Floats, noise: Floats, at: Grouped) -> tuple[Floats, Ints]:
    """By series the sum of all distances, and how many."""
    limit = _STRAY * np.nan_to_num(noise, nan=np.inf)[at.group]
    distance = np.abs(differences)
    np.minimum(distance, limit, out=distance)
    known = np.isfinite(distance)
    if known.all():
        return distance.sum(axis=0), np.full(at.group.size, len(distance))
    return np.where(known, distance, 0.0).sum(axis=0), known.sum(axis=0)
