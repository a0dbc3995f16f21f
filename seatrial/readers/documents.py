"""Objects and lists of a JSON document that may hold anything."""

import json
import math
from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]  # an object


def document_of(lines: Sequence[str]) -> Document | None:
    """Return the object that `lines` are; None if they are no JSON, or another value."""
    try:
        document = json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def json_in(text: str) -> Any:
    """Return the JSON in a text, from its first brace on; None in another text."""
    start = max(text.find("{"), 0)
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return None


def items(value: Any, key: str) -> list[Document]:
    """Return the objects in the list `key` of an object."""
    return [
        item
        for item in listed(value.get(key) if isinstance(value, dict) else None)
        if isinstance(item, dict)
    ]


def listed(value: Any) -> list[Any]:
    """Return a list of bounded length; another value as its only item, None as an empty list."""
    if isinstance(value, list):
        return value[:4096]
    return [] if value is None else [value]


def finite(value: object) -> float | None:
    """Return a finite number of bounded size; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if math.isfinite(value) and abs(value) < 1e15:
        return float(value)
    return None
