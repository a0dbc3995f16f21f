"""Small files of a run, and what keeps a host from taking part."""

import os

TYPE_CHECKING = False  # importing typing takes a tenth of the time that a host needs to start
if TYPE_CHECKING:
    from typing import Callable, Optional


class ProblemError(Exception):
    """What the control host is told instead of an answer."""


def remove_tree(folder: str) -> None:
    """Without following links; what cannot be removed stays. Importing shutil would take as long as all the rest."""
    try:
        for _, folders, files, descriptor in os.fwalk(folder, topdown=False):
            for name in files:
                attempt(os.unlink, name, descriptor)
            for name in folders:
                attempt(os.rmdir, name, descriptor) or attempt(os.unlink, name, descriptor)  # a link to a folder
    except OSError:  # it is not there, or no folder
        return
    attempt(os.rmdir, folder, None)


def attempt(remove: "Callable[..., None]", path: str, descriptor: "Optional[int]") -> bool:
    try:
        remove(path, dir_fd=descriptor)
    except OSError:
        return False
    return True


def write(path: str, text: str) -> None:
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def read_tail(path: str, size: int) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - size))
        return file.read(size).decode(errors="replace")
