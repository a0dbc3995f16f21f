"""Write a file whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> Path:
    """All of it or nothing: readers never see half a file, and a crash or a full disk leaves the old one.

    What UTF-8 cannot hold, such as the name of a file that is none, is written as `\\udcff`. Raises OSError.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return path
