"""What peers do together: a fleet that slows down as one is no node's fault."""

from dataclasses import dataclass, replace

import numpy as np

from seatrial.judge.fleet.grouped import Grouped, Ints
from seatrial.judge.fleet.levels import Levels, SeriesHistory, measured_again
from seatrial.judge.fleet.night import Night, Repeat, judge_night
from seatrial.judge.fleet.odds import Floats
from seatrial.judge.fleet.rules import RULES, Rules


@dataclass(frozen=True, slots=True)
class Verdicts:
    """`each` has the M series; `fleet` one per group: the median of how far its members are from their levels."""

    each: Night
    fleet: Night

    @property
    def alarm(self) -> bool:
        return bool(self.each.guilty.any() or self.fleet.guilty.any())


def judge_fleet(past: SeriesHistory, tonight: Floats, repeat: Repeat | None = None, rules: Rules = RULES) -> Verdicts:
    """Judge every series and every group of peers; the alarms that a healthy run may raise are shared half and half."""
    again: list[Floats] = []

    def measured(which: Ints) -> Floats:
        values = np.full(tonight.size, np.nan)
        if repeat is not None:
            values[which] = repeat(which)
        return values

    def noted(which: Ints) -> Floats:
        again.append(measured(which))
        return again[-1][which]

    each = judge_night(past, tonight, noted if repeat else None, rules, series=2 * tonight.size)
    fleets = _Fleets(past.group, each.levels, rules)
    rounds = iter([fleets.moved(values) for values in again])
    missing = np.full(fleets.at.groups, np.nan)

    def repeated(which: Ints) -> Floats:
        """What the members' own repeats tell; where those are too few, all members once more."""
        values = next(rounds, missing)[which]
        unknown = np.isnan(values)
        if unknown.any():
            values[unknown] = fleets.moved(measured(fleets.members(which[unknown])))[which[unknown]]
        return values

    again_all = repeated if repeat else None
    as_one = replace(rules, sure_wander=rules.sure_wander_of_fleets)
    fleet = judge_night(fleets.past(past), fleets.moved(tonight), again_all, as_one, series=2 * fleets.at.groups)
    return Verdicts(each, fleet)


class _Fleets:
    """Each group of peers as one series."""

    def __init__(self, group: Ints, levels: Levels, rules: Rules) -> None:
        self.at = Grouped.of(group)
        self._centre = levels.centre
        self._least = np.maximum(rules.least_peers, self.at.largest(levels.peers) // 2)

    def moved(self, values: Floats) -> Floats:
        """The median distance of the members from their levels; NaN where less than half of them were measured."""
        shifts = self.at.median(values - self._centre)
        return np.where(self.at.count(np.isfinite(values)) >= self._least, shifts, np.nan)

    def members(self, groups: Ints) -> Ints:
        """The series of some groups."""
        return np.flatnonzero(np.isin(self.at.group, groups))

    def past(self, past: SeriesHistory) -> SeriesHistory:
        good, recent = (self._rows(rows) for rows in (past.good, past.recent))
        if past.more is None:
            return SeriesHistory(np.arange(self.at.groups), good, recent, renewed=past.renewed)
        once_more = self._rows(measured_again(past))
        night, series = np.nonzero(np.isfinite(once_more))
        more = (night, series, once_more[night, series])
        return SeriesHistory(np.arange(self.at.groups), good, recent, more, past.renewed)

    def _rows(self, rows: Floats) -> Floats:
        return np.array([self.moved(row) for row in rows]).reshape(-1, self.at.groups)
