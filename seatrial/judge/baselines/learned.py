"""What the judge of fleets makes of a run: for each measurement that enough is known of, one baseline. Pure.

History and peers come together here. The rules: docs/decisions/0007-a-measured-error-rate.md.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median

import numpy as np

from seatrial.judge.baselines.grouping import PeerGroups, SeriesOfRun, Split, group_peers
from seatrial.judge.baselines.interval import around
from seatrial.judge.baselines.nights import Nights
from seatrial.judge.tolerance import log_reach, tolerance_of
from seatrial.judge.fleet.detectable import DEVIATIONS, detectable
from seatrial.judge.fleet.drift import find_change
from seatrial.judge.fleet.grouped import Ints
from seatrial.judge.fleet.levels import SeriesHistory
from seatrial.judge.fleet.night import Night, Repeat, lowest
from seatrial.judge.fleet.odds import Floats, posterior
from seatrial.judge.fleet.peer_groups import Verdicts, judge_fleet
from seatrial.judge.fleet.rules import RULES
from seatrial.judge.fleet.suspicion import worth_taking
from seatrial.judge.node_groups import NodeGroups
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement, Subject, by_series
from seatrial.model.result import Drift
from seatrial.text.numbers import short

_DRIFTS_TOLD = 50
_JUST = 1e-9  # on logs: on the right side of a bound that the value itself would be


@dataclass(frozen=True, slots=True)
class Learned:
    """By series: the baseline; of the blamed ones `remarks`, what that rests on, `drifts`, since when they are bad, and
    `confidence`, the probability that they have a fault.

    `doubtful` are neither proven nor cleared, with how many measurements of them are worth their time. `together` are
    groups of peers that are slower all alike, one measurement and its baseline for each. `splits` are peers that their
    numbers divide.
    """

    baselines: dict[str, Baseline] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    drifts: dict[str, Drift] = field(default_factory=dict)
    confidence: dict[str, float] = field(default_factory=dict)
    doubtful: dict[str, int] = field(default_factory=dict)
    together: list[tuple[Measurement, Baseline]] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)

    @property
    def slower(self) -> frozenset[str]:
        """The series of the slow sides of all splits."""
        return frozenset[str]().union(*(split.series for split in self.splits))


def learn(measurements: Iterable[Measurement], nights: Nights | None, groups: NodeGroups | None = None) -> Learned:
    """Judge all measurements of a run at once; those of the same series are repeats, in the order they were taken.

    Only nodes of the same group are peers, of `groups` and of those that their numbers form.
    """
    series = by_series(m for m in measurements if m.better and m.finite and m.value > 0)
    if not series:
        return Learned()
    first = [repeats[0] for repeats in series.values()]
    signs = np.array([-1.0 if m.better == "lower" else 1.0 for m in first])
    panel, repeats = _Panel(list(series), first, nights, signs), list(series.values())
    known = panel.past()
    medians = panel.logs([median(m.value for m in taken) for taken in repeats])
    run = SeriesOfRun(panel.names, first, signs, medians, known.nights, references=len(known.good))
    peers = group_peers(run, groups or NodeGroups())
    past, tonight = replace(known, group=peers.number), panel.logs([m.value for m in first])
    return _learned(panel, past, repeats, judge_fleet(past, tonight, _replay(panel, repeats)), peers)


@dataclass(frozen=True, slots=True)
class _Panel:
    """The series of a run, with a measurement of each; `signs` is -1 where less is better."""

    names: Sequence[str]
    first: Sequence[Measurement]
    nights: Nights | None
    signs: Floats

    def logs(self, values: Sequence[float]) -> Floats:
        return np.asarray(self.signs * np.log(values), dtype=np.float64)

    def past(self) -> SeriesHistory:
        """Each series in a group of its own."""
        alone = np.arange(len(self.names))
        if self.nights is None or not self.nights.runs:
            none = np.empty((0, len(self.names)))
            return SeriesHistory(alone, none, none)
        place = {name: i for i, name in enumerate(self.names)}
        at = np.array([place.get(name, -1) for name in self.nights.names], dtype=np.int64)
        r, teach = self.nights.readings, self.nights.references
        series = at[r.series]
        usable = (series >= 0) & (r.value > 0) & (r.good | (r.run >= teach))
        run, series, nth = r.run[usable], series[usable], r.nth[usable]
        value = self.signs[series] * np.log(r.value[usable])
        table = np.full((len(self.nights.runs), len(self.names)), np.nan)
        once, again = nth == 0, nth > 0
        table[run[once], series[once]] = value[once]
        more = (run[again], series[again], value[again]) if again.any() else None
        return SeriesHistory(alone, table[:teach], table[teach:], more, bool(self.nights.changed))

    def drifts(self, each: Night) -> dict[str, Drift]:
        """Since when the blamed series are bad, as far as the past tells; of very many, of the first."""
        blamed = {self.names[i]: int(i) for i in np.flatnonzero(each.guilty)[:_DRIFTS_TOLD].tolist()}
        if not blamed or self.nights is None or not self.nights.runs:
            return {}
        started, courses = self.nights.courses(list(blamed))
        dates = [*started, self.nights.now]
        drift_by_name = {name: self._drift(dates, courses[name], each, i) for name, i in blamed.items()}
        return {name: drift for name, drift in drift_by_name.items() if drift}

    def _drift(self, dates: Sequence[datetime], course: Floats, each: Night, i: int) -> Drift | None:
        days = np.array([date.timestamp() / 86400 for date in dates])
        logs = self.signs[i] * np.log(np.where(course > 0, course, np.nan))
        change = find_change(days, np.append(logs, each.value[i]), float(each.levels.scale[i]))
        if change is None:
            return None
        size = math.expm1(self.signs[i] * (change.size if change.kind == "step" else 7 * change.size))
        return Drift(change.kind, f"{dates[change.since]:%Y-%m-%d}", size)


def _replay(panel: _Panel, repeats: Sequence[Sequence[Measurement]]) -> Repeat:
    """Answer the judge's wish to repeat with what was repeated already."""
    given = [iter(repeat[1:]) for repeat in repeats]

    def again(which: Ints) -> Floats:
        taken = [next(given[i], None) for i in which]
        logs = np.array([math.log(m.value) if m else math.nan for m in taken])
        return np.asarray(panel.signs[which] * logs, dtype=np.float64)

    return again


def _learned(
    panel: _Panel, past: SeriesHistory, repeats: Sequence[Sequence[Measurement]], verdicts: Verdicts, peers: PeerGroups
) -> Learned:
    each, low, loss = verdicts.each, lowest(verdicts.each), detectable(verdicts.each, past.group)
    learned = Learned(drifts=panel.drifts(each), splits=peers.splits)
    for i in (int(column) for column in np.flatnonzero(each.judged)):
        m, value = panel.first[i], float(panel.signs[i]) * math.log(median(r.value for r in repeats[i]))
        proven = max(float(low[i]), value + _JUST) if each.guilty[i] else min(float(low[i]), value - _JUST)
        reach = log_reach(tolerance_of(m), float(each.levels.scale[i]), int(max(each.levels.nights[i], 1)))
        width = float(each.expected[i]) - max(proven, float(each.expected[i]) - reach)
        bounds = width, float(np.fmin(loss[i], (1 + DEVIATIONS / 3) * reach))
        learned.baselines[panel.names[i]] = _baseline(panel, each, i, bounds, peers.names[past.group[i]])
        if each.guilty[i]:
            learned.confidence[panel.names[i]] = posterior(float(each.evidence[i]))
            drift = learned.drifts.get(panel.names[i])
            learned.remarks[panel.names[i]] = "; ".join((*_remarks(each, i), *((drift.words,) if drift else ())))
    learned.together.extend(_together(panel, past, verdicts, peers))
    in_doubt = each.doubtful | verdicts.fleet.doubtful[past.group]
    for i in np.flatnonzero(in_doubt & each.judged).tolist():
        learned.doubtful[panel.names[i]] = worth_taking(float(each.levels.shared[i]), RULES)
    return learned


def _baseline(panel: _Panel, each: Night, i: int, bounds: tuple[float, float], group: str) -> Baseline:
    """`bounds` are the width of the interval and the loss that is found, both on logs."""
    m, nights, peers = panel.first[i], int(each.levels.nights[i]), int(each.levels.peers[i])
    centre, kind = float(np.exp(panel.signs[i] * each.expected[i])), f"{m.subject.kind}s{_in_brackets(group)}"
    if not nights:
        words = f"the median {short(centre)} {m.unit} of {peers} {kind} in this run"
        return around(m, "peers", centre, bounds[0], peers, words, bounds[1])
    company = f" and {peers - 1} other {kind}" if peers >= RULES.least_peers else ""
    words = f"the {short(centre)} {m.unit} to be expected from {nights} passing runs{company}"
    if each.shift[i]:
        words += f", which {_moved(float(each.shift[i]))} in this run"
    return around(m, "history", centre, bounds[0], nights, words, bounds[1])


def _in_brackets(group: str) -> str:
    return f" ({group})" if group else ""


def _moved(shift: float) -> str:
    return f"are {abs(math.expm1(shift)):.1%} {'slower' if shift < 0 else 'faster'}".replace("%", " %")


def _remarks(each: Night, i: int) -> Iterator[str]:
    """What the verdict rests on, so that it can be checked by hand."""
    yield (
        f"odds of {np.exp(min(each.evidence[i], 600)):.0e} to 1 against chance, {np.exp(each.needed):.0e} blame;"
        f" noise {each.levels.scale[i]:.1%}".replace("%", " %")
    )
    if each.nights[i]:
        yield f"slow for {each.nights[i] + 1} runs"


def _together(
    panel: _Panel, past: SeriesHistory, verdicts: Verdicts, peers: PeerGroups
) -> Iterator[tuple[Measurement, Baseline]]:
    """Peers that are slower all alike: one measurement for the lot, as far off as it was judged to be."""
    fleet, each, low = verdicts.fleet, verdicts.each, lowest(verdicts.fleet)
    for number in (int(group) for group in np.flatnonzero(fleet.guilty)):
        members = np.flatnonzero(past.group == number)
        m, sign = panel.first[members[0]], panel.signs[members[0]]
        level = float(np.nanmedian(each.levels.centre[members]))
        moved, expected = float(fleet.value[number]), float(fleet.expected[number])
        value, was = (float(np.exp(sign * (level + distance))) for distance in (moved, expected))
        nights = int(each.levels.nights[members].max())
        count = f"{len(members)} {m.subject.kind}s{_in_brackets(peers.names[number])}"
        words = f"the median {short(was)} {m.unit} of {count} in {nights} passing runs"
        width = expected - max(float(low[number]), moved + _JUST)
        lot = replace(m, value=value, subject=Subject("group", f"all {count}"), samples=())
        yield lot, around(lot, "history", was, width, nights, words)
