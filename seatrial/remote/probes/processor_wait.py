"""How long threads were ready to run but waited for a processor.

Linux counts this for each thread (/proc/PID/task/TID/schedstat). If one machine plays all nodes,
other programs there take processors from a measurement; that time is no property of the node.
"""

import os
import time

CGROUP_STAT = "/sys/fs/cgroup/cpu.stat"


def waited_s(pid="self"):
    """Return the seconds that each thread of a process has waited, by thread.

    Empty if the process has ended or the kernel does not count.
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
    """Return a clock in seconds that excludes the time for which this thread waits for a
    processor.
    """
    with open("/proc/thread-self/schedstat") as stat:
        waited = int(stat.read().split()[1]) / 1e9
    return time.perf_counter() - waited


def throttled_us():
    """Return the microseconds for which a CPU limit, such as a container's, has stopped this
    process's cgroup.
    """
    try:
        with open(CGROUP_STAT) as stat:
            lines = dict(line.split() for line in stat if line.count(" ") == 1)
        return int(lines.get("throttled_usec", 0))
    except (OSError, ValueError):
        return 0


def own_seconds(work):
    """Return the seconds that `work()` takes, minus the longest wait of one of its threads for a
    processor.

    Other threads of parallel work wait for that thread. Nothing is subtracted if a CPU limit
    stopped the node meanwhile: then the node is slow.
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
    return max(seconds - waited, seconds / 1000)  # the clocks differ, so keep the result above 0
