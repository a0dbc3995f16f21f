"""The lock, files, processes and container of a run on a host."""

import ctypes
import errno
import fcntl
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from typing import Any, Dict, List, Optional, Set, Tuple

Json = Dict[str, Any]  # a JSON object
LOCK = "seatrial.lock"
VARIABLE = "SEATRIAL_HOST_FOLDER"  # in the environment of every process of a run
# Signals that a supervisor waits for
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
STOP_S = 10.0
CONTAINER_STOP_S = 5  # for sshd's end; then the container is killed
CALL_S = 15.0
WORDS = 500
ABSENT = ("no such image", "image not known")  # in messages of docker and podman, in lower case


class ProblemError(Exception):
    """An error that is reported to the control host."""


def remove_tree(folder: str) -> None:
    """Remove a folder without following links."""
    shutil.rmtree(folder, ignore_errors=True)


def read_tail(path: str, size: int) -> str:
    """Return the last `size` bytes of a file as text. Raises OSError, also for a link."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - size))
        return file.read(size).decode(errors="replace")


class Lock:
    """The lock of a host, which one run at a time holds. Its file names the run."""

    def __init__(self, parent: str) -> None:
        self.path = os.path.join(parent, LOCK)
        self.fd = -1

    def take(self, run_id: str) -> Optional[Json]:
        """Take the lock until this process and its children end; return the holder if another run
        has it.
        """
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
            os.close(self.fd)  # its holder has removed the file since it was opened
        if os.fstat(self.fd).st_uid != os.getuid():
            owner = os.fstat(self.fd).st_uid
            raise ProblemError(
                "{} belongs to user {}, whose run is over: remove it".format(
                    self.path, name_of(owner)
                )
            )
        os.ftruncate(self.fd, 0)
        content = {"run": run_id, "user": name_of(os.getuid()), "since": int(time.time())}
        os.pwrite(self.fd, json.dumps(content).encode(), 0)
        return None

    def _open(self) -> None:
        """Open the lock file, creating it if necessary.

        A file of another user is opened read-only, which suffices to see whether it is locked.
        Raises OSError, or ProblemError if it is not a regular file.
        """
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        # Read-only for files of other users
        for mode in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL):
            try:
                self.fd = os.open(self.path, mode | flags, 0o644)
            except OSError as error:
                if (
                    error.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM)
                    or mode & os.O_CREAT
                ):
                    raise
            else:
                if not stat.S_ISREG(os.fstat(self.fd).st_mode):
                    raise ProblemError("{} is no regular file: remove it".format(self.path))
                if mode & os.O_CREAT:
                    os.fchmod(self.fd, 0o644)
                return

    def _is_current(self) -> bool:
        """Return whether the opened file still is the one at the path."""
        try:
            there = os.lstat(self.path)
        except OSError:
            return False
        ours = os.fstat(self.fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def holder(self) -> Json:
        """Return the run in the lock file: its id, its user, and since when (seconds of the epoch);
        {} if unreadable.
        """
        try:
            content = json.loads(os.pread(self.fd, 4096, 0).decode())
            return {
                "run": str(content["run"]),
                "user": str(content["user"]),
                "since": int(content["since"]),
            }
        except (ValueError, KeyError, TypeError):
            return {}  # it is being written, or is not from seatrial

    def release(self) -> None:
        """Remove the lock file, then release the lock, so that no process locks a removed file."""
        if self._is_current():
            os.unlink(self.path)
        os.close(self.fd)


def lock_state(lock: Lock) -> Optional[Json]:
    """Return the run that holds the host; None if it is free."""
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
    """Return the name of a user; the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def unblock() -> None:
    """Restore signal handling in a child of the supervisor."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores SIGPIPE by default


def prctl(option: int, value: int) -> None:
    """Set an option of this process that only Linux has; failures are ignored."""
    ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


def reap() -> Set[int]:
    """Return the children that have ended, without waiting for others."""
    ended = set()
    try:
        while True:
            pid = os.waitpid(-1, os.WNOHANG)[0]
            if not pid:
                break
            ended.add(pid)
    except ChildProcessError:
        pass
    return ended


def end_all(supervisor: Optional[int], folder: str) -> List[int]:
    """Kill every process of the run; return those that do not end within 10 s."""
    deadline = time.monotonic() + STOP_S
    while True:
        reap()
        left = processes_of(supervisor, folder)
        if not left or time.monotonic() > deadline:
            return sorted(left)
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)


def processes_of(supervisor: Optional[int], folder: str) -> Set[int]:
    """Return descendants of the supervisor, processes with the run's folder in their environment,
    and its sshd.
    """
    children: Dict[int, List[int]] = {}
    roots = {supervisor} if supervisor else set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_of(int(entry))
            if fields and fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry))
                if belongs(entry, folder):
                    roots.add(int(entry))
    pids = set(roots)
    queue = list(roots)
    while queue:
        below = [pid for pid in children.get(queue.pop(), []) if pid not in pids]
        pids.update(below)
        queue += below
    return pids - {supervisor, os.getpid()}


def belongs(entry: str, folder: str) -> bool:
    """Return whether a process belongs to the run, by its environment or, as sshd overwrites that,
    by its arguments.
    """
    try:
        if os.stat("/proc/" + entry).st_uid != os.getuid():
            return False
        with open("/proc/{}/environ".format(entry), "rb") as file:
            if "{}={}".format(VARIABLE, folder).encode() in file.read(1024**2).split(b"\0"):
                return True
        with open("/proc/{}/cmdline".format(entry), "rb") as file:
            title = file.read(64 * 1024)
    except OSError:
        return False
    return b"sshd" in title.split(b"\0")[0] and "HostKey={}/".format(folder).encode() in title


def stat_of(pid: int) -> List[str]:
    """Return the fields of /proc/PID/stat from the state on; empty for a process that is gone."""
    try:
        with open("/proc/{}/stat".format(pid)) as file:
            return file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def started(pid: int) -> str:
    """Return when a process started, in ticks since the boot; empty for one that is gone."""
    fields = stat_of(pid)
    if fields:
        return fields[19]
    return ""


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    return stat_of(pid)[:1] not in ([], ["Z"])


def send(pid: int, number: int) -> None:
    """Send a signal; nothing happens if the process is gone or another user's."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def has_image(container: Json) -> bool:
    """Return whether the host has the image.

    Raises ProblemError where docker or podman do not answer.
    """
    if not container["name"]:
        return os.path.exists(container["image"])
    status, words = call([container["program"], "image", "inspect", container["image"]], CALL_S * 2)
    if status and not any(absent in words.lower() for absent in ABSENT):
        raise ProblemError("{}: {}".format(container["program"], words))
    return status == 0


def remove(container: Optional[Json]) -> bool:
    """End the container's sshd, which removes the keys, then remove the container; return whether
    it is gone.
    """
    if not container or not container["name"]:
        return True
    program = container["program"]
    name = container["name"]
    listing = [program, "ps", "--all", "--quiet", "--filter", "name=^{}$".format(name)]
    if is_gone(listing):
        return True
    call([program, "stop", "-t", str(CONTAINER_STOP_S), name], CONTAINER_STOP_S + CALL_S)
    deadline = time.monotonic() + CONTAINER_STOP_S
    while True:  # docker removes it by itself meanwhile, and lists it until it has
        call([program, "rm", "--force", name], CALL_S)
        if is_gone(listing):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)


def is_gone(listing: List[str]) -> bool:
    """Return whether the command lists no container of the run, or the runtime is missing."""
    answer = call(listing, CALL_S)
    return answer[0] == 127 or answer == (0, "")


def call(argv: List[str], timeout_s: float) -> Tuple[int, str]:
    """Run a command; its status, and the end of its output, or of its errors if it failed."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
            preexec_fn=unblock,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "{} did not end within {:g} s".format(" ".join(argv[:2]), timeout_s)
    except OSError as error:
        return 127, "{}: {}".format(argv[0], error.strerror)
    text = (done.stderr or done.stdout) if done.returncode else done.stdout
    return done.returncode, " ".join(text.decode(errors="replace").split())[-WORDS:]
