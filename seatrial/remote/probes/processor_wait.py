"""How long threads were ready to run and waited for a processor that others had.

Linux counts this for each thread (/proc/PID/task/TID/schedstat). Where one machine plays all nodes,
whatever else runs there takes processors from a measurement; that time is no property of the node.
"""

import os
import time

CGROUP_STAT = "/sys/fs/cgroup/cpu.stat"


def waited_s(pid="self"):
    """Return seconds that each thread of a process has waited, by thread.

    Empty if it has ended or nothing is counted.
    """
    seconds = {}
    try:
        for thread in os.listdir("/proc/{}/task".format(pid)):
            with open("/proc/{}/task/{}/schedstat".format(pid, thread)) as stat:
                seconds[thread] = int(stat.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        pass
    return seconds


def own_clock_s():
    """Return a clock in seconds that stands still while this thread waits for a processor that
    others have.
    """
    with open("/proc/thread-self/schedstat") as stat:
        waited = int(stat.read().split()[1]) / 1e9
    return time.perf_counter() - waited


def throttled_us():
    """Return the microseconds for which a processor limit, as of a container, has stopped this
    process's group.
    """
    try:
        with open(CGROUP_STAT) as stat:
            lines = dict(line.split() for line in stat if line.count(" ") == 1)
        return int(lines.get("throttled_usec", 0))
    except (OSError, ValueError):
        return 0


def own_seconds(work):
    """Return seconds that `work()` takes, less the longest that one of its threads waited for a
    processor.

    The others of a parallel work wait for that thread. A node that is held back by its own limit is
    slow: nothing is taken off then.
    """
    waited_before = waited_s()
    throttled_before = throttled_us()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    if throttled_us() > throttled_before:
        return seconds
    waited = max(
        (now - waited_before.get(thread, 0.0) for thread, now in waited_s().items()), default=0.0
    )
    return max(seconds - waited, seconds / 1000)  # clocks of different kinds: never nothing
