"""Measure how fast a folder of this node is written and read: with fio where it is installed, else
with Python.

    disk.py [--folder F] [--bytes N] [--seconds S] [--timeout-s T]     start it by hand or over SSH

Prints one JSON line: {"tool": "fio" or "python", "filesystem", "bytes", "write_mb_s", "read_mb_s",
"wrong": text}, MB of 1e6 bytes; or {"error": text}; or {} where other nodes of the machine were
measured for all of the time. Reads and writes go past the page cache where the file system can, and
what is written is on the disk when its time ends.

The file has no name (O_TMPFILE), so it is gone when this process is, however it ends. A file system
without such files has a name for the moment between its making and its removal.
"""

import errno
import fcntl
import json
import mmap
import os
import shutil
import subprocess
import tempfile
import time

from command_line import parser_of
from facts import end_group
from machine_lock import MachineLock

BLOCK = 1 << 20
LEAST_BYTES = 8 * BLOCK
MAX_TEXT = 200
PURPOSE = "Measure how fast a folder is written and read."
OPTIONS = (
    ("--folder", str, "", "a folder on the disk; the one for temporary files when left out"),
    ("--bytes", int, 1 << 28, "of the file, at most a quarter of what is free"),
    ("--seconds", float, 5.0, "for each of writing and reading, at most"),
    ("--timeout-s", float, 120.0, "half of it is the longest wait for other nodes"),
)


def main():
    """Print the measurement, or the error."""
    try:
        answer = measured(arguments())
    except Exception as error:  # a disk may fail in any way
        answer = {"error": words(error)}
    print(json.dumps(answer), flush=True)


def words(error):
    """Return what went wrong, in one line of bounded length."""
    return " ".join(str(error).split())[:MAX_TEXT] or type(error).__name__


def arguments():
    """Return the options; exit with 2 for bad ones."""
    parser = parser_of(None, PURPOSE, OPTIONS)
    options = parser.parse_args()
    if options.bytes < LEAST_BYTES:
        parser.error(f"needs --bytes of {LEAST_BYTES} or more")
    return options


def measured(options):
    """Return the measurement; {} if other nodes used the machine for all of the time."""
    lock = MachineLock()  # until the process ends
    if not lock.acquire(fcntl.LOCK_EX, time.monotonic() + options.timeout_s / 2):
        return {}
    folder = options.folder or tempfile.gettempdir()
    size = file_size(folder, options.bytes)
    file = nameless(folder)
    try:
        measure = measured_by_fio if shutil.which("fio") else measured_by_python
        return {
            "filesystem": filesystem(folder),
            "bytes": size,
            **measure(file, size, options.seconds),
        }
    finally:
        os.close(file)


def file_size(folder, most):
    """Return the bytes to write, in whole blocks. Raises OSError if too little space is free."""
    disk = os.statvfs(folder)
    # At most a quarter of the free space
    size = min(most, disk.f_bavail * disk.f_frsize // 4) // BLOCK * BLOCK
    if size < LEAST_BYTES:
        raise OSError(errno.ENOSPC, f"too little is free in {folder}")
    return size


def nameless(folder):
    """Return a new file without a name."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    file, path = tempfile.mkstemp(dir=folder)
    os.unlink(path)
    return file


def filesystem(folder):
    """Return the type of the file system, as in the kernel's mount table: ext4, xfs, overlay, nfs4,
    lustre.
    """
    path = os.path.realpath(folder)
    kinds = {}
    with open("/proc/self/mounts", errors="replace") as mounts:
        for line in mounts:
            _, where, kind = line.split()[:3]
            kinds[where.replace("\\040", " ")] = kind
    holding = [where for where in kinds if where in ("/", path) or path.startswith(where + "/")]
    return kinds[max(holding, key=len)][:MAX_TEXT] if holding else ""


def measured_by_fio(file, size, seconds):
    """Write and read by fio."""
    os.posix_fallocate(file, 0, size)  # otherwise fio would create the file itself
    written, write_s = fio(file, "write", size, seconds)
    read, read_s = fio(file, "read", max(written // BLOCK, 1) * BLOCK, seconds)
    return {
        "tool": "fio",
        "write_mb_s": written / write_s / 1e6,
        "read_mb_s": read / read_s / 1e6,
        "wrong": "",
    }


def fio(file, direction, size, seconds, *more):
    """Return bytes and seconds of one sequential job over the open file.

    Raises OSError with fio's message.

    `more` are further options of fio.
    """
    command = [
        "fio",
        "--name=seatrial",
        f"--filename=/proc/{os.getpid()}/fd/{file}",
        f"--rw={direction}",
        f"--size={size}",
        "--bs=1M",
        "--iodepth=16",
        "--ioengine=libaio",
        f"--direct={int(takes_direct(file))}",
        "--end_fsync=1",
        "--overwrite=1",
        "--fallocate=none",
        f"--runtime={max(1, round(seconds))}s",
        "--output-format=json",
        *more,
    ]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        output, problem = child.communicate(timeout=2 * seconds + 60)
    finally:
        end_group(child)
    text = output.decode(errors="replace")
    if child.returncode:
        raise OSError(f"fio: {problem.decode(errors='replace') or text}")
    job = json.loads(text[text.index("{") :])["jobs"][0][direction]
    return job["io_bytes"], job["runtime"] / 1000


def takes_direct(file):
    """Enable direct I/O, past the page cache; return whether the file supports it."""
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True


def measured_by_python(file, size, seconds):
    """Write and read numbered blocks sequentially, and compare them."""
    takes_direct(file)
    content = os.urandom(BLOCK - 8)
    written, write_s = write_blocks(file, size, content, seconds)
    # Without O_DIRECT, drop the pages so that reads come from disk
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    read, wrong, read_s = read_back(file, written, content, seconds)
    return {
        "tool": "python",
        "write_mb_s": written / write_s / 1e6,
        "read_mb_s": read / read_s / 1e6,
        "wrong": wrong,
    }


def write_blocks(file, size, content, seconds):
    """Return the bytes written and synced to disk, and the seconds that it took."""
    block = mmap.mmap(-1, BLOCK)  # page-aligned, as O_DIRECT requires
    began = time.perf_counter()
    written = 0
    while written < size and time.perf_counter() - began < seconds:
        block[:] = written.to_bytes(8, "little") + content
        written += os.pwrite(file, block, written)
    os.fsync(file)
    return written, time.perf_counter() - began


def read_back(file, size, content, seconds):
    """Return the bytes read, what was wrong with them, and the seconds that reading took."""
    block = mmap.mmap(-1, BLOCK)
    place = 0
    took = 0.0
    wrong = ""
    while place < size and took < seconds:
        began = time.perf_counter()
        count = os.preadv(file, [block], place)
        took += time.perf_counter() - began
        if count != BLOCK or block[:] != place.to_bytes(8, "little") + content:
            wrong = wrong or f"the block at byte {place} of the file is not what was written"
        place += BLOCK
    return place, wrong, took


if __name__ == "__main__":
    main()
