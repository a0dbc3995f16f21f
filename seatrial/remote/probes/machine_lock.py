"""A lock that nodes of one machine share, so that they measure one after another.

Such nodes (containers, network namespaces) share a folder. The lock's name contains the boot id of
the machine, so that nodes with a common network home do not wait for each other. The holder
regularly writes the time into the file; if it stops, as when its process is stopped, others use
another lock.
"""

import fcntl
import os
import tempfile
import threading
import time

SILENT_S = 10.0  # a process that loads a large library may not write the time for seconds
BEAT_S = 1.0


class MachineLock:
    """A lock that is held until the process ends, or `release`."""

    def __init__(self):
        self.number = 0
        self.beating = False
        self.file = self.opened()

    def opened(self):
        """Open the lock file."""
        return os.open(lock_file(self.number), os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self, mode, ends):
        """Acquire the lock in that mode, fcntl.LOCK_SH or LOCK_EX.

        Return false if others hold it until `ends` (time.monotonic).
        """
        sign = None
        seen = time.monotonic()
        while not self.taken(mode):
            now = time.monotonic()
            last = os.pread(self.file, 32, 0)
            if now >= ends:
                return False
            if last != sign:
                sign = last
                seen = now
            elif now - seen > SILENT_S:
                self.number += 1
                self.file = self.opened()
                sign = None
                seen = now
            time.sleep(0.02)
        return True

    def taken(self, mode):
        """Try to take the lock; return whether that succeeded."""
        try:
            fcntl.flock(self.file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: assume that nodes are separate machines
            return True
        self.show_life()
        if not self.beating:
            self.beating = True
            threading.Thread(target=self.beat, daemon=True).start()
        return True

    def beat(self):
        """Write the time regularly until the process ends."""
        while True:
            time.sleep(BEAT_S)
            self.show_life()

    def show_life(self):
        """Write the current time into the lock file."""
        os.pwrite(self.file, b"%032d" % time.monotonic_ns(), 0)

    def release(self):
        """Release the lock."""
        fcntl.flock(self.file, fcntl.LOCK_UN)


def lock_file(number):
    """Return the path of the lock, next to the probe."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip()
    folder = os.path.dirname(os.path.abspath(__file__))
    # The probe is in an archive, `seatrial probe`: use the archive's folder
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK):  # the folder is part of an image, and the user is not root
        folder = tempfile.gettempdir()
    return os.path.join(folder, f"devices-{machine}{f'-{number}' if number else ''}.lock")
