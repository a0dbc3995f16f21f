"""The process that holds a host for a run: it has the lock, and is the parent of the run's sshd.

What loses its parent becomes a child of this process. It ends all of them when it is told to, when sshd ends, and at
the deadline. If somebody kills it, node.sh gets a signal and ends sshd itself.
"""

import json
import os
import signal
import time

from seatrial.platforms.baremetal.on_host.container import remove
from seatrial.platforms.baremetal.on_host.files import remove_tree, write
from seatrial.platforms.baremetal.on_host.lock import Lock
from seatrial.platforms.baremetal.on_host.processes import (
    SIGNALS,
    VARIABLE,
    become_subreaper,
    end_all,
    prctl,
    reap,
    started,
    unblock,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


def supervise(request: "Dict[str, Any]", lock: Lock, log_file: int) -> None:
    """Hold sshd until somebody ends this process, sshd ends, or the deadline is over."""
    deadline = time.monotonic() + request["deadline_s"]
    folder = request["folder"]
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, log_file), (2, log_file)):
        os.dup2(source, target)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    become_subreaper()
    try:
        own = {"pid": os.getpid(), "started": started(os.getpid())}
        write(os.path.join(folder, "supervisor.json"), json.dumps(own))
        wait_for_end(start_node(request), deadline)
    finally:
        remove(request["container"])
        end_all(os.getpid(), folder)
        remove(request["container"])  # one that was being made when its client was ended
        remove_tree(folder)
        lock.release()


def start_node(request: "Dict[str, Any]") -> int:
    """The pid of node.sh, or of what runs it in a container; it starts sshd. Its keys come by a pipe."""
    container = request["container"]
    command = [*(container["command"] if container else ["sh"]), "-s", "seatrial", request["run_id"]]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(reader, 0)
            follow()
            os.execvpe(command[0], command, {**os.environ, VARIABLE: request["folder"]})
        finally:
            os._exit(127)
    os.close(reader)
    try:
        with os.fdopen(writer, "wb") as stdin:
            stdin.write(request["program"].encode())
    except BrokenPipeError:
        pass  # it has said why in its log
    return pid


def follow() -> None:
    """As the child: end in order when the supervisor dies."""
    unblock()
    prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


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
