"""Give the processes of a node a share of the processors, as cpu.max of a cgroup does, without a cgroup.

    slow_cpu.py SHARE       runs inside the node's PID namespace until the node ends

They run until they have used what they are due, then all are stopped until it is theirs again. Standard library only.
"""

import os
import signal
import sys
import time

_LOOK_S = 0.004  # a tick of most kernels, which is how often a thread's time is counted
_BURST_S = 0.004  # of processor time that may be saved up: less than a measurement


def main(share: float) -> None:
    rate = share * len(os.sched_getaffinity(0))  # seconds of processor time that they are due each second
    due, before, looked = 0.0, _used(), time.monotonic()
    while True:
        time.sleep(_LOOK_S)
        now, used = time.monotonic(), _used()
        increase_s = sum(seconds - before.get(pid, 0.0) for pid, seconds in used.items())
        due = min(due + rate * (now - looked), _BURST_S) - increase_s
        before, looked = used, now
        if due < 0:
            os.kill(-1, signal.SIGSTOP)  # all but this process and the first of the namespace
            time.sleep(-due / rate)
            os.kill(-1, signal.SIGCONT)


def _used() -> dict[int, float]:
    """Seconds of processor time by process, without this one."""
    used = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                used[int(name)] = time.clock_gettime(_clock_of(int(name)))
            except OSError:  # it has just ended
                continue
    return used


def _clock_of(pid: int) -> int:
    """The clock of a process's time on processors: clock_getcpuclockid(3), as Linux numbers it."""
    return ~pid << 3 | 2


if __name__ == "__main__":
    main(float(sys.argv[1]))
