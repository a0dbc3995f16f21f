"""Room on the disk for run.json, taken before anything else of a run is written and given back for
it.

The room is a file without a name, which the kernel removes with the process, even a killed one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.model.errors import InputError

RESERVE = ".run.json.reserve"
_BYTES = 1024**2
_BYTES_PER_NODE = 32 * 1024
_held: dict[Path, int] = {}  # the open file by the run's folder


@contextmanager
def reserved(folder: Path, nodes: int) -> Iterator[None]:
    """Keep room for the result of `nodes` until `release` or the end of the block.

    Raises InputError where the disk has none: then nothing needs to be tried.
    """
    name = folder / RESERVE
    size = _BYTES + _BYTES_PER_NODE * nodes
    try:
        _held[folder] = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        name.unlink()
        os.posix_fallocate(_held[folder], 0, size)
    except OSError as error:
        release(folder)
        raise InputError(
            f"out {folder}: has no room for run.json ({size // 1024} KiB): "
            f"{error.strerror}; give another"
        ) from error
    try:
        yield
    finally:
        release(folder)


def release(folder: Path) -> None:
    """Give the room back, if any was taken."""
    if (file := _held.pop(folder, None)) is not None:
        os.close(file)
