"""Slow a node's processors: what its processes use is followed by a pause in which they are
stopped.

    slow_cpu.py SHARE       runs inside the node's PID namespace until the node ends

A pause is in proportion to what was used, so that a node is slow on a busy machine too, whose
others leave it less than its share anyway. Standard library only.
"""

import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_LOOK_S = 0.004  # a tick, the interval at which the kernel accounts processor time
_BURST_S = 0.01  # processor time before each pause: less than a measurement takes
_STOPPED_S = 1.0  # longest wait for processes to stop, each of which must run to do so
_PRIORITY = -20  # so that pauses end on time
_FILTERS = re.compile(r"^Seccomp_filters:\s+(\d+)$", re.MULTILINE)
_HALTED = "TtZX"  # states of a process that is stopped or ended


def main(share: float) -> None:
    with suppress(PermissionError):  # a plain user's pauses last longer on a busy machine
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    processors = len(os.sched_getaffinity(0))
    pause = 1 / (share * processors) - 1 / processors  # seconds for each second of processor time
    before = _used()
    own_filters = _filters(os.getpid())
    while True:
        time.sleep(_LOOK_S)
        now = _used()
        used = {pid: seconds - before.get(pid, 0.0) for pid, seconds in now.items()}
        if sum(used.values()) > _BURST_S:
            stopped = [pid for pid in used if pid != 1 and _filters(pid) <= own_filters]
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            # SIGCONT cancels a SIGSTOP that a process has not obeyed yet
            ran = [pid for pid in stopped if used[pid]]
            ends = time.monotonic() + _STOPPED_S
            while time.monotonic() < ends and any(_state(pid) not in _HALTED for pid in ran):
                time.sleep(_LOOK_S / 4)
            time.sleep(sum(used.values()) * pause)
            os.kill(-1, signal.SIGCONT)
            before = now


def _used() -> dict[int, float]:
    """Return the seconds of processor time of each process except this one, by pid."""
    used = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):  # it has just ended
                # The clock id of the process: clock_getcpuclockid(3)
                used[int(name)] = time.clock_gettime(~int(name) << 3 | 2)
    return used


def _filters(pid: int) -> int:
    """Return the number of system call filters (seccomp) of a process.

    sshd's filter during a login forbids restart_syscall, which a process calls when it continues
    after a stop, so stopping it would kill it.
    """
    try:
        return int(_FILTERS.findall(Path(f"/proc/{pid}/status").read_text())[0])
    except (OSError, IndexError):  # it has just ended, or the kernel is older than 5.9
        return 0


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has just ended
        return "X"


if __name__ == "__main__":
    main(float(sys.argv[1]))
