"""One line of a text that may have many, and the end of a text that may be long."""

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

MAX_BYTES = 1024**2


def one_line(text: object) -> str:
    """Return the whole text on one line, with single blanks; empty for None."""
    return " ".join(str("" if text is None else text).split())


def first_line(text: str | None) -> str:
    """Return the first line that is not empty, else ""."""
    return _first((text or "").splitlines())


def last_line(text: str) -> str:
    """Return the last line that is not empty, else ""."""
    return _first(reversed(text.splitlines()))


def _first(lines: Iterable[str]) -> str:
    return next((line.strip() for line in lines if line.strip()), "")


def tail_of(path: Path) -> bytes:
    """Return the last MAX_BYTES of a file; whole lines, since one cut in two may begin within a
    secret.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_BYTES))
        tail = file.read(MAX_BYTES)
    return whole_lines(tail) if size > MAX_BYTES else tail


def whole_lines(tail: bytes) -> bytes:
    """Return the text without its first line, whose beginning is lost."""
    _, newline, rest = tail.partition(b"\n")
    return rest if newline else tail


def last_bytes(chunks: Iterable[bytes]) -> bytes:
    """Return the last MAX_BYTES of a stream, as `tail_of`, holding no more than that and a
    chunk.
    """
    kept: deque[bytes] = deque()
    size = 0
    cut = False
    for chunk in chunks:
        kept.append(chunk)
        size += len(chunk)
        while size - len(kept[0]) >= MAX_BYTES:
            size -= len(kept.popleft())
            cut = True
    tail = b"".join(kept)[-MAX_BYTES:]
    return whole_lines(tail) if cut or size > MAX_BYTES else tail
