"""Rows of the table: by the columns of the header, or by their own shape where the header is
lost.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from seatrial.nccl.busbw import expected_algbw
from seatrial.nccl.header import ColumnLayout
from seatrial.nccl.model import Row, Timing
from seatrial.text.wrapping import cells

TYPES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8e4m3": 1,
    "fp8e5m2": 1, "half": 2, "bfloat16": 2, "float16": 2, "int32": 4, "uint32": 4, "int": 4, "float": 4, "float32": 4,
    "int64": 8, "uint64": 8, "double": 8, "float64": 8,
}  # fmt: skip
"""Bytes of each data type that nccl-tests and rccl-tests name."""
REDOPS = frozenset({"sum", "prod", "min", "max", "avg", "mulsum", "none", "all"})

Reader = Callable[[str], Any]  # of a token
Columns = tuple[str, ...]
Tokens = list[str]
NotRow = Literal["short", "glued", "no"]
"""Why a text is no row: it starts as one and ends early, or goes on as another line, or is
something else.
"""

_TYPE = "|".join(sorted(TYPES, key=len, reverse=True))
_START = re.compile(rf"(?<![\w.,-])\d[\d_,]*\s+\d[\d_,]*\s+(?:{_TYPE})(?!\S)")
_STAMP = re.compile(r"(?<!\s)\s++\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?\s*$")
# Of rccl-tests' -A or -M
_CHOICE = re.compile(r"(?<!\s)\s++[A-Za-z][\w+]{1,20}\s+(?:LL\d*|Simple)\s+\d{1,4}\s*$")
_NUMBER = re.compile(r"\A[-+]?(?:\d[\d_,]*+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d{1,3})?\*?$")
_PLACEHOLDER = re.compile(r"\A[\dXx?*.,eE+\-/NA]+$")
_PIECE = re.compile(
    r"\A\s*\d+\s+\d+\s+\w+\s+(?:[a-z]+\s+)?(?:-1(?=\D)|\d+(?=\s))(?:\s+[\d.e+]+(?=\s))*"
)
_NO_NUMBER = frozenset({"n/a", "na", "nan", "-nan", "inf", "-inf", "-"})
_MOST = 10**18  # of a whole number
_TIMING = {
    "out": ("out.time", "out.algbw", "out.busbw", "out.wrong", "out.error"),
    "in": ("in.time", "in.algbw", "in.busbw", "in.wrong", "in.error"),
}
_SHAPES = ((2, 8), (2, 4), (2, 3), (1, 4), (1, 3))  # sides, and columns of each
_LEADING = ("size", "count", "type")
_SMALL_ERROR = re.compile(r"\d(?:\.\d+)?e[-+]\d\d$")


def read_row(text: str, layout: ColumnLayout | None) -> Row | NotRow:
    """Return the row in `text`, by the columns of the header if it fits, else by the row's own
    shape.
    """
    row = _read_row(text, layout)
    in_milliseconds = layout is not None and layout.milliseconds
    if not in_milliseconds or not isinstance(row, Row):
        return row
    return replace(
        row,
        out_of_place=_in_microseconds(row.out_of_place),
        in_place=_in_microseconds(row.in_place),
    )


def _in_microseconds(side: Timing | None) -> Timing | None:
    if side is None or side.time_us is None:
        return side
    return replace(side, time_us=side.time_us * 1000)


def _read_row(text: str, layout: ColumnLayout | None) -> Row | NotRow:
    if layout is not None and layout.separator:
        return _row_without_type(text, layout)
    text = cells(text)
    start = _START.search(text)
    if start is None:
        if layout is None or layout.typed:
            return "no"
        return _row_without_type(text, layout)
    text = text[start.start() :]
    if row := _fitting(text.split(), layout):
        return row
    without_stamp = _STAMP.sub("", text)
    tokens = _CHOICE.sub("", without_stamp).split()
    if layout is not None:
        beyond = tokens[len(layout.columns) :]
        if beyond == ["N/A", "N/A", "N/A"]:
            tokens = tokens[:-3]
    return _fitting(tokens, layout) or _shaped(tokens, layout) or _part_of_row(tokens, layout)


def _part_of_row(tokens: Tokens, layout: ColumnLayout | None) -> Row | NotRow:
    """Return the row of placeholders, or why it is not a row."""
    column_count = 13
    if layout is not None and layout.typed:
        column_count = len(layout.columns)
    numbers = tokens[5:]
    ends_early = len(tokens) < column_count
    if ends_early and all(map(_numeric, numbers)):
        return "short"
    if not all(map(_PLACEHOLDER.match, numbers)):
        return "glued"
    columns = (*_LEADING, *_redop(tokens))
    rooted = (*columns, "root")
    return _row(rooted, tokens) or _row(columns, tokens) or "glued"


def glued_piece(text: str) -> str:
    """Return the piece of a row before other output on the same line.

    It ends at the root if only that is whole, else at the last whole number.
    """
    match = _PIECE.match(text)
    if match is None:
        return ""
    return match[0]


def plausible(row: Row, slack: float = 3.0, *, cpu_time: bool = False) -> bool:
    """Return whether size holds count, and algbw is within a factor `slack` of size/time; 3 lets
    hypercube pass.
    """
    if row.size < _width(row):
        return False
    if cpu_time:
        return True
    for side in row.sides:
        time_us = side.time_us
        algbw = side.algbw_gb_s
        if time_us and time_us > 0 and algbw is not None:
            expected = expected_algbw(row.size, time_us)
            least = expected / slack - 0.06
            most = expected * slack + 0.06
            if not least <= algbw <= most:
                return False
    return True


def _width(row: Row) -> int:
    """Return the bytes of `count` elements; 0 where they are not known."""
    element_bytes = TYPES.get(row.type or "", 0)
    return element_bytes * (row.count or 0)


def consistent(row: Row, *, cpu_time: bool) -> bool:
    """Return whether the row's numbers agree within print rounding, which a row joined from wrong
    pieces never does.
    """
    if not row.sides:
        return False
    if any(None in (side.time_us, side.algbw_gb_s, side.busbw_gb_s) for side in row.sides):
        return False
    width = _width(row)
    if width and row.size % width != 0:
        return False
    if cpu_time:
        return True
    return all(_agrees(row.size, side) for side in row.sides)


def _agrees(size: int, side: Timing) -> bool:
    time_us = side.time_us or 0.0
    algbw = side.algbw_gb_s or 0.0
    busbw = side.busbw_gb_s or 0.0
    if time_us <= 0:
        return False
    if busbw > 2 * algbw + 0.02:
        return False
    expected = expected_algbw(size, time_us)
    rounding = 0.06 if time_us >= 1e6 else 0.004  # seven columns hold 1e+07
    if math.isclose(algbw, expected, rel_tol=rounding, abs_tol=0.0076):
        return True
    # Hypercube counts (n-1)/n of size, busbw 1 x algbw
    return busbw == algbw and 0.45 * expected <= algbw <= expected


def _row_without_type(text: str, layout: ColumnLayout) -> Row | NotRow:
    """Read a row without a data type: it must have every column, and its numbers must agree."""
    tokens = [token.strip() for token in cells(text).strip().split(layout.separator)]
    if len(tokens) != len(layout.columns):
        return "no"
    row = _row(layout.columns, tokens)
    if row is None or not row.sides:
        return "no"
    agrees = plausible(row, 1.07, cpu_time=layout.cpu_time)
    if not agrees:
        return "no"
    return row


def _fitting(tokens: Tokens, layout: ColumnLayout | None) -> Row | None:
    """Return the row by the header's columns, less the redop that some tests leave blank; None if
    it does not fit.
    """
    columns: Columns = ()
    if layout is not None and layout.typed:
        columns = layout.columns
    if "redop" in columns:
        place = columns.index("redop")
        if place < len(tokens) and _numeric(tokens[place]):
            columns = columns[:place] + columns[place + 1 :]
    if len(tokens) != len(columns):
        return None
    return _row(columns, tokens)


def _shaped(tokens: Tokens, layout: ColumnLayout | None) -> Row | None:
    """Return the row by columns guessed from the number of tokens; None where it is no full row.

    Under a two-sided header a one-sided row is one that was cut, not a row.
    """
    redop = _redop(tokens)
    numbers = tokens[3 + len(redop) :]
    if not numbers or not all(map(_numeric, numbers)):
        return None
    header = layout.columns if layout is not None else ()
    two_sided = "in.time" in header and "out.time" in header
    roots: list[Columns] = []
    if not numbers[0].startswith("-"):
        roots.append(())
    if re.fullmatch(r"-?\d+", numbers[0]):
        roots.append(("root",))
    for root in roots:
        body = numbers[len(root) :]
        for sides, width in _SHAPES:
            is_cut = sides == 1 and two_sided
            if len(body) == sides * width and not is_cut:
                names = _body(body, sides, width)
                columns = (*_LEADING, *redop, *root, *names)
                return _row(columns, tokens)
    return None


def _redop(tokens: Tokens) -> Columns:
    if len(tokens) > 3 and tokens[3].lower() in REDOPS:
        return ("redop",)
    return ()


def _body(numbers: Tokens, sides: int, width: int) -> Tokens:
    names = ["time", "algbw", "busbw", "wrong", "i_min", "i_max", "i_p99", "i_cv%"][:width]
    # The old `error` is printed with %5.0le (1e-07), `#wrong` with %g of a whole number.
    fourth = numbers[3::4]
    if width == 4 and any(_SMALL_ERROR.match(number) and float(number) < 1 for number in fourth):
        names[3] = "error"
    return [f"{side}.{name}" for side in ("out", "in")[:sides] for name in names]


def _row(columns: Columns, tokens: Tokens) -> Row | None:
    """Return the row with these columns; None where a token is not of its column's kind."""
    fields = {}
    try:
        for (name, read), token in zip(_readers(columns), tokens, strict=False):
            fields[name] = read(token)
    except ValueError:
        return None
    size = fields.get("size")
    if size is None:
        return None
    return Row(
        size,
        count=fields.get("count"),
        type=fields.get("type"),
        redop=fields.get("redop"),
        root=fields.get("root"),
        out_of_place=_side(fields, "out"),
        in_place=_side(fields, "in"),
    )


def _side(fields: Mapping[str, Any], side: str) -> Timing | None:
    if f"{side}.busbw" not in fields:
        return None
    return Timing(*map(fields.get, _TIMING[side]))


@lru_cache(64)
def _readers(columns: Columns) -> tuple[tuple[str, Reader], ...]:
    """Return the columns, each with what reads its tokens and raises ValueError for those of
    another kind.
    """
    return tuple((name, _READERS.get(name.rpartition(".")[2], _number)) for name in columns)


def _number(token: str) -> float | None:
    """Return a finite number; None for a placeholder."""
    try:
        value = float(token)
    except ValueError:
        if token.lower() in _NO_NUMBER:
            return None
        if not _NUMBER.match(token):
            raise
        digits = token.rstrip("*").replace(",", "").replace("_", "")
        value = float(digits)
    is_finite = math.isfinite(value)
    # Python reads more than programs print
    if ("_" in token or not is_finite) and not _numeric(token):
        raise ValueError(token)
    return value if is_finite else None


def _whole(token: str) -> int | None:
    """Return a whole number that may be printed as 1e+06, 1_024 or 1,024; None for what stands for
    none.
    """
    try:
        value = int(token)
    except ValueError:
        number = _number(token)
        if number is None and token.lower() in _NO_NUMBER:
            return None
        if number is None or not number.is_integer():
            raise
        value = int(number)
    return value if abs(value) <= _MOST else None


def _root(token: str) -> int | None:
    rank = _whole(token)
    if rank is not None and rank < -1:
        raise ValueError(token)
    return rank


def _word(token: str) -> str | None:
    word = token.lower()
    if not word or word in _NO_NUMBER:
        return None
    if _numeric(word):
        raise ValueError(token)
    return word


def _numeric(token: str) -> bool:
    if token.isdecimal() or _NUMBER.match(token):
        return True
    return token.lower() in _NO_NUMBER


_READERS: Mapping[str, Reader] = {
    "size": _whole,
    "count": _whole,
    "type": str,
    "redop": _word,
    "root": _root,
    "wrong": _whole,
}
