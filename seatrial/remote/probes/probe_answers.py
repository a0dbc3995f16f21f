"""What the programs that check.py starts have answered: they may print anything, or nothing.
Standard library only.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict

from processes import Ended

Json = Dict[str, Any]  # an object
_MAX_TEXT = 200  # characters of a probe's text
_MAX_JSON = 1 << 20  # bytes


def measured(answer: Json, name: str) -> float:
    """Return a number of an answer; NaN where it has none, or 0."""
    return number(answer.get(name)) or math.nan


def last_json(ended: Ended) -> Json | None:
    """Return the JSON object in the last line that a program printed, if any."""
    lines = ended.output.strip().splitlines()
    return _json_object(lines[-1]) if lines else None


def read_json(file: str) -> Json | None:
    """Return the JSON object in a file; None if it has none or is too large."""
    try:
        with open(file, errors="replace") as stream:
            content = stream.read(_MAX_JSON + 1)
    except OSError:
        return None
    if len(content) > _MAX_JSON:
        return None
    return _json_object(content)


def _json_object(content: str) -> Json | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def objects(answer: Json, name: str) -> list[Json]:
    """Return the JSON objects in a list of the answer; none where it is no list."""
    entries = answer.get(name)
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    is_finite = abs(value) < math.inf
    return float(value) if is_finite else None


def figure(value: float) -> str:
    """Format with three significant digits, never cutting whole numbers, as in reports: 4.50, 386,
    2,700.
    """
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def text(value: object) -> str:
    """Return one line to print, bounded and without control characters; "" for None."""
    words = "" if value is None else str(value)
    line = " ".join(words.split())
    printable = "".join(letter for letter in line if letter.isprintable())
    return printable[:_MAX_TEXT]
