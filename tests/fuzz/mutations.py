"""Broken and hostile versions of good input: cut, doubled, of other types, nested, huge.

A seed makes it anew.
"""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

HOSTILE: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        10**400,
        1e308,
        -0.5,
        float("nan"),
        float("inf"),
        "",
        " ",
        "\0",
        "\x1b[2J",
        "\ud800",
        "=1+1",
    ),
    *(
        "a" * 5000,
        "../../etc/passwd",
        "$(reboot)",
        "１２",
        "1e999",
        [],
        {},
        [[]],
        {"": ""},
        {"kind": "local"},
        "node-0",
    ),
]
MOST_ITEMS = 10_000  # of a list that is repeated
WORDS = [
    b"\0",
    b"\xff\xfe",
    b"nan",
    b"-",
    b"1e999",
    b"9" * 400,
    b"{",
    b"[" * 300,
    b'"',
    b"\n",
    b"\r",
    b"#",
    b": ",
    b"&a *a",
]


def of_bytes(good: bytes, dice: random.Random) -> bytes:
    """A few changes of bytes, lines and words."""
    data = good
    for _ in range(dice.randint(1, 6)):
        data = dice.choice(_BYTE_CHANGES)(data, dice)
    return data[: 1 << 20]


def _flip(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]


def _cut(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + data[at + dice.randrange(200) :]


def _end(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _insert(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.choice(WORDS) * dice.choice((1, 1, 1, 50)) + data[at:]


def _shuffle_lines(data: bytes, dice: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(min(5, len(lines))):
        lines.insert(dice.randrange(len(lines)), lines.pop(dice.randrange(len(lines))))
    return b"".join(lines)


def _double_lines(data: bytes, dice: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = dice.randrange(len(lines) + 1)
    return b"".join(lines[:at] + lines[at : at + 3] * dice.choice((2, 100)) + lines[at:])


_BYTE_CHANGES: list[Callable[[bytes, random.Random], bytes]] = [
    _flip,
    _cut,
    _end,
    _insert,
    _shuffle_lines,
    _double_lines,
]


def of_document(good: Any, dice: random.Random) -> Any:
    """A document of JSON or YAML in which values have other types or sizes, or are not there."""
    document = json.loads(json.dumps(good))
    for _ in range(dice.randint(1, 4)):
        document = _change(document, dice)
    return document


def _change(document: Any, dice: random.Random) -> Any:
    if dice.random() < 0.15 or not isinstance(document, dict | list) or not document:
        return _hostile(document, dice)
    key = (
        dice.choice(list(document)) if isinstance(document, dict) else dice.randrange(len(document))
    )
    match dice.randrange(8):
        case 0:
            del document[key]
        case 1 if isinstance(document, dict):
            document[str(dice.choice(HOSTILE))] = document[key]
        case 1 if isinstance(document, list):
            document *= dice.choice((2, max(2, min(300, MOST_ITEMS // len(document)))))
        case _:
            document[key] = _change(document[key], dice)
    return document


def _hostile(value: Any, dice: random.Random) -> Any:
    if dice.random() < 0.1:
        for _ in range(dice.choice((10, 3000))):
            value = [value] if dice.random() < 0.5 else {"a": value}
        return value
    return copy.deepcopy(dice.choice(HOSTILE))  # what becomes of it is changed again


def dumped(document: Any) -> bytes:
    """As JSON, which is YAML too; what is nested too deep for Python's writer becomes text that is
    nested as deep.
    """
    try:
        return json.dumps(document).encode(errors="surrogatepass")
    except RecursionError:
        return b"[" * 5000 + b"]" * 5000
