"""A target of broken inputs, and how they are made of good ones."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.model.errors import SeatrialError
from tests.fuzz.mutations import dumped, of_bytes, of_document

MOST_JOINED = 4  # good inputs in one broken one


@dataclass(frozen=True, slots=True)
class Target:
    """`make` gives one broken input, `read` reads it from a file, or raises what people are meant
    to see.
    """

    name: str
    make: Callable[[random.Random], bytes]
    read: Callable[[Path], object]
    expected: tuple[type[Exception], ...] = (SeatrialError,)


def text_of(*goods: bytes) -> Callable[[random.Random], bytes]:
    """One good text, or several that are joined, and broken."""

    def make(dice: random.Random) -> bytes:
        parts = [dice.choice(goods) for _ in range(dice.randint(1, min(MOST_JOINED, len(goods))))]
        return of_bytes(b"".join(parts), dice)

    return make


def line_of(*goods: Any) -> Callable[[random.Random], bytes]:
    """One good document, as JSON, and broken as text or as a document."""

    def make(dice: random.Random) -> bytes:
        good = dice.choice(goods)
        return (
            of_bytes(dumped(good), dice) if dice.random() < 0.3 else dumped(of_document(good, dice))
        )

    return make


def one_of(*makers: Callable[[random.Random], bytes]) -> Callable[[random.Random], bytes]:
    """What one of the makers makes."""
    return lambda dice: dice.choice(makers)(dice)


def contents(paths: Sequence[Path], most: int = 60_000) -> list[bytes]:
    """The first bytes of each file."""
    return [path.read_bytes()[:most] for path in paths]


def inputs(target: Target, count: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """`count` inputs, each with the number that makes it anew."""
    for number in range(seed, seed + count):
        yield number, target.make(random.Random(f"{target.name} {number}"))
