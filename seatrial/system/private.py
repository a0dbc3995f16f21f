"""Files and folders of this user alone: mode 0600 and 0700 whatever the umask, without following
links.

    with open(path, "w", opener=private_opener) as file: ...

Links and foreign owners are refused by file descriptor (O_NOFOLLOW, fstat): no file can be swapped
after the check.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_MOST_LINKS = 40  # the kernel's own limit


def private_opener(path: str, flags: int) -> int:
    """Open a file of mode 0600 to write, for `open(..., opener=...)`.

    An existing one must be this user's.

    Raises OSError whose `strerror` says what is wrong, before anything is truncated.
    """
    file = _open(path, flags & ~os.O_TRUNC)
    try:
        _check_file(os.fstat(file), path)
        os.fchmod(file, 0o600)
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)


def read_private(path: Path, max_bytes: int) -> bytes:
    """Read a file of this user. Raises OSError, also for links, others' files and longer ones."""
    file = _open(path, os.O_RDONLY)
    with os.fdopen(file, "rb") as reader:
        status = os.fstat(file)
        _check_file(status, path)
        if status.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "is writable by others", str(path))
        content = reader.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"is longer than {max_bytes} bytes", str(path))
    return content


def read_opener(path: str, flags: int) -> int:
    """Open a regular file of any user to read, for `open(..., opener=...)`; never a link.

    Raises OSError.
    """
    file = _open(path, flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise PermissionError(errno.EPERM, "is no regular file", path)
    return file


def private_folder(path: Path) -> Path:
    """Make a folder that only this user can write to, mode 0700, unless it exists. Raises OSError.

    One that is there keeps its mode: it may be the system's.
    """
    _make(path)
    return own_folder(path)


def closed_folder(path: Path) -> Path:
    """Make a folder of seatrial's own, mode 0700, with all its parents. Raises OSError.

    An existing one must be a folder of this user; and empty if others could write to it, since its
    content may then be anybody's.
    """
    _make(path)
    with _own_folder(path) as (folder, mode):
        if mode & 0o077:
            os.fchmod(folder, 0o700)
        if mode & 0o022 and os.listdir(folder):
            os.fchmod(folder, mode)
            raise _open_to_others(path, mode)
    return path


def own_folder(path: Path) -> Path:
    """Return a folder that only this user can write to; its mode stays. Raises OSError."""
    with _own_folder(path) as (_, mode):
        if mode & 0o022:
            raise _open_to_others(path, mode)
    return path


def check_private_folder(path: Path) -> None:
    """Raise OSError unless it is a folder of this user, mode 0700, and no link."""
    with _own_folder(path) as (_, mode):
        if mode & 0o077:
            raise _open_to_others(path, mode)


def check_parents(path: Path) -> None:
    """Raise OSError if another user could replace a folder or link on the way to `path`.

    A sticky folder such as /tmp is open to all, but entries stay their owners'. A pod's volume is
    its own: the kubelet makes an emptyDir open to all. Root trusts only folders and links of root
    and of the user who called sudo. Members of a folder's group are trusted.
    """
    sudo = os.environ.get("SUDO_UID", "")
    owners = {0, int(sudo)} if sudo.isdecimal() and len(sudo) < 11 else {0}
    for parent, status in _components(path.absolute().parent):
        if os.geteuid() == 0 and status.st_uid not in owners:
            raise PermissionError(
                errno.EPERM, f"lies in {parent}, which belongs to {_user(status.st_uid)}", str(path)
            )
        is_open = stat.S_ISDIR(status.st_mode) and status.st_mode & 0o1002 == 0o002  # not sticky
        is_volume_of_pod = "KUBERNETES_SERVICE_HOST" in os.environ and parent.is_mount()
        if is_open and not is_volume_of_pod:
            raise PermissionError(
                errno.EPERM, f"lies in {parent}, which others may write to", str(path)
            )


def _components(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every folder and link on the way from / to `path`, as far as they exist.

    Raises OSError.
    """
    at = Path("/")
    left = list(path.parts[1:])
    links = 0
    yield at, at.lstat()
    while left:
        component = at / left.pop(0)
        try:
            status = component.lstat()
        except FileNotFoundError:
            return
        yield component, status
        at = component
        if stat.S_ISLNK(status.st_mode):
            target = component.readlink()
            links = links + 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, "has too many symbolic links", str(path))
            at = Path("/") if target.is_absolute() else component.parent
            left = [part for part in target.parts if part != "/"] + left


def _make(path: Path) -> None:
    """Make a folder and its parents with mode 0700; `Path.mkdir(parents=True)` leaves the parents
    to the umask.
    """
    for folder in reversed(
        [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    ):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:  # made by another process meanwhile
            continue


@contextmanager
def _own_folder(path: Path) -> Iterator[tuple[int, int]]:
    """Open a folder of this user that is no link; yield descriptor and mode."""
    folder = _open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        status = os.fstat(folder)
        _check_owner(status, path)
        yield folder, stat.S_IMODE(status.st_mode)
    finally:
        os.close(folder)


def _open_to_others(path: Path, mode: int) -> PermissionError:
    return PermissionError(
        errno.EPERM, f"is open to other users (mode {mode:04o}); must be 0700", str(path)
    )


def _check_owner(status: os.stat_result, path: str | Path) -> None:
    if status.st_uid != os.geteuid():
        raise PermissionError(
            errno.EPERM, f"belongs to {_user(status.st_uid)}, not to you", str(path)
        )


def _check_file(status: os.stat_result, path: str | Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PermissionError(errno.EPERM, "is no regular file", str(path))
    _check_owner(status, path)
    if status.st_nlink > 1:
        raise PermissionError(errno.EPERM, "has other hard links", str(path))


def _open(path: str | Path, flags: int) -> int:
    """Open without following a link, and without blocking on a FIFO. Raises OSError."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        # "Too many levels of symbolic links" names no cause.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
            raise PermissionError(
                errno.EPERM, "is a symbolic link; links are not followed", str(path)
            ) from error
        raise


def _user(uid: int) -> str:
    return "root" if uid == 0 else f"user id {uid}"


def write_atomic(path: Path, content: str | bytes) -> Path:
    """Write a file whole or not at all.

    Lone surrogates, as of file names that are no UTF-8, are escaped. Raises OSError.
    """
    with atomic_write(path) as file:
        file.write(
            content.encode(errors="backslashreplace") if isinstance(content, str) else content
        )
    return path


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file, mode 0600, that replaces `path` at the end of the block; of a link, not
    where it leads.

    Readers never see half a file, and a crash or a full disk leaves the old one. Until then it has
    a random name, made with O_EXCL and O_NOFOLLOW. Raises OSError.
    """
    import tempfile

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
