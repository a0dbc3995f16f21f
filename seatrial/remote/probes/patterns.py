"""The numbers that ranks send in a collective, and the check of what they receive. Copied to the
nodes next to collective.py.

Every rank's buffer is a different pattern of whole numbers, repeated with a prime period. Ranks,
rounds and chunks all differ, so a chunk that is lost, stale or misplaced is detected. The numbers
are small enough that every sum is exact in the data type, so results are compared exactly. NaN
equals nothing and is therefore always wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from collectives import COLLECTIVES
from rendezvous import CannotStart
from torch import Tensor

# Elements; the largest prime below 2^16, so that no chunk starts at a multiple of it
PERIOD = 65521
# Periods that are compared at once, which limits the memory of a check to about a million elements
_WIDE = 16
_MASK = 0xFFFFFFFF
_EXACT = {
    "float32": 1 << 24,
    "float64": 1 << 53,
    "int32": 1 << 30,
    "bfloat16": 1 << 8,
    "float16": 1 << 11,
}
_MAX_VALUE = 4093


@dataclass(frozen=True)
class Part:
    """A stretch of the result: `count` elements from `start` on, which repeat `pattern` from
    element `phase` on.
    """

    pattern: Tensor
    phase: int
    start: int
    count: int


def max_value(operation: str, dtype: str, ranks: int) -> int:
    """Return the largest number to send so that what is received is exact in `dtype`.

    Raises CannotStart.
    """
    exact = _EXACT[dtype]
    if COLLECTIVES[operation].sums:
        exact //= ranks
    if exact < 2:
        raise CannotStart(
            f"{dtype} sums over {ranks} ranks are not exact, so they cannot be checked; use float32"
        )
    return min(_MAX_VALUE, exact)


def pattern(rank: int, round_number: int, top: int, length: int) -> Tensor:
    """Return the first `length` (at most PERIOD) numbers 1..top that `rank` sends in round
    `round_number`, as int64.

    They come from a multiplicative hash (murmur3's finalizer), not a random generator, so that
    every version of torch gets the same.
    """
    own = (rank + 1) * PERIOD
    offset = own + round_number * 7919 * PERIOD
    count = min(length, PERIOD)
    x = torch.arange(count, dtype=torch.int64) + offset
    x = x ^ (x >> 16)
    for factor, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):
        x = ((x & _MASK) * factor) & _MASK
        x = x ^ (x >> shift)
    return x % top + 1


def parts(
    operation: str, rank: int, ranks: int, count: int, data: Callable[[int], Tensor]
) -> Iterator[Part]:
    """Yield what `rank` must receive; `data` returns what a rank sends, and `count` is the count in
    rows of nccl-tests.
    """
    for stretch in COLLECTIVES[operation].receives(rank, ranks):
        first, *others = stretch.senders
        total = data(first)
        for other in others:
            total = total + data(other)
        phase = stretch.phase * count
        start = stretch.start * count
        yield Part(total, phase, start, count)


def stretches(part: Part, dtype: torch.dtype) -> Iterator[tuple[int, int, Tensor]]:
    """Yield (start, end, numbers) that cover the part, a bounded piece at a time."""
    period = len(part.pattern)
    periods = min(_WIDE, -(-part.count // period))
    wide = part.pattern.to(dtype).repeat(1 + periods)
    longest = _WIDE * period
    for offset in range(0, part.count, longest):
        size = min(longest, part.count - offset)
        phase = (part.phase + offset) % period
        start = part.start + offset
        values = wide[phase : phase + size]
        yield start, start + size, values


def fill(buffer: Tensor, numbers: Tensor) -> None:
    """Repeat the numbers over the whole buffer."""
    whole = Part(numbers, phase=0, start=0, count=len(buffer))
    for start, end, values in stretches(whole, buffer.dtype):
        buffer[start:end] = values


def spoil(buffer: Tensor) -> None:
    """Overwrite with a value that no pattern has, so that an element that never arrives is
    wrong.
    """
    invalid = float("nan") if buffer.is_floating_point() else -1
    buffer.fill_(invalid)


def count_wrong(received: Tensor, expected: Iterator[Part]) -> int:
    """Count the elements of `received` that are wrong."""
    wrong = 0
    for part in expected:
        for start, end, values in stretches(part, received.dtype):
            differs = received[start:end] != values
            wrong += int(differs.sum())
    return wrong
