"""The folder that a run has on this machine: its owner, whether it is kept, and how to tell that nobody tends it."""

import json
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.errors import InputError, LaunchError

if TYPE_CHECKING:
    from seatrial.cluster import Cluster

_PLATFORMS = ("", "kubernetes")  # whose runs have a folder, by the name of `root_folder`


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


def remember(folder: Path, cluster: "Cluster") -> None:
    """Write down which cluster the run is on, for other processes."""
    write_private(folder / "cluster.json", cluster.model_dump_json())


def recall(folder: Path) -> "Cluster":
    """Raises InputError where there is none: the run has only begun, or is being taken down."""
    from seatrial.cluster import Cluster

    try:
        return Cluster.model_validate_json((folder / "cluster.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"run {folder.name}: is not up, or only just coming up") from error


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def find(run_id: str) -> Path | None:
    """The folder of a run of this user on this machine; None when there is none."""
    return next((folder for folder in _folders() if folder.name == run_id), None)


def known() -> list[str]:
    """The ids of all runs of this user that have a folder on this machine."""
    return sorted(folder.name for folder in _folders())


def _folders() -> list[Path]:
    return [folder for platform in _PLATFORMS for folder in folders(platform)]


def folders(platform: str) -> list[Path]:
    """Those of this user's runs on a platform, by its name in `root_folder`."""
    root = root_folder(platform)
    if not root.is_dir() or root.stat().st_uid != os.geteuid():
        return []
    return [folder for folder in root.iterdir() if folder.is_dir()]


def keep(folder: Path, seconds: float) -> None:
    """From now on and for so long the run is not abandoned, whether its process lives or not."""
    write_private(folder / "kept.json", json.dumps({"until": time.time() + seconds}))


def kept_until(folder: Path) -> float | None:
    """In seconds of the epoch; None when the run is not kept."""
    try:
        return float(json.loads((folder / "kept.json").read_text())["until"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_at_work(folder: Path) -> bool:
    """Whether the run's process lives, and has not left its nodes for people to look at."""
    owner = read_owner(folder, "owner")
    return bool(owner and owner.alive) and kept_until(folder) is None


def is_abandoned(folder: Path) -> bool:
    """Whether nobody tends the run: its process is gone, or the time that it was kept for is over.

    A folder without owner is being made right now, unless it is old.
    """
    if until := kept_until(folder):
        return time.time() > until
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
