"""The end of what may be long: enough to see why something ended, and never more than fits."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path

MAX_BYTES = 1024**2


def copy_tail(source: Path, target: Path) -> None:
    """Copy the last MAX_BYTES of `source`, if there is anything in it."""
    size = source.stat().st_size
    if not size:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file:
        file.seek(max(0, size - MAX_BYTES))
        target.write_bytes(file.read(MAX_BYTES))


def last_bytes(chunks: Iterable[bytes]) -> bytes:
    """The last MAX_BYTES of a stream, holding no more than that and a chunk."""
    kept: deque[bytes] = deque()
    size = 0
    for chunk in chunks:
        kept.append(chunk)
        size += len(chunk)
        while size - len(kept[0]) >= MAX_BYTES:
            size -= len(kept.popleft())
    return b"".join(kept)[-MAX_BYTES:]
