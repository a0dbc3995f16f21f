"""Run a command and end it, with every process it started, when standard input closes or time is up.

    supervise.py TIMEOUT_S COMMAND [ARG ...]

An SSH session that goes away does not end what it started; mpirun would run on for nobody. Whoever started this keeps
its standard input open for as long as the command is wanted. Exit status: the command's own, 128+N when signal N ended
it, 124 when time was up, 125 when standard input closed first, 127 when the command cannot be started.
"""

import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 3.0


def main(arguments):
    timeout_s, command = float(arguments[0]), arguments[1:]
    become_subreaper()
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", flush=True)
        return 127
    ended_by = wait(child, timeout_s)
    if ended_by:
        end_all(child)
        return ended_by
    end_all(child)  # whatever it left running
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def wait(child, timeout_s):
    """0 when the child ended by itself, else the exit status that says why it must be ended."""
    deadline = time.monotonic() + timeout_s
    while child.poll() is None:
        if time.monotonic() > deadline:
            return 124
        readable, _, _ = select.select([0], [], [], 0.05)
        if readable and not os.read(0, 4096):
            return 125
    return 0


def end_all(child):
    """Ask, then force: the child's whole tree, also what has been handed to us by parents that died."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_S
        for pid in descendants(os.getpid()):
            send(pid, signal_number)
        while time.monotonic() < deadline:
            child.poll()
            reap()
            if not descendants(os.getpid()):
                return
            time.sleep(0.02)


def send(pid, signal_number):
    try:
        os.kill(pid, signal_number)
    except OSError:
        pass


def reap():
    """Collect orphans that became ours; a zombie counts as a process otherwise."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def descendants(root):
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def become_subreaper():
    """Orphans of the command come to us instead of init, so that they can be found and ended."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
