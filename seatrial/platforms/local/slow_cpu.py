"""Give the processes of a node a share of the processors, as cpu.max of a cgroup does, without a cgroup.

    slow_cpu.py SHARE       runs inside the node's PID namespace until the node ends

They run until they have used what they are due, then all are stopped until it is theirs again. Standard library only.
"""

import os
import signal
import sys
import time
from pathlib import Path

_LOOK_S = 0.01
_BURST_S = 0.01  # of processor time that may be saved up: a tick, less than a measurement
_TICKS = os.sysconf("SC_CLK_TCK")


def main(share: float) -> None:
    rate = share * len(os.sched_getaffinity(0))  # seconds of processor time that they are due each second
    due, before, looked = 0.0, _used(), time.monotonic()
    while True:
        time.sleep(_LOOK_S)
        now, used = time.monotonic(), _used()
        increase_s = sum(ticks - before.get(pid, 0) for pid, ticks in used.items()) / _TICKS
        due = min(due + rate * (now - looked), _BURST_S) - increase_s
        before, looked = used, now
        if due < 0:
            os.kill(-1, signal.SIGSTOP)  # all but this process and the first of the namespace
            time.sleep(-due / rate)
            os.kill(-1, signal.SIGCONT)


def _used() -> dict[str, int]:
    """User and system time in ticks, by process, without this one."""
    used = {}
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            used[pid] = int(fields[11]) + int(fields[12])
    return used


if __name__ == "__main__":
    main(float(sys.argv[1]))
