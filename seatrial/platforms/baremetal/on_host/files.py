"""The files of a run on a host, and the lock that lets one run at a time have it."""

import errno
import fcntl
import json
import os
import pwd
import stat
import time

TYPE_CHECKING = False  # importing typing takes a tenth of the time that a host needs to start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional


class ProblemError(Exception):
    """An error that is reported to the control host."""


def remove_tree(folder: str) -> None:
    """Remove a folder without following links. Importing shutil would take as long as all the rest."""
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


LOCK = "seatrial.lock"


class Lock:
    """The lock of a host, which one run at a time holds. Its file names the run."""

    def __init__(self, parent: str) -> None:
        self.path = os.path.join(parent, LOCK)
        self.fd = -1

    def take(self, run_id: str) -> "Optional[Dict[str, Any]]":
        """Take the lock until this process and its children end; return the holder if another run has it."""
        while True:
            self._open()
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                return self.holder()
            if self._is_current():
                break
            os.close(self.fd)  # its holder has removed it meanwhile
        if os.fstat(self.fd).st_uid != os.getuid():
            owner = os.fstat(self.fd).st_uid
            raise ProblemError("{} belongs to user {}, whose run is over: remove it".format(self.path, name_of(owner)))
        os.ftruncate(self.fd, 0)
        content = {"run": run_id, "user": name_of(os.getuid()), "since": int(time.time())}
        os.pwrite(self.fd, json.dumps(content).encode(), 0)
        return None

    def _open(self) -> None:
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        for mode in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL):  # of others: to read
            try:
                self.fd = os.open(self.path, mode | flags, 0o644)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM) or mode & os.O_CREAT:
                    raise
            else:
                if not stat.S_ISREG(os.fstat(self.fd).st_mode):
                    raise ProblemError("{} is no regular file: remove it".format(self.path))
                if mode & os.O_CREAT:
                    os.fchmod(self.fd, 0o644)
                return

    def _is_current(self) -> bool:
        try:
            there = os.lstat(self.path)
        except OSError:
            return False
        ours = os.fstat(self.fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def holder(self) -> "Dict[str, Any]":
        try:
            content = json.loads(os.pread(self.fd, 4096, 0).decode())
            return {"run": str(content["run"]), "user": str(content["user"]), "since": int(content["since"])}
        except (ValueError, KeyError, TypeError):
            return {}  # it is being written, or somebody else wrote it

    def release(self) -> None:
        if self._is_current():
            os.unlink(self.path)
        os.close(self.fd)


def lock_state(lock: Lock) -> "Optional[Dict[str, Any]]":
    """The run that holds the host; None if it is free."""
    try:
        lock.fd = os.open(lock.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return lock.holder()
    finally:
        os.close(lock.fd)
    return None


def name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
