"""Judge one run's numbers, all series at once: odds against chance, added up over repeats tonight and over nights.

Each series gathers evidence for each size of slowdown that is looked for: the log odds of its values, summed from the
night on that makes the sum largest (a CUSUM). Odds of one to a for one series among m, where a healthy run may raise an
alarm with probability p, must exceed m/p. That bound needs no further correction for looking every night and for
repeating what looks suspicious.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from seatrial.judge.fleet.first_nights import has_few_nights, levels_of_tonight
from seatrial.judge.fleet.grouped import Bools, Grouped, Ints
from seatrial.judge.fleet.levels import Levels, SeriesHistory, levels
from seatrial.judge.fleet.odds import VARIANCE_OF_MEDIAN, Floats, Odds, Slowdowns
from seatrial.judge.fleet.rules import RULES, Rules
from seatrial.judge.fleet.suspicion import Bar, Suspicion, guilty, odds_of, wants_repeat, weighed, with_more

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Part = TypeVar("_Part", bound="DataclassInstance")
# Which series to measure once more; answers with their new values, NaN where that failed.
Repeat = Callable[[Ints], Floats]


@dataclass(frozen=True, slots=True)
class Night:
    """What the M series of one run came to; logs as in `SeriesHistory`.

    `value` is the median of tonight's `repeats` measurements, `expected` what it should have been. `evidence` is the
    log odds against the series, `needed` how much blames it; `size` is the slowdown that explains them best, since
    `nights` earlier nights. `shift` is by how much the peers of each series moved together. `doubtful` are neither
    proven nor cleared, and would be measured once more if they could be.
    """

    levels: Levels
    value: Floats
    repeats: Ints
    expected: Floats
    evidence: Odds
    needed: float
    size: Floats
    nights: NDArray[np.int32]
    shift: Floats
    guilty: Bools
    doubtful: Bools
    suspicion: Suspicion

    @property
    def judged(self) -> Bools:
        """Which series enough is known of."""
        has_level: Bools = np.isfinite(self.levels.scale) & np.isfinite(self.value)
        return has_level


def judge_night(
    past: SeriesHistory, tonight: Floats, repeat: Repeat | None = None, rules: Rules = RULES, series: int | None = None
) -> Night:
    """Judge `tonight` (M), repeating what is suspicious where `repeat` can. `series` is how many the whole run has."""
    known, at = levels(past, tonight, rules), Grouped.of(past.group)
    needed = float(np.log((series or tonight.size) / rules.false_alarms))
    early = has_few_nights(at, known, rules)
    if repeat is None or not early.any():
        return _judged(past, at, known, tonight, repeat, needed, rules)[0]
    if np.any(early & (known.nights >= rules.nights_to_tell)):
        needed += float(np.log(2))  # judged in two ways, each of which may blame
    by_history, rounds = _judged(past, at, known, tonight, repeat, needed, rules)
    if len(rounds) < 2:
        return by_history
    alone = replace(past, good=past.good[:0], recent=past.recent[:0], more=None, renewed=False)
    tonights = levels_of_tonight(at, known, rounds[0], rounds[1], rules)
    by_peers, _ = _judged(alone, at, tonights, tonight, _after(rounds[1:], repeat), needed, rules)
    better = (known.nights < rules.nights_to_tell) | (by_peers.evidence > by_history.evidence)
    return _chosen(early & np.isfinite(tonights.scale) & better, by_peers, by_history)


def _after(rounds: Sequence[Floats], repeat: Repeat) -> Repeat:
    """Answers with what was measured again already; only then measures once more."""
    taken = [[float(row[i]) for row in rounds if np.isfinite(row[i])][::-1] for i in range(rounds[0].size)]

    def again(which: Ints) -> Floats:
        values = np.array([taken[i].pop() if taken[i] else np.nan for i in which])
        lacking = np.isnan(values)
        if lacking.any():
            values[lacking] = repeat(which[lacking])
        return values

    return again


def _chosen(where: Bools, one: _Part, other: _Part) -> _Part:
    """Series by series what stands in `one` or in `other`."""
    parts: dict[str, Any] = {}
    for field in fields(one):
        mine, others = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(mine):
            parts[field.name] = _chosen(where, mine, others)
        elif isinstance(mine, np.ndarray):
            parts[field.name] = np.where(where, mine, others)
    return replace(other, **parts)


def _judged(
    past: SeriesHistory,
    at: Grouped,
    known: Levels,
    tonight: Floats,
    repeat: Repeat | None,
    needed: float,
    rules: Rules,
) -> tuple[Night, list[Floats]]:
    """The judgement by what is `known`, and the measurements that it rests on."""
    least = _least_shift(at, known, rules)
    shift = _shift(at, tonight, known, least, past.renewed)
    expected = known.centre + shift
    sizes = Slowdowns.of(_sizes(at.median(known.scale), rules)).at(past.group)
    unsure = np.where(np.isfinite(known.unsure), known.unsure, 0.0) / known.scale
    allowance = allowed(unsure**2, sizes, needed)
    bar = (expected, known.scale)
    carried, since = _carried(past, at, known, least, allowance, sizes, needed)
    read, once = odds_of(tonight, bar, sizes, allowance), np.isfinite(tonight).astype(np.int64)
    suspicion = Suspicion(sizes, allowance, carried, since, read, once, known.shared)
    suspicion, rounds = _repeated(suspicion, tonight, bar, needed, known.peers, repeat, rules)
    total, columns = suspicion.total, np.arange(tonight.size)
    best = (total == total.max(axis=0)).argmax(axis=0)  # numpy takes three times as long for the floats themselves
    night = Night(
        known,
        _median_of_rounds(rounds),
        suspicion.repeats,
        expected,
        total[best, columns],
        needed,
        suspicion.sizes.delta[best, columns] * known.scale,
        suspicion.since[best, columns],
        shift,
        guilty(suspicion, needed),
        _doubtful(suspicion, known.peers, known.scale, needed, rules),
        suspicion,
    )
    return night, rounds


def _sizes(scale: Floats, rules: Rules) -> Floats:
    """The slowdowns looked for, (K, groups), in units of the scale of each group."""
    smallest = np.maximum(rules.sizes[0] / scale, 1.6)
    return np.array(rules.sizes)[:, None] / rules.sizes[0] * smallest


def _shift(at: Grouped, tonight: Floats, known: Levels, least: Floats, renewed: bool) -> Floats:
    """By how much peers moved together, per series: new software may move them, else only slower; 0 below `least`."""
    moved = at.median(tonight - known.centre)
    return np.asarray(np.where((np.abs(moved) if renewed else -moved) > least, moved, 0.0)[at.group])


def _least_shift(at: Grouped, known: Levels, rules: Rules) -> Floats:
    """Per group how far chance moves the median of its peers; those that are too few never move."""
    peers = at.largest(known.peers)
    error = at.median(known.scale) * np.sqrt(VARIANCE_OF_MEDIAN / np.maximum(peers, 1))
    return np.where(peers >= rules.least_peers, 2 * error, np.inf)


def allowed(variance: Floats, sizes: Slowdowns, needed: float) -> Odds:
    """How much slower than expected still counts as healthy, (K, M), because the expectation itself may be off.

    An expectation that is off by e adds e * size to the log odds of every measurement. Averaged over normal e of that
    `variance`, in units of the noise's scale squared, that is made up for by needed * variance / size.
    """
    return np.asarray(needed * variance / sizes.delta, dtype=np.float32)


def _carried(
    past: SeriesHistory, at: Grouped, known: Levels, least: Floats, allowance: Odds, sizes: Slowdowns, needed: float
) -> tuple[Odds, NDArray[np.int32]]:
    """The evidence of the recent nights: it never falls below none, nor rises beyond what blames."""
    carried, since = np.zeros_like(sizes.delta), np.zeros(sizes.delta.shape, dtype=np.int32)
    is_held = np.zeros(past.group.size, dtype=np.bool_)
    most = needed + np.log(len(carried))
    accused = np.max(-sizes.delta / 2 - allowance, axis=0)  # a z above it is evidence of no size of slowdown
    for night, values in enumerate(past.recent, start=len(past.good)):
        bar = (known.centre + _shift(at, values, known, least, past.renewed), known.scale)
        repeated, repeats = _repeats_of(past, night)
        suspect = ((values - bar[0]) / bar[1] < accused) | is_held
        suspect[repeated] = True
        some = np.flatnonzero(suspect)  # all others have no evidence, and get none this night

        def odds(values: Floats, of: Ints, bar: Bar = bar) -> Odds:
            return odds_of(values, (bar[0][of], bar[1][of]), sizes.at(of), allowance.take(of, axis=1))

        read, times = odds(values[some], some), np.isfinite(values[some]).astype(np.int64)
        if repeated.size:
            place = np.searchsorted(some, repeated)
            np.add.at(times, place, 1)
            np.add.at(read.T, place, odds(repeats, repeated).T)
        evidence = carried.take(some, axis=1) + weighed(read, times, known.shared[some])
        holds = evidence > 0
        carried[:, some] = np.clip(evidence, 0.0, most)
        since[:, some] = (since.take(some, axis=1) + 1) * holds
        is_held[some] = holds.any(axis=0)
    return carried, since


def _repeats_of(past: SeriesHistory, night: int) -> tuple[Ints, Floats]:
    """The series that were measured again in a night of the past, and what they read."""
    if past.more is None:
        return np.empty(0, dtype=np.int64), np.empty(0)
    nights, series, values = past.more
    now = nights == night
    return series[now], values[now]


def _repeated(
    suspicion: Suspicion,
    tonight: Floats,
    bar: Bar,
    needed: float,
    peers: Ints,
    repeat: Repeat | None,
    rules: Rules,
) -> tuple[Suspicion, list[Floats]]:
    """Measure again whatever is neither proven nor cleared; all that was measured, the first time first."""
    rounds = [tonight]
    while repeat is not None and len(rounds) < rules.most_repeats:
        doubtful = np.flatnonzero(
            _doubtful(suspicion, peers, bar[1], needed, rules) & (suspicion.repeats == len(rounds))
        )
        if not doubtful.size:
            break
        again = np.full(tonight.size, np.nan)
        again[doubtful] = repeat(doubtful)
        rounds.append(again)
        suspicion = with_more(suspicion, doubtful, again[doubtful], bar)
    return suspicion, rounds


def _doubtful(suspicion: Suspicion, peers: Ints, scale: Floats, needed: float, rules: Rules) -> Bools:
    """What was measured, can be judged, and is neither proven nor cleared."""
    known = np.isfinite(scale) & (suspicion.repeats > 0) & (suspicion.repeats < rules.most_repeats)
    doubtful: Bools = known & wants_repeat(suspicion, peers, needed, rules)
    return doubtful


def _median_of_rounds(rounds: list[Floats]) -> Floats:
    value = rounds[0].copy()
    if len(rounds) > 1:
        again = np.flatnonzero(np.isfinite(rounds[1]))
        value[again] = np.nanmedian(np.array([r[again] for r in rounds]), axis=0)
    return value


def lowest(night: Night) -> Floats:
    """The least value that, read in every measurement of tonight, would not have been blamed; found by halving."""
    bar = (night.expected, night.levels.scale)
    high, low = bar[0].copy(), bar[0] - np.log(100)
    odds, times = night.suspicion, np.maximum(night.repeats, 1)
    for _ in range(24):
        middle = (low + high) / 2
        read = replace(odds, read=times.astype(np.float32) * odds_of(middle, bar, odds.sizes, odds.allowance))
        blamed = guilty(read, night.needed)
        low, high = np.where(blamed, middle, low), np.where(blamed, high, middle)
    return high
