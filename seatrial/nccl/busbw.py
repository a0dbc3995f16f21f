"""Bus bandwidth: what nccl-tests multiplies algbw by, and the ranks that a printed pair of both
gives away.

Source: nccl-tests doc/PERFORMANCE.md and the GetBw function of each src/<collective>.cu.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.model import Row

_MAX_RANKS = 1 << 20


def busbw_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw for `collective` over `ranks` ranks. Raises ValueError."""
    if ranks < 1:
        raise ValueError(f"ranks is {ranks}, must be at least 1")
    if collective not in COLLECTIVES:
        raise ValueError(f"unknown collective {collective!r}, legal: {', '.join(COLLECTIVES)}")
    return COLLECTIVES[collective].factor(ranks)


def expected_algbw(size_bytes: int, time_us: float) -> float:
    """Return algbw in GB/s (1e9 bytes per second) of `size_bytes` moved in `time_us`
    microseconds.
    """
    return size_bytes / time_us / 1e3 if time_us > 0 else math.inf


def plateau_sizes(sizes: Sequence[int]) -> list[int]:
    """Return the sizes of the plateau: the largest three of `sizes`, smallest first, less those far
    below the largest.

    The plateau of a sweep is the median of its busbw at these sizes.
    """
    # 64: three sizes a factor of 8 apart. What is smaller lies on the slope.
    return [size for size in sizes if size * 64 >= sizes[-1]][-3:]


def ratio_interval(rows: Iterable[Row]) -> tuple[float, float] | None:
    """Return the interval that busbw/algbw lies in, given how both were rounded for print; None if
    no row has both.
    """
    low = 0.0
    high = math.inf
    for algbw, busbw in _printed_pairs(rows):
        half_alg = _half_step(algbw)
        half_bus = _half_step(busbw)
        low = max(low, (busbw - half_bus) / (algbw + half_alg))
        high = min(high, (busbw + half_bus) / (algbw - half_alg))
    return (low, high) if low <= high < math.inf else None


def infer_ranks(collective: str, rows: Iterable[Row]) -> int | None:
    """Return the number of ranks that the printed busbw/algbw pairs give away; None where they do
    not.

    Large worlds leave several candidates within the rounding, and then nothing is given away.
    """
    interval = ratio_interval(rows)
    factor = COLLECTIVES[collective].factor
    if interval is None or not factor.depends_on_ranks:
        return None
    low = interval[0] / factor.scale
    high = interval[1] / factor.scale
    if high <= 0.01 or low >= 1 or high < low:
        return 1 if high <= 0.01 else None
    first = max(2, math.ceil(_ranks_at(low) - 1e-9))
    last = _MAX_RANKS if high >= 1 else min(_MAX_RANKS, math.floor(_ranks_at(high) + 1e-9))
    return first if first == last else None


def agrees(collective: str, ranks: int, rows: Iterable[Row]) -> bool:
    """Return whether `ranks` explains the printed busbw/algbw pairs (True if no row has both)."""
    factor = busbw_factor(collective, ranks)
    return all(
        abs(busbw - algbw * factor) <= _half_step(busbw) + factor * _half_step(algbw)
        for algbw, busbw in _printed_pairs(rows)
    )


def _ranks_at(part: float) -> float:
    """Return n so that (n-1)/n == part."""
    return 1 / (1 - part) if part < 1 else math.inf


def _printed_pairs(rows: Iterable[Row]) -> Iterator[tuple[float, float]]:
    for row in rows:
        for side in row.sides:
            if (
                side.algbw_gb_s is not None
                and side.busbw_gb_s is not None
                and side.algbw_gb_s >= 0.1
            ):
                yield side.algbw_gb_s, side.busbw_gb_s


def _half_step(value: float) -> float:
    """Return half of the last printed digit.

    Printed is %.2f, or %.1f or %.0f if six columns are too few (nccl-tests >= 2.17.3).
    """
    return 0.00501 if value < 1000 else 0.0501 if value < 10000 else 0.501
