"""Measure a file system that nodes share, together with other nodes, as requests on standard input
say.

    storage.py FOLDER

First line out:  {"folder", "filesystem", "free_bytes", "direct", "lacks"}, or {"error": text}
Standard input:  {"id", "do": NAME, ...} a line each, see REQUESTS
Output for each: {"id", ...}, or {"id", "error": text}

All files are in a folder of its own inside FOLDER, which goes when this process does: a child waits
for that, so that SIGKILL leaves nothing either. The file of streams has no name. It ends with its
standard input. Standard library only.
"""

import errno
import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import disk

BLOCK = disk.BLOCK
PREFIX = ".seatrial-"
# Names of nodes' own folders, the only ones that a node reads from others
OWN_FOLDER = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_]{1,32}")
NOTE_BYTES = 4096
SMALL_BYTES = 4096
POLL_S = 0.002
MOST_S = 3600.0  # the process ends after this time in one request, or without a request
JANITOR_S = 600  # time for which a killed process may still hold files open
REQUESTS = {
    name: name
    for name in (
        "stream",
        "note",
        "look",
        "hold",
        "contend",
        "release",
        "files",
        "save",
        "load",
        "leave",
    )
}


def main():
    """Answer requests about a folder."""
    serve(Storage)


def serve(storage_at):
    """Answer requests about the path or URL of the command line until standard input ends."""
    signal.alarm(int(MOST_S))
    try:
        storage = storage_at(sys.argv[1])
    except Exception as error:
        say({"error": disk.words(error)})
        return
    try:
        say(storage.greeting())
        for line in sys.stdin:
            signal.alarm(int(MOST_S))
            say(answered(storage, json.loads(line)))
    finally:
        storage.leave()


def say(answer):
    """Print an answer."""
    print(json.dumps(answer), flush=True)


def answered(storage, request):
    """Return the answer to a request, or the error that it raised."""
    try:
        answer = getattr(storage, REQUESTS[request.pop("do")])(**request)
    except Exception as error:  # storage may fail in any way
        answer = {"error": disk.words(error)}
    return {"id": request["id"], **answer}


class Checkpoints:
    """Saves and loads checkpoints in shards."""

    write_shard: Any
    read_shard: Any

    def save(self, id, bytes, shards):
        """Write a checkpoint, with a readable file or object for each of `shards` ranks; return
        bytes and seconds.
        """
        return transferred(bytes, shards, self.write_shard)

    def load(self, id, folder, bytes, shards):
        """Read another node's checkpoint, and compare it with what was written."""
        return transferred(bytes, shards, lambda shard, size: self.read_shard(folder, shard, size))


class Storage(Checkpoints):
    """The folder of this node. Each method answers one request."""

    def __init__(self, path):
        self.path = path
        self.own = tempfile.mkdtemp(prefix=PREFIX, dir=path)
        self.alive = clean_up_after(self.is_gone)
        self.file = disk.nameless(self.own)
        self.lock = -1  # descriptor of the locked file

    def greeting(self):
        """Return the first line of output."""
        disk_space = os.statvfs(self.path)
        return {
            "folder": os.path.basename(self.own),
            "filesystem": disk.filesystem(self.path),
            "free_bytes": disk_space.f_bavail * disk_space.f_frsize,
            "direct": disk.takes_direct(self.file),
            "lacks": "" if shutil.which("fio") else "fio",
        }

    def is_gone(self):
        """Remove the folder, which NFS may refuse for a while; return whether it is gone."""
        shutil.rmtree(self.own, ignore_errors=True)
        return not os.path.lexists(self.own)

    def leave(self, id=0):
        """Remove everything; no request is answered after this one."""
        os.ftruncate(self.file, 0)
        self.is_gone()
        return {}

    def of(self, folder, name):
        """Return the path of a file in the folder of another node."""
        check_folder(folder)
        return os.path.join(self.path, folder, name)

    def stream(self, id, direction, bytes, seconds, jobs):
        """Write or read for at most `seconds`, in `jobs` processes with a part of the file each."""
        part = bytes // jobs // BLOCK * BLOCK
        if direction == "write":
            os.ftruncate(self.file, part * jobs)  # or fio would want to make the file itself
        shared = (
            "--time_based",
            f"--numjobs={jobs}",
            f"--offset_increment={part}",
            "--group_reporting",
        )
        moved, took_s = disk.fio(self.file, direction, part, seconds, *shared)
        return {"bytes": moved, "seconds": took_s}

    def note(self, id):
        """Write a file for other nodes, with new content each time."""
        content = os.urandom(NOTE_BYTES)
        with open(f"{self.own}/note", "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return {"digest": hashlib.sha256(content).hexdigest()}

    def look(self, id, folder, digest, limit_s):
        """Return the seconds until another node's note has the expected content, or what was seen
        instead.
        """
        path = self.of(folder, "note")

        def read():
            with open(path, "rb") as file:
                return file.read(NOTE_BYTES + 1)

        return awaited(read, digest, limit_s)

    def hold(self, id):
        """Lock a file."""
        self.lock = os.open(f"{self.own}/lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.lockf(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return {}

    def contend(self, id, folder):
        """Return whether the file that another node has locked is locked here too."""
        with open(self.of(folder, "lock"), "r+") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX says
                return {"locked": True}
        return {"locked": False}

    def release(self, id):
        """Release the lock."""
        os.close(self.lock)
        return {}

    def files(self, id, count):
        """Write, list, read and remove small files."""
        folder = f"{self.own}/small"
        content = os.urandom(SMALL_BYTES)
        os.mkdir(folder)
        began = time.monotonic()
        try:
            for number in range(count):
                with open(f"{folder}/{number}", "wb") as file:
                    file.write(content)
            names = os.listdir(folder)
            wrong = ""
            if sorted(map(int, names)) != list(range(count)):
                wrong = f"{len(names)} of {count} files are listed"
            for name in names:
                path = f"{folder}/{name}"
                with open(path, "rb") as small:
                    if small.read() != content:
                        wrong = f"small file {name} is not what was written"
                os.unlink(path)
            return {"seconds": time.monotonic() - began, "wrong": wrong}
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def save(self, id, bytes, shards):
        """Write a checkpoint, replacing the data of streams."""
        os.ftruncate(self.file, 0)
        return super().save(id, bytes, shards)

    def write_shard(self, shard, size):
        """Write the file of a shard; return its bytes, and "" as there is no problem."""
        file = os.open(f"{self.own}/shard-{shard}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            disk.takes_direct(file)
            written, _ = disk.write_blocks(file, size, content_of(shard), MOST_S)
            return written, ""
        finally:
            os.close(file)

    def read_shard(self, folder, shard, size):
        """Read the file of a shard; return its bytes, and what is wrong with it."""
        file = os.open(self.of(folder, f"shard-{shard}"), os.O_RDONLY)
        try:
            disk.takes_direct(file)
            read, wrong, _ = disk.read_back(file, size, content_of(shard), MOST_S)
            return read, wrong and f"shard {shard}: {wrong}"
        finally:
            os.close(file)


def transferred(size, shards, transfer):
    """Transfer all shards at once; return bytes, seconds and what was wrong."""
    began = time.monotonic()
    part = size // shards // BLOCK * BLOCK
    with ThreadPoolExecutor(shards) as pool:
        each = list(pool.map(lambda shard: transfer(shard, part), range(shards)))
    wrong = next(filter(None, (wrong for _, wrong in each)), "")
    return {
        "bytes": sum(size for size, _ in each),
        "seconds": time.monotonic() - began,
        "wrong": wrong,
    }


def check_folder(folder):
    """Raise ValueError for a folder that is not a node's own folder."""
    if not OWN_FOLDER.fullmatch(folder):
        raise ValueError(f"{folder!r} is no folder of a node")


def awaited(read, digest, limit_s):
    """Return the seconds until `read` returns content with that digest, or what it returned at the
    limit.
    """
    began = time.monotonic()
    seen = "no such file"
    while True:
        try:
            content = read()
            seen = "another content"
            if hashlib.sha256(content).hexdigest() == digest:
                return {"seconds": time.monotonic() - began}
        except FileNotFoundError:
            seen = "no such file"
        except OSError as error:
            if error.errno != errno.ESTALE:  # NFS raises this for a replaced file
                raise
        if time.monotonic() - began > limit_s:
            return {"seen": seen}
        time.sleep(POLL_S)


def clean_up_after(is_gone):
    """Fork a child that calls `is_gone` after this process ends, until it returns true.

    Return a descriptor that must stay open until then.
    """
    waits, alive = os.pipe()
    if os.fork():
        os.close(waits)
        return alive
    os.setsid()
    os.close(alive)
    signal.alarm(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.read(waits, 1)  # returns when the parent ends
    deadline = time.monotonic() + JANITOR_S
    while time.monotonic() < deadline and not tried(is_gone):
        time.sleep(0.1)
    os._exit(0)


def tried(is_gone):
    """Return what `is_gone` returns; false if it raises."""
    try:
        return is_gone()
    except Exception:  # a store may be out of reach for a while
        return False


def content_of(shard):
    """Return the content of all blocks of a shard after their numbers; shards differ."""
    return random.Random(shard).randbytes(BLOCK - 8)


if __name__ == "__main__":
    main()
