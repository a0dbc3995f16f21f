"""The folder that a run has on this machine, its owner, and how to tell that the owner is gone."""

import json
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import LaunchError


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be mistaken for a later one with the same id: `started` is in clock ticks since boot."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return _start_ticks(self.pid) == self.started


def this_process() -> Process:
    return process(os.getpid())


def process(pid: int) -> Process:
    """Raises ProcessLookupError when there is none."""
    started = _start_ticks(pid)
    if started is None:
        raise ProcessLookupError(pid)
    return Process(pid, started)


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None when the process is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def root_folder(platform: str = "") -> Path:
    """Where runs of this user keep their state: /run/seatrial for root, else a folder in the temporary directory.

    Platforms that look there for leftovers of their own have a folder of their own.
    """
    name = f"seatrial-{platform}" if platform else "seatrial"
    return Path("/run") / name if os.geteuid() == 0 else Path(tempfile.gettempdir()) / f"{name}-{os.geteuid()}"


def make_folder(run_id: str, platform: str = "") -> Path:
    """A run's own folder, readable by its user alone. Raises LaunchError when somebody else owns the place."""
    root = root_folder(platform)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = root.lstat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077 or not stat.S_ISDIR(found.st_mode):
        raise LaunchError(f"{root}: must be a folder of yours that nobody else can open; remove it and run again")
    folder = root / run_id
    folder.mkdir(mode=0o700)
    write_owner(folder, "owner", this_process())
    return folder


def write_owner(folder: Path, name: str, owner: Process) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"pid": owner.pid, "started": owner.started}))


def read_owner(folder: Path, name: str) -> Process | None:
    """None when it was never written."""
    try:
        content = json.loads((folder / f"{name}.json").read_text())
        return Process(int(content["pid"]), int(content["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_abandoned(folder: Path) -> bool:
    """Whether the run's process is gone. A folder without owner is being made right now, unless it is old."""
    owner = read_owner(folder, "owner")
    return not owner.alive if owner else age_s(folder) > 60


def age_s(folder: Path) -> float:
    """Seconds since the folder last changed."""
    try:
        return max(0.0, time.time() - folder.stat().st_mtime)
    except OSError:
        return 0.0


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
