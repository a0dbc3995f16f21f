"""The data that the collective probe sends, and the check of what arrives. Copied to the nodes next to the probe.

Every rank's buffer is its own pattern of whole numbers, repeated with a prime period: no two ranks, rounds or chunks
look alike, so a chunk that is lost, stale or in the wrong place is seen. The numbers are small enough that every sum
is exact in the data type, so results are compared exactly. NaN equals nothing and is therefore always wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from collectives import COLLECTIVES
from rendezvous import CannotStart

PERIOD = 65521  # elements; the largest prime below 2^16, so no multiple of it is the start of a chunk
_WIDE = 16  # periods that are compared in one go: bounds the memory of a check to about a million elements
_MASK = 0xFFFFFFFF
_EXACT = {"float32": 1 << 24, "float64": 1 << 53, "int32": 1 << 30, "bfloat16": 1 << 8, "float16": 1 << 11}
_MAX_VALUE = 4093


@dataclass(frozen=True)
class Part:
    """A stretch of the result: `count` elements at `start` are `pattern` from its element `phase` on."""

    pattern: torch.Tensor
    phase: int
    start: int
    count: int


def max_value(operation: str, dtype: str, ranks: int) -> int:
    """The largest number to send so that what is received is exact in `dtype`. Raises CannotStart."""
    top = min(_MAX_VALUE, _EXACT[dtype] // (ranks if COLLECTIVES[operation].sums else 1))
    if top < 2:
        raise CannotStart(f"{dtype} sums over {ranks} ranks are not exact, so they cannot be checked; use float32")
    return top


def pattern(rank: int, round_number: int, top: int, length: int) -> torch.Tensor:
    """The first `length` (at most PERIOD) numbers 1..top that `rank` sends in round `round_number`, as int64.

    A multiplicative hash (murmur3's finalizer) instead of a random generator: every version of torch gets the same.
    """
    x = torch.arange(min(length, PERIOD), dtype=torch.int64) + (rank + 1) * PERIOD + round_number * 7919 * PERIOD
    x = x ^ (x >> 16)
    for factor, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):
        x = ((x & _MASK) * factor) & _MASK
        x = x ^ (x >> shift)
    return x % top + 1


def parts(operation: str, rank: int, ranks: int, count: int, data: Callable[[int], torch.Tensor]) -> Iterator[Part]:
    """What `rank` must receive, given what each rank sends (`data`); `count` as in the rows of nccl-tests."""
    for stretch in COLLECTIVES[operation].receives(rank, ranks):
        first, *others = stretch.senders
        total = data(first)
        for other in others:
            total = total + data(other)
        yield Part(total, stretch.phase * count, stretch.start * count, count)


def stretches(part: Part, dtype: torch.dtype) -> Iterator[tuple[int, int, torch.Tensor]]:
    """(start, end, numbers) that cover the part, a bounded piece at a time."""
    period = len(part.pattern)
    wide = part.pattern.to(dtype).repeat(1 + min(_WIDE, -(-part.count // period)))
    for offset in range(0, part.count, _WIDE * period):
        size = min(_WIDE * period, part.count - offset)
        phase = (part.phase + offset) % period
        yield part.start + offset, part.start + offset + size, wide[phase : phase + size]


def fill(buffer: torch.Tensor, numbers: torch.Tensor) -> None:
    """Write the pattern over the whole buffer."""
    for start, end, values in stretches(Part(numbers, 0, 0, len(buffer)), buffer.dtype):
        buffer[start:end] = values


def spoil(buffer: torch.Tensor) -> None:
    """Overwrite with what no pattern holds, so that an element that never arrives is wrong."""
    buffer.fill_(float("nan") if buffer.is_floating_point() else -1)


def count_wrong(received: torch.Tensor, expected: Iterator[Part]) -> int:
    """How many elements of `received` are not what they must be."""
    wrong = 0
    for part in expected:
        for start, end, values in stretches(part, received.dtype):
            wrong += int((received[start:end] != values).sum())
    return wrong
