"""Rows printed plainly under a whole header, which nearly all rows are: one pattern, each number converted once."""

import re
from functools import lru_cache
from typing import NamedTuple

from seatrial.nccl.model import Row, Timing

TYPES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8e4m3": 1,
    "fp8e5m2": 1, "half": 2, "bfloat16": 2, "float16": 2, "int32": 4, "uint32": 4, "int": 4, "float": 4, "float32": 4,
    "int64": 8, "uint64": 8, "double": 8, "float64": 8,
}  # fmt: skip
"""Bytes of each data type that nccl-tests and rccl-tests name."""
REDOPS = frozenset({"sum", "prod", "min", "max", "avg", "mulsum", "none", "all"})

_NUMBER = r"(?:-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:e[-+][0-9]{2})?|N/A)"
_PLAIN = re.compile(
    rf"[ \t]*+([0-9]{{1,18}})[ \t]++([0-9]{{1,18}})[ \t]++({'|'.join(sorted(TYPES))})"
    rf"(?:[ \t]++({'|'.join(sorted(REDOPS))}))?((?:[ \t]++{_NUMBER})++)[ \t]*+"
)
_ABSENT = -1


class _Body(NamedTuple):
    """Where a row's numbers stand after its redop: `length` of them; of each side time, algbw, busbw, wrong, error."""

    length: int
    has_redop: bool
    root: int
    out_of_place: tuple[int, ...] | None
    in_place: tuple[int, ...] | None


def plain_row(text: str, columns: tuple[str, ...]) -> Row | None:
    """The row that `text` holds under the header's `columns`; None for anything else and for a row with any oddity."""
    match = _PLAIN.fullmatch(text)
    body = _body(columns) if match else None
    if match is None or body is None:
        return None
    size, count, dtype, redop, rest = match.groups()
    numbers = rest.split()
    if len(numbers) != body.length or (redop is not None and not body.has_redop):
        return None
    try:
        root = None if body.root == _ABSENT else int(numbers[body.root])
        sides = _timing(numbers, body.out_of_place), _timing(numbers, body.in_place)
    except ValueError:  # no whole number, where only one is sound
        return None
    if root is not None and root < -1:
        return None
    return Row(int(size), int(count), dtype, redop, root, *sides)


@lru_cache(maxsize=64)
def _body(columns: tuple[str, ...]) -> _Body | None:
    """The places of the numbers under a header; None for a header that plain rows do not stand under."""
    if columns[:3] != ("size", "count", "type"):
        return None
    has_redop = columns[3:4] == ("redop",)
    names = columns[4 if has_redop else 3 :]
    place = {name: index for index, name in enumerate(names)}
    sides = {side for side, dot, _ in (name.partition(".") for name in names) if dot}
    if "redop" in place or not sides or not {f"{side}.busbw" for side in sides} <= place.keys():
        return None  # a header with a lost word: whether its numbers stand where they should takes a closer look
    return _Body(len(names), has_redop, place.get("root", _ABSENT), _side(place, "out"), _side(place, "in"))


def _side(place: dict[str, int], side: str) -> tuple[int, ...] | None:
    if f"{side}.busbw" not in place:
        return None
    return tuple(place.get(f"{side}.{name}", _ABSENT) for name in ("time", "algbw", "busbw", "wrong", "error"))


def _timing(numbers: list[str], places: tuple[int, ...] | None) -> Timing | None:
    """The numbers of one side. Raises ValueError for a fraction of a wrong element."""
    if places is None:
        return None
    time_us, algbw, busbw, wrong, error = [None if at < 0 or numbers[at] == "N/A" else numbers[at] for at in places]
    return Timing(
        None if time_us is None else float(time_us),
        None if algbw is None else float(algbw),
        None if busbw is None else float(busbw),
        None if wrong is None else int(wrong),
        None if error is None else float(error),
    )
