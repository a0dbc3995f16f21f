"""What the rows of a sweep say against it, without any baseline. Pure."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

from seatrial.model.reason import Reason
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.nccl import Row, Timing
from seatrial.text.numbers import short

Problem = tuple[Verdict, str]
Rate = Callable[[int, Timing], float | None]  # GB/s of busbw, given the size in bytes

SMALLEST_PLATEAU_BYTES = 4 << 20  # GPUs move less than this within their latency
_ALIGNED_BYTES = 1 << 20  # smaller ones may be cut to the same size where ranks are many
_LARGE_BYTES = 128 << 20  # from here on an iteration takes so long that no hiccup makes it this much slower
# From one size to a larger one no published sweep falls below 0.81 (tests/golden/nccl-logs), and 0.72 is what a ring
# reaches of a tree over two nodes (https://github.com/NVIDIA/nccl-tests/issues/196).
_SLOWER = 0.7
_SMALL_BYTES = 64 << 10
# Published medians up to 64K are 5 to 223 us over up to 128 ranks, and 3.8 ms over 512.
_SLOW_US, _RANKS = 1000.0, 128


def interleaved(rows: Sequence[Row]) -> Problem | None:
    """Whether the rows, in the order in which they were printed, are of several programs that wrote at once.

    One program prints each size once before it goes on to the next, and either sums or does not, has roots or not.
    """
    sums = {row.redop not in (None, "none", "all") for row in rows}
    rooted = {row.root >= 0 for row in rows if row.root is not None}
    twice = any(_key(a) == _key(b) and a != b for a, b in pairwise(rows) if a.size >= _ALIGNED_BYTES)
    return (
        (Verdict.INCONCLUSIVE, Reason.of("sweeps-interleaved")) if twice or len(sums) > 1 or len(rooted) > 1 else None
    )


def _key(row: Row) -> tuple[object, ...]:
    return row.size, row.type, row.redop, row.root


def without_plateau(sizes: Sequence[int]) -> Problem | None:
    """Whether the largest message is too small for a bandwidth of GPUs."""
    if not sizes or max(sizes) >= SMALLEST_PLATEAU_BYTES:
        return None
    largest, needed = format_size(max(sizes)), format_size(SMALLEST_PLATEAU_BYTES)
    return Verdict.INCONCLUSIVE, Reason.of("sweep-too-small", largest=largest, needed=needed)


def slow_in_place(rows: Sequence[Row], rate: Rate) -> Problem | None:
    """Whether results that overwrite their input take much longer, at two large sizes at least."""
    slow = []
    for row in rows:
        out, into = (rate(row.size, side) if side else None for side in (row.out_of_place, row.in_place))
        if row.size >= _LARGE_BYTES and out and into is not None and into < _SLOWER * out:
            slow.append((row.size, into, out))
    if len(slow) < 2:
        return None
    size, into, out = slow[-1]
    return Verdict.DEGRADED, Reason.of(
        "in-place-slow", size=format_size(size), in_place=f"{into:.3g}", out_of_place=f"{out:.3g}", sizes=len(slow)
    )


def slow_small_messages(rows: Sequence[Row], ranks: int) -> Problem | None:
    """Whether the messages up to 64K take milliseconds; their median counts, since the first is often an outlier."""
    times = [side.time_us for row in rows if row.size <= _SMALL_BYTES for side in row.sides if side.time_us]
    limit_us = _SLOW_US * max(1.0, ranks / _RANKS)
    if not times or median(times) <= limit_us:
        return None
    return Verdict.DEGRADED, Reason.of("small-messages-slow", time=short(median(times)), limit=short(limit_us))


def falls_off(rows: Sequence[Row], rate: Rate) -> Problem | None:
    """Whether a large message is carried much more slowly than a smaller one."""
    best = 0.0
    for row in sorted(rows, key=lambda row: row.size):
        reached = rate(row.size, row.out_of_place) if row.out_of_place else None
        if reached is None:
            continue
        if row.size >= _LARGE_BYTES and reached < _SLOWER * best:
            return Verdict.DEGRADED, Reason.of(
                "falls-at-size", reached=f"{reached:.3g}", size=format_size(row.size), best=f"{best:.3g}"
            )
        best = max(best, reached)
    return None
