"""The processes of a run on a host: find and end them, whatever became of their parents."""

import ctypes
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set

VARIABLE = "SEATRIAL_HOST_FOLDER"  # in the environment of every process of a run
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}  # that a supervisor waits for
STOP_S = 10.0


def become_subreaper() -> None:
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what loses its parent, as mpirun's daemons do, is still found


def unblock() -> None:
    """As a child of the supervisor."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


def reap() -> "Set[int]":
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


def end_all(supervisor: "Optional[int]", folder: str) -> "List[int]":
    """Kill every process of the run until there is none; those that do not end within 10 s."""
    deadline = time.monotonic() + STOP_S
    while True:
        reap()
        left = processes_of(supervisor, folder)
        if not left or time.monotonic() > deadline:
            return sorted(left)
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)


def processes_of(supervisor: "Optional[int]", folder: str) -> "Set[int]":
    """What descends from the supervisor, or has the run's folder in its environment, or is its sshd."""
    children: "Dict[int, List[int]]" = {}
    roots = {supervisor} if supervisor else set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_of(int(entry))
            if fields and fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry))
                if belongs(entry, folder):
                    roots.add(int(entry))
    pids, queue = set(roots), list(roots)
    while queue:
        below = [pid for pid in children.get(queue.pop(), []) if pid not in pids]
        pids.update(below)
        queue += below
    return pids - {supervisor, os.getpid()}


def belongs(entry: str, folder: str) -> bool:
    """sshd writes its title over its environment, and keeps its arguments in it."""
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


def stat_of(pid: int) -> "List[str]":
    """From the state on; empty where there is no such process."""
    try:
        with open("/proc/{}/stat".format(pid)) as file:
            return file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def started(pid: int) -> str:
    fields = stat_of(pid)
    return fields[19] if fields else ""


def is_running(pid: int) -> bool:
    fields = stat_of(pid)
    return bool(fields) and fields[0] != "Z"


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass
