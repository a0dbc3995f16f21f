"""Whether the numbers of a fleet fall into two groups, a slow and a fast one. Pure: arrays in, arrays out.

Values are divided at the largest gap between neighbours, if both sides are large enough, neither is spread much wider
than the other, and the gap is wider than chance opens it. Why these figures: docs/decisions/0015.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from seatrial.judge.fleet.grouped import Bools
from seatrial.judge.fleet.odds import Floats

LEAST_NODES = 3
LEAST_SHARE = 0.05
_LEAST_DISTANCE = 0.03  # on logs: hardware that differs by less is the same
_WIDEST_SIDE = 2.0  # times the standard deviation of both together
_NIGHTS_TO_CONFIRM = 3
_SHARE_TO_CONFIRM = 0.9  # of the earlier nights


@dataclass(frozen=True, slots=True)
class Modes:
    """Which of N values are of the slow group, and how far (on logs) the middle of the others lies above theirs."""

    slow: Bools
    distance: float


def least_nodes(nodes: int) -> int:
    """How many of `nodes` make a group that is no outlier."""
    return max(LEAST_NODES, ceil(LEAST_SHARE * nodes))


def find_modes(values: Floats, least_distance: float = _LEAST_DISTANCE) -> Modes | None:
    """The two groups of `values` (N natural logs with more = better, NaN where there is none); None where it is one."""
    ordered = np.sort(values[np.isfinite(values)])
    least = least_nodes(ordered.size)
    if ordered.size < 2 * least:
        return None
    gaps = np.diff(ordered[least - 1 : ordered.size - least + 1])
    cut = least + int(np.argmax(gaps))
    low, high = ordered[:cut], ordered[cut:]
    distance = float(high[high.size // 2] - low[low.size // 2])
    if distance < least_distance or not _apart(low, high):
        return None
    return Modes(values < high[0], distance)


def _apart(low: Floats, high: Floats) -> bool:
    count = low.size + high.size
    together = np.sqrt((low.var() * low.size + high.var() * high.size) / (count - 2))
    tight = max(low.std(ddof=1), high.std(ddof=1)) <= _WIDEST_SIDE * together
    return bool(tight and high[0] - low[-1] > _chance(count) * together)


def _chance(count: int) -> float:
    """How many standard deviations wide the largest gap is among `count` values of one group, in one case of 10,000."""
    return 1.3 + 110 / count


def stays(modes: Modes, nights: Floats) -> bool:
    """Whether the same members were apart in earlier nights too: in three at least, and in nearly all of them.

    `nights` is (T, N), as `values`. What began later is a fault, not hardware.
    """
    shown, known = 0, 0
    for night in nights:
        slow, fast = night[modes.slow], night[~modes.slow]
        if np.isfinite(slow).sum() * 2 >= slow.size and np.isfinite(fast).sum() * 2 >= fast.size:
            known += 1
            shown += bool(np.nanmedian(fast) - np.nanmedian(slow) >= modes.distance / 2)
    return shown >= _NIGHTS_TO_CONFIRM and shown >= _SHARE_TO_CONFIRM * known
