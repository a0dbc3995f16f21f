"""What is held against each series of a run, size of slowdown by size of slowdown."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seatrial.judge.fleet.grouped import Bools, Ints
from seatrial.judge.fleet.odds import Floats, Odds, Slowdowns
from seatrial.judge.fleet.rules import Rules

Bar = tuple[Floats, Floats]  # what each series should read, and the scale of its noise


@dataclass(frozen=True, slots=True)
class Suspicion:
    """(K, M) by size and series: what past nights say, for how many nights past, and what tonight says.

    `allowance` is in units of the series' scale, as the sizes are. `read` is the plain sum over tonight's `repeats`;
    n repeats that have a share of their noise in common weigh as much as n / (1 + (n - 1) * shared) independent ones.
    """

    sizes: Slowdowns
    allowance: Odds
    carried: Odds
    since: NDArray[np.int32]
    read: Odds
    repeats: Ints
    shared: Floats

    @property
    def tonight(self) -> Odds:
        return weighed(self.read, self.repeats, self.shared)

    @property
    def total(self) -> Odds:
        log_odds: Odds = self.carried + self.tonight - np.log(len(self.carried))
        return log_odds


def guilty(suspicion: Suspicion, needed: float) -> Bools:
    """Enough in all, and tonight agrees: what was repaired today is not blamed for yesterday."""
    is_guilty: Bools = np.any((suspicion.total >= needed) & (suspicion.tonight > 0), axis=0)
    return is_guilty


def wants_repeat(suspicion: Suspicion, peers: Ints, needed: float, rules: Rules) -> Bools:
    """Not yet sure, and either what must be found tonight is not ruled out or the odds are against the series.

    Only one node, GPU or link among many must be found tonight: to repeat what has no peers costs the whole cluster's
    time, so it takes odds against it. And nobody is blamed for a single measurement of tonight, however far off.
    """
    with_peers = peers >= rules.least_peers
    unruled = (suspicion.tonight[rules.tonight] > np.log(rules.sure_healthy)) & with_peers
    cleared = np.where(with_peers, rules.doubtful, rules.doubtful_alone)
    against = (suspicion.carried + suspicion.tonight).max(axis=0) > cleared
    is_doubtful: Bools = (unruled | against) & ~(guilty(suspicion, needed) & (suspicion.repeats > 1))
    return is_doubtful


def odds_of(values: Floats, bar: Bar, sizes: Slowdowns, allowance: Odds) -> Odds:
    """(K, M); what was not measured says nothing, and so does a series that cannot be judged."""
    z = ((values - bar[0]) / bar[1]).astype(np.float32)
    return sizes.log_odds(z + allowance)


def weighed(read: Odds, times: Ints, shared: Floats) -> Odds:
    """The sum over `times` measurements of one night, as much less as they are alike."""
    if times.max(initial=0) < 2:
        return read
    weight = (1 + np.maximum(times - 1, 0) * shared).astype(np.float32)
    return np.asarray(read / weight, dtype=np.float32)


def worth_taking(shared: float, rules: Rules) -> int:
    """How many measurements in one night are worth their time, where they have that share of their noise in common."""

    def worth(count: int) -> float:
        return count / (1 + (count - 1) * shared)

    counts = range(2, rules.most_repeats)
    return next((n for n in counts if worth(n + 1) - worth(n) < rules.least_worth), rules.most_repeats)


def with_more(suspicion: Suspicion, at: Ints, values: Floats, bar: Bar) -> Suspicion:
    """The suspicion once the series `at` have been measured again."""
    read, repeats = suspicion.read.copy(), suspicion.repeats.copy()
    read[:, at] += odds_of(values, (bar[0][at], bar[1][at]), suspicion.sizes.at(at), suspicion.allowance[:, at])
    repeats[at] += np.isfinite(values)
    return replace(suspicion, read=read, repeats=repeats)
