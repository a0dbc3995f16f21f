"""A lock that nodes of one machine share, so that they measure one after another.

Such nodes (containers, network namespaces) share a folder. The lock's name has the machine's boot
id, so that nodes with a common network home do not wait for each other. Its holder shows signs of
life; where none come, as of a process that was stopped, the others go on with another lock.
"""

import fcntl
import os
import tempfile
import threading
import time

SILENT_S = 10.0  # a process that loads a large library shows none for seconds
BEAT_S = 1.0


class MachineLock:
    """A lock that is held until the process ends, or `release`."""

    def __init__(self):
        self.number = 0
        self.beating = False
        self.file = self.opened()

    def opened(self):
        """Open the file of the lock."""
        return os.open(lock_file(self.number), os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self, mode, ends):
        """Take the lock in that mode, fcntl.LOCK_SH or LOCK_EX.

        False when others hold it until `ends` (of time.monotonic).
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
        """Return whether the lock could be taken."""
        try:
            fcntl.flock(self.file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: its nodes are machines of their own
            return True
        self.show_life()
        if not self.beating:
            self.beating = True
            threading.Thread(target=self.beat, daemon=True).start()
        return True

    def beat(self):
        """Show life until the process ends."""
        while True:
            time.sleep(BEAT_S)
            self.show_life()

    def show_life(self):
        """Write the time into the file."""
        os.pwrite(self.file, b"%032d" % time.monotonic_ns(), 0)

    def release(self):
        """Release the lock."""
        fcntl.flock(self.file, fcntl.LOCK_UN)


def lock_file(number):
    """Return the lock's path, beside the probe."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip()
    folder = os.path.dirname(os.path.abspath(__file__))
    if not os.path.isdir(folder):  # an archive, `seatrial probe`: beside it
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK):  # of an image, for a user who is not root
        folder = tempfile.gettempdir()
    return os.path.join(folder, f"devices-{machine}{f'-{number}' if number else ''}.lock")
