"""The requests of the control host: start, stop, log, check, pull.

The answer is one line, MARK and a JSON object. The supervisor holds the lock of the host for a run,
and is the parent of the run's sshd: processes that lose their parent become its children. It ends
all of them on a signal, when sshd ends, and at the deadline. If it is killed, node.sh gets a signal
and ends sshd itself.
"""

import json
import os
import pwd
import shutil
import signal
import stat
import time
from typing import Optional

from seatrial.platforms.baremetal.on_host.host import (
    SIGNALS,
    STOP_S,
    VARIABLE,
    Json,
    Lock,
    ProblemError,
    call,
    end_all,
    has_image,
    is_running,
    lock_state,
    prctl,
    read_tail,
    reap,
    remove,
    remove_tree,
    send,
    started,
    unblock,
)

MARK = "seatrial-host: "
NODE_MARK = "seatrial-node: "
MAX_LOG_BYTES = 8 * 1024**2
PROGRAMS = ("sshd", "ssh", "ssh-keyscan", "awk", "timeout", "od")


def supervise(request: Json, lock: Lock, log_file: int) -> None:
    """Start the node and wait until this process gets a signal, sshd ends, or the deadline passes;
    then end the run.
    """
    deadline = time.monotonic() + request["deadline_s"]
    folder = request["folder"]
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, log_file), (2, log_file)):
        os.dup2(source, target)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # PR_SET_CHILD_SUBREAPER: what loses its parent, as mpirun's daemons do, is still found
    prctl(36, 1)
    try:
        own = {"pid": os.getpid(), "started": started(os.getpid())}
        file = os.path.join(folder, "supervisor.json")
        # Written to another name first, so that readers never see a part
        with open(file + ".new", "w") as new:
            new.write(json.dumps(own))
        os.rename(file + ".new", file)
        wait_for_end(start_node(request), deadline)
    finally:
        remove(request["container"])
        end_all(os.getpid(), folder)
        remove(request["container"])  # a container that was being created when its client was ended
        remove_tree(folder)
        lock.release()


def start_node(request: Json) -> int:
    """Start node.sh, in the container if there is one, and return its pid.

    Its keys come by a pipe.
    """
    container = request["container"]
    command = [
        *(container["command"] if container else ["sh"]),
        "-s",
        "seatrial",
        request["run_id"],
    ]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(reader, 0)
            unblock()
            # PR_SET_PDEATHSIG: end this child in order when the supervisor dies
            prctl(1, signal.SIGTERM)
            os.execvpe(command[0], command, {**os.environ, VARIABLE: request["folder"]})
        finally:
            os._exit(127)
    os.close(reader)
    try:
        with os.fdopen(writer, "wb") as stdin:
            stdin.write(request["program"].encode())
    except BrokenPipeError:
        pass  # the node's log has the cause
    return pid


def wait_for_end(node: int, deadline: float) -> None:
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return
        arrived = signal.sigtimedwait(SIGNALS, min(left_s, 3600))
        if arrived is not None and arrived.si_signo != signal.SIGCHLD:
            return
        if node in reap():
            return


def main(request: Json) -> None:
    os.umask(0o077)
    verbs = {"start": start, "stop": stop, "log": log, "check": check, "pull": pull_image}
    try:
        answer = verbs[request["verb"]](request)
    except ProblemError as error:
        answer = {"problem": str(error)}
    except OSError as error:
        answer = {"problem": "{}: {}".format(error.filename or request["folder"], error.strerror)}
    print(MARK + json.dumps(answer), flush=True)


def start(request: Json) -> Json:
    """Take the lock, start sshd, and answer when it is ready."""
    lock = Lock(request["parent"])
    held_by = lock.take(request["run_id"])
    if held_by is not None:
        return {"held": held_by}
    folder = request["folder"]
    try:
        os.mkdir(folder, 0o700)
        log_file = os.open(
            os.path.join(folder, "node.log"),
            os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND,
            0o600,
        )
    except OSError:
        lock.release()
        raise
    supervisor = os.fork()
    if supervisor == 0:
        code = 1
        try:
            supervise(request, lock, log_file)
            code = 0
        finally:
            os._exit(code)
    try:
        port = wait_until_ready(log_file, supervisor, request["timeout_s"])
    except ProblemError:
        end(supervisor, folder)
        remove(request["container"])
        raise
    user = request["container"] and request["container"]["user"]
    login = os.environ.get("SSH_CONNECTION", "").split()
    return {
        "port": port,
        "user": user or pwd.getpwuid(os.getuid()).pw_name,
        # The address by which the control host, or the last jump host, reaches it
        "address": login[2] if len(login) == 4 else "",
        "kernel": read_tail("/proc/sys/kernel/random/boot_id", 64).strip(),
        "cores": len(os.sched_getaffinity(0)),
    }


def wait_until_ready(log_file: int, supervisor: int, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        has_ended = os.waitpid(supervisor, os.WNOHANG)[0] != 0
        lines = os.pread(log_file, 64 * 1024, 0).decode(errors="replace").splitlines()
        for line in lines:
            if line.startswith(NODE_MARK + "ready "):
                return int(line[len(NODE_MARK + "ready ") :])
            if line.startswith(NODE_MARK + "failed: "):
                raise ProblemError(line[len(NODE_MARK + "failed: ") :])
        if has_ended:
            raise ProblemError(
                next(
                    (line for line in reversed(lines) if line.strip()),
                    "sshd's supervisor has ended",
                )
            )
        if time.monotonic() > deadline:
            raise ProblemError("sshd was not ready within {:g} s".format(timeout_s))
        time.sleep(0.02)


def stop(request: Json) -> Json:
    """End the run on this host. Idempotent."""
    folder = request["folder"]
    check_own_folder(folder)
    supervisor = supervisor_of(folder)
    if supervisor:
        end(supervisor, folder)
    is_removed = remove(request["container"])
    remaining = end_all(None, folder)
    remove_tree(folder)
    drop_lock(request)
    return {
        "remaining": remaining,
        "folder_left": os.path.lexists(folder),
        "container_left": not is_removed,
    }


def check_own_folder(folder: str) -> None:
    """Raise ProblemError if something else exists at the path of the run's folder."""
    if os.path.lexists(folder):
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise ProblemError("{} is not a folder of this user".format(folder))


def supervisor_of(folder: str) -> Optional[int]:
    """Return the pid of the supervisor; None if it has ended."""
    try:
        content = json.loads(read_tail(os.path.join(folder, "supervisor.json"), 4096))
        return int(content["pid"]) if started(int(content["pid"])) == content["started"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def drop_lock(request: Json) -> None:
    """Remove the lock file of a supervisor that was killed, unless another run has the host."""
    lock = Lock(request["parent"])
    try:
        held_by = lock.take(request["run_id"])
    except (OSError, ProblemError):
        return
    if held_by is None:
        lock.release()


def end(supervisor: int, folder: str) -> None:
    """Ask the supervisor to end the run; kill it if it does not."""
    send(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S + 2
    while is_running(supervisor) and time.monotonic() < deadline:
        reap()
        time.sleep(0.02)
    send(supervisor, signal.SIGKILL)
    end_all(None, folder)
    remove_tree(folder)


def log(request: Json) -> Json:
    """Return the end of the output of node.sh and sshd."""
    folder = request["folder"]
    check_own_folder(folder)
    if not os.path.lexists(folder):
        return {"log": ""}
    return {
        "log": read_tail(os.path.join(folder, "node.log"), min(request["bytes"], MAX_LOG_BYTES))
    }


def check(request: Json) -> Json:
    """Check the prerequisites of a run on this host without changing it."""
    parent = request["parent"]
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin:/usr/local/sbin"
    container = request["container"]
    programs = [container["program"]] if container else [*PROGRAMS, request["mpirun"]]
    missing = [program for program in programs if not shutil.which(program, path=path)]
    status = os.statvfs(parent)
    lock = Lock(parent)
    return {
        "missing": missing,
        "image_missing": bool(container) and not missing and not has_image(container),
        "free_bytes": status.f_bavail * status.f_frsize,
        "writable": os.access(parent, os.W_OK | os.X_OK),
        "executable": not status.f_flag & os.ST_NOEXEC,
        "held": lock_state(lock),
    }


def pull_image(request: Json) -> Json:
    """Pull the image, as the user who has logged in."""
    container = request["container"]
    status, words = call(
        [container["program"], "pull", "--quiet", container["image"]], request["timeout_s"]
    )
    return {"image_problem": words if status else None}
