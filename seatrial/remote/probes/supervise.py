"""Run a command and end it, with every process it started, when standard input closes or time is
up.

    supervise.py TIMEOUT_S COMMAND [ARG ...]

An SSH session that goes away does not end what it started; mpirun would run on. The caller keeps
the standard input open for as long as the command is wanted. The first line there is a JSON object:
variables for the command's environment, which show neither in a list of processes nor in a file.
With SEATRIAL_PIPE among them, what rank 0 writes into that named pipe comes by standard error,
apart from the words of all others.

The exit status is the command's own, 128+N when signal N ended it. A command's own may be any
number, so one of these lines says that this program ends the command, or could not start it; what
comes after it is of processes that are ended:

    seatrial-supervisor: time is up; 41.5 s of it a process waited for a processor
    seatrial-supervisor: not wanted any more
    seatrial-supervisor: cannot start NAME: REASON
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time

from processor_wait import waited_s

GRACE_S = 3.0
UNWANTED = "not wanted any more"


def main(arguments):
    """Run the command and end it; return the exit status."""
    timeout_s = float(arguments[0])
    command = arguments[1:]
    become_subreaper()
    variables = read_variables()
    if variables is None:
        return report(UNWANTED)
    pipe = Pipe(variables.pop("SEATRIAL_PIPE", None))
    try:
        child = start(command, variables)
    except OSError as error:
        return report(f"cannot start {command[0]}: {error.strerror}")
    why = wait(child, timeout_s)
    if why:
        report(why)
    end_all(child)  # also processes that the command left running
    pipe.close()
    if why:
        return 1
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


class Pipe:
    """Copies a named pipe to standard error until it is closed; does nothing without a path."""

    def __init__(self, path):
        self.copying = None
        if not path:
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.mkfifo(path, 0o600)
        self.reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.writer = os.open(path, os.O_WRONLY)
        os.set_blocking(self.reader, True)
        self.copying = threading.Thread(target=self.copy, daemon=True)
        self.copying.start()

    def copy(self):
        while data := os.read(self.reader, 65536):
            view = memoryview(data)
            while view:
                view = view[os.write(2, view) :]

    def close(self):
        """Wait until the rest is copied; all writers have ended."""
        if self.copying:
            os.close(self.writer)
            self.copying.join(GRACE_S)


def read_variables():
    """Read exactly the first line of standard input, and return the variables in it; None if it is
    closed before.
    """
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return None
        line += byte
    return json.loads(line)


def start(command, variables):
    """Start the command, found on this process's PATH, since `variables` are meant for the
    ranks.
    """
    return subprocess.Popen(
        command,
        executable=shutil.which(command[0]) or command[0],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **variables},
    )


def report(why):
    # On a new line, as a rank may have left an incomplete one
    print(f"\nseatrial-supervisor: {why}", flush=True)
    return 1


def wait(child, timeout_s):
    """Return None if the child ended on its own, else why it must be ended."""
    deadline = time.monotonic() + timeout_s
    while child.poll() is None:
        if time.monotonic() > deadline:
            waits = [sum(waited_s(pid).values()) for pid in descendants()]
            longest_s = max(waits, default=0.0)
            return f"time is up; {longest_s:.1f} s of it a process waited for a processor"
        readable, _, _ = select.select([0], [], [], 0.05)
        if readable and not os.read(0, 4096):
            return UNWANTED
    return None


def end_all(child):
    """Terminate, then kill the child's whole tree, with orphans that this process has adopted."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_S
        for pid in descendants():
            try:
                os.kill(pid, signal_number)
            except OSError:
                pass  # it has ended
        while time.monotonic() < deadline:
            child.poll()
            reap()
            if not descendants():
                return
            time.sleep(0.02)


def reap():
    """Reap orphans that this process has adopted, since zombies would count as running."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def descendants():
    """Return all processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    pids = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        pids += below
        queue += below
    return pids


def become_subreaper():
    """Adopt the command's orphans, instead of init, so that they can be found and ended."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
