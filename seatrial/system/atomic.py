"""Write a file whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def write_atomic(path: Path, content: str | bytes) -> Path:
    """All of it or nothing, as `atomic_write` writes it.

    What UTF-8 cannot hold, such as the name of a file that is none, is written as `\\udcff`. Raises OSError.
    """
    with atomic_write(path) as file:
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
    return path


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A new file, mode 0600, that takes the place of `path` at the end of the block; of a link, not of where it leads.

    Readers never see half a file, and a crash or a full disk leaves the old one. Until
    then it has a random name, made with O_EXCL and O_NOFOLLOW. Raises OSError.
    """
    descriptor, name = tempfile.mkstemp(prefix=".seatrial-", suffix=".new", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
