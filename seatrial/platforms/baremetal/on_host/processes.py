"""Find and end the processes and the container of a run on a host."""

import ctypes
import os
import signal
import time

from seatrial.platforms.baremetal.on_host.files import ProblemError

TYPE_CHECKING = False  # importing typing takes a tenth of the time that a host needs to start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

VARIABLE = "SEATRIAL_HOST_FOLDER"  # in the environment of every process of a run
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}  # that a supervisor waits for
STOP_S = 10.0


def become_subreaper() -> None:
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what loses its parent, as mpirun's daemons do, is still found


def unblock() -> None:
    """Restore signal handling in a child of the supervisor."""
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


def processes_of(supervisor: "Optional[int]", folder: str) -> "Set[int]":
    """Processes that descend from the supervisor, have the run's folder in their environment, or are its sshd."""
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
    """Whether a process is of the run. sshd writes its title over its environment, and keeps its arguments in it."""
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
    """The fields of /proc/PID/stat from the state on; empty for a process that is gone."""
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


CONTAINER_STOP_S = 5  # for sshd's end; then the container is killed
CALL_S = 15.0
WORDS = 500
ABSENT = ("no such image", "image not known")  # of docker and podman, in small letters


def has_program(container: "Dict[str, Any]") -> bool:
    from shutil import which

    return which(container["program"]) is not None


def has_image(container: "Dict[str, Any]") -> bool:
    """Whether the host has the image. Raises ProblemError where docker or podman do not answer."""
    if not container["name"]:
        return os.path.exists(container["image"])
    status, words = call([container["program"], "image", "inspect", container["image"]], CALL_S * 2)
    if status and not any(absent in words.lower() for absent in ABSENT):
        raise ProblemError("{}: {}".format(container["program"], words))
    return status == 0


def pull(container: "Dict[str, Any]", timeout_s: float) -> "Optional[str]":
    """Pull the image; return why that failed, or None."""
    status, words = call([container["program"], "pull", "--quiet", container["image"]], timeout_s)
    return words if status else None


def remove(container: "Optional[Dict[str, Any]]") -> bool:
    """End the container's sshd, which removes the keys, then remove the container; return whether it is gone."""
    if not container or not container["name"]:
        return True
    program, name = container["program"], container["name"]
    listing = [program, "ps", "--all", "--quiet", "--filter", "name=^{}$".format(name)]
    if is_empty(call(listing, CALL_S)):
        return True
    call([program, "stop", "-t", str(CONTAINER_STOP_S), name], CONTAINER_STOP_S + CALL_S)
    deadline = time.monotonic() + CONTAINER_STOP_S
    while True:  # docker removes it by itself meanwhile, and lists it until it has
        call([program, "rm", "--force", name], CALL_S)
        if is_empty(call(listing, CALL_S)):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)


def is_empty(answer: "Tuple[int, str]") -> bool:
    """Whether there is no container of the run; without the runtime there never was."""
    return answer[0] == 127 or answer == (0, "")


def call(argv: "List[str]", timeout_s: float) -> "Tuple[int, str]":
    """Run a command; its status, and the end of its output, or of its errors if it failed."""
    import subprocess  # takes as long to import as all the rest

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
